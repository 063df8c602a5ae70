"""Write a tiny language model with random weights as a GGUF file, with the vocabulary of a model folder.

Run by an interpreter that has gguf and numpy: `python tiny_gguf.py FOLDER FILE [qwen3|lfm2]`. The model says
nothing sensible, which is its use. `lfm2` is a hybrid: of its four layers only one has attention, and what
the others remember of a prompt cannot be cut.

llama.cpp's own converter knows vocabularies by their hash, and so refuses this one.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

EMBEDDING, INNER, HEADS, HEAD_SIZE, KEPT = 64, 128, 2, 32, 3
LAYERS = {"qwen3": ("attention", "attention"), "lfm2": ("memory", "memory", "attention", "memory")}
SPREAD = 0.3
"""The standard deviation of weights; wide enough that what was said before matters."""


def write(folder: Path, target: Path, architecture: str) -> None:
    """Write the file."""
    gguf: Any = import_module("gguf")
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(target), architecture)
    layers = LAYERS[architecture]
    writer.add_name(f"tiny {architecture}")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(EMBEDDING)
    writer.add_block_count(len(layers))
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv([int(layer == "attention") for layer in layers] if "memory" in layers else 1)
    writer.add_key_length(HEAD_SIZE)
    writer.add_value_length(HEAD_SIZE)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    if "memory" in layers:
        writer.add_shortconv_l_cache(KEPT)
    vocabulary(gguf, writer, folder)
    for name, tensor in weights(config["vocab_size"], architecture):
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def vocabulary(gguf: Any, writer: Any, folder: Path) -> None:
    """Add the folder's vocabulary and chat template."""
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    names = [f"[PAD{place}]" for place in range(config["vocab_size"])]
    types = [gguf.TokenType.UNUSED] * len(names)
    for text, place in tokenizer["model"]["vocab"].items():
        names[place], types[place] = text, gguf.TokenType.NORMAL
    for added in tokenizer["added_tokens"]:
        kind = gguf.TokenType.CONTROL if added["special"] else gguf.TokenType.USER_DEFINED
        names[added["id"]], types[added["id"]] = added["content"], kind
    merges = [one if isinstance(one, str) else " ".join(one) for one in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(names)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_pad_token_id(config["bos_token_id"])
    writer.add_chat_template((folder / "chat_template.jinja").read_text())


def weights(size: int, architecture: str) -> list[tuple[str, Any]]:
    """Return random weights by their names in the file."""
    numpy: Any = import_module("numpy")
    draws = numpy.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return draws.normal(0.0, SPREAD, (rows, columns)).astype("float32")

    def ones(length: int) -> Any:
        return numpy.ones(length, dtype="float32")

    last = "token_embd_norm" if architecture == "lfm2" else "output_norm"
    found = [
        ("token_embd", matrix(size, EMBEDDING)),
        (last, ones(EMBEDDING)),
        ("output", matrix(size, EMBEDDING)),
    ]
    for place, layer in enumerate(LAYERS[architecture]):
        shapes = {
            "ffn_gate": (INNER, EMBEDDING),
            "ffn_up": (INNER, EMBEDDING),
            "ffn_down": (EMBEDDING, INNER),
        }
        norms = {"attn_norm": EMBEDDING, "ffn_norm": EMBEDDING}
        if layer == "attention":
            shapes |= {
                "attn_q": (HEADS * HEAD_SIZE, EMBEDDING),
                "attn_output": (EMBEDDING, HEADS * HEAD_SIZE),
            }
            shapes |= {"attn_k": (HEAD_SIZE, EMBEDDING), "attn_v": (HEAD_SIZE, EMBEDDING)}
            norms |= {"attn_q_norm": HEAD_SIZE, "attn_k_norm": HEAD_SIZE}
        else:
            shapes |= {"shortconv.conv": (EMBEDDING, KEPT), "shortconv.in_proj": (3 * EMBEDDING, EMBEDDING)}
            shapes |= {"shortconv.out_proj": (EMBEDDING, EMBEDDING)}
        found += [(f"blk.{place}.{name}", matrix(*shape)) for name, shape in shapes.items()]
        found += [(f"blk.{place}.{name}", ones(length)) for name, length in norms.items()]
    return [(f"{name}.weight", tensor) for name, tensor in found]


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "qwen3")
