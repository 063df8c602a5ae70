"""Write small GGUF files for tests, as llama.cpp's converter does, and packages that ship one."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_NAMED = (("bos", "bos_token"), ("eos", "eos_token"), ("padding", "pad_token"), ("unknown", "unk_token"))
_INT8_TENSOR = 24
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


def write_gguf(
    path: Path, metadata: Mapping[str, Any], *, version: int = 3, tensors: Sequence[int] = ()
) -> Path:
    """Write a GGUF file with these metadata; integers are 32 bits wide.

    Tensors of as many bytes follow, without the space that other files have between them.
    """
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    values = b"".join(_string(key) + _typed(value) for key, value in metadata.items())
    begins = [sum(tensors[:place]) for place in range(len(tensors))]
    infos = b"".join(
        _string(f"t{begin}") + struct.pack("<IQIQ", 1, size, _INT8_TENSOR, begin)
        for size, begin in zip(tensors, begins, strict=True)
    )
    before = head + values + infos
    padding = bytes(-len(before) % metadata.get("general.alignment", 32)) if tensors else b""
    path.write_bytes(before + padding + bytes(sum(tensors)))
    return path


def install_package(folder: Path, *files: str, name: str = "tiny-model", module: str = "tiny_model") -> Path:
    """Write a package of some files as pip installs it, and return its folder; to import it is an error."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    recorded = [f"{module}/__init__.py", *(f"{module}/{file}" for file in files)]
    info.joinpath("RECORD").write_text("".join(f"{file},,\n" for file in recorded))
    for file in recorded:
        folder.joinpath(file).parent.mkdir(parents=True, exist_ok=True)
        folder.joinpath(file).write_text("raise RuntimeError('imported')")
    return folder / module


def _string(text: str) -> bytes:
    encoded = text.encode(errors="surrogateescape")
    return struct.pack("<Q", len(encoded)) + encoded


def _typed(value: Any) -> bytes:
    kind, encoded = _value(value)
    return struct.pack("<I", kind) + encoded


def _value(value: Any) -> tuple[int, bytes]:
    """Return the number of a value's type, and the value."""
    if isinstance(value, bool):
        return _BOOL, struct.pack("<?", value)
    if isinstance(value, int):
        return (_INT32, struct.pack("<i", value)) if value < 0 else (_UINT32, struct.pack("<I", value))
    if isinstance(value, float):
        return _FLOAT32, struct.pack("<f", value)
    return (_STRING, _string(value)) if isinstance(value, str) else (_ARRAY, _array(value))


def _array(values: Sequence[Any]) -> bytes:
    pairs = [_value(value) for value in values]
    kinds = {kind for kind, _ in pairs}
    kind = kinds.pop() if len(kinds) == 1 else _INT32
    return struct.pack("<IQ", kind, len(pairs)) + b"".join(encoded for _, encoded in pairs)


def metadata_of(folder: Path, pre: str | None, *, model: str = "gpt2") -> dict[str, Any]:
    """Return what llama.cpp's converter would write of a model folder's tokenizer and template.

    Vocabularies that are padded get unused tokens, here always three.
    """
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    config = json.loads((folder / "tokenizer_config.json").read_text())
    added = {token["id"]: token for token in tokenizer["added_tokens"]}
    vocab = {index: text for text, index in tokenizer["model"]["vocab"].items()}
    vocab |= {index: token["content"] for index, token in added.items()}
    size = max(vocab) + 4
    ids = {text: index for index, text in vocab.items()}
    template = folder / "chat_template.jinja"
    return {
        "general.architecture": "tito",
        "tokenizer.ggml.model": model,
        **({} if pre is None else {"tokenizer.ggml.pre": pre}),
        "tokenizer.ggml.tokens": [vocab.get(index, f"[PAD{index}]") for index in range(size)],
        "tokenizer.ggml.token_type": [_type(index, vocab, added) for index in range(size)],
        "tokenizer.ggml.merges": [
            merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]
        ],
        **{f"tokenizer.ggml.{key}_token_id": ids[config[name]] for key, name in _NAMED if config.get(name)},
        "tokenizer.chat_template": template.read_text() if template.exists() else config["chat_template"],
    }


def _type(index: int, vocab: Mapping[int, str], added: Mapping[int, Any]) -> int:
    """Return a token's type as llama.cpp's converter chooses it."""
    if index in added:
        return CONTROL if added[index]["special"] else USER_DEFINED
    if index not in vocab:
        return UNUSED
    return BYTE if vocab[index].startswith("<0x") and len(vocab[index]) == len("<0x00>") else NORMAL
