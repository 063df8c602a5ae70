"""Compare the prompts that are rendered here with those of the engines themselves."""
