"""Read a tokenizer and its chat templates from a GGUF file, the format of llama.cpp."""
