"""The vocabulary of the tiny model of all recorded exchanges: `recorded_vocabulary.txt`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.engines.tiny_model import MARKERS, TEMPLATE
from tito_io.families.family import Family

TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
"""Its further tokens, in their order; engines show them."""
BYTEWISE = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}


@cache
def family() -> Family:
    """Return the recorded model's folder, with a chat template. It encodes letter by letter."""
    names = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    plain = {"normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
    added = [
        {"id": index, "content": text, "special": text in MARKERS, **plain}
        for index, text in enumerate((*MARKERS, *TAGS), len(names))
    ]
    model = {"type": "BPE", "vocab": {name: index for index, name in enumerate(names)}, "merges": []}
    tokenizer = {"version": "1.0", "added_tokens": added, "pre_tokenizer": BYTEWISE, "decoder": BYTEWISE}
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(json.dumps({**tokenizer, "model": model}))
        (folder / "tokenizer_config.json").write_text('{"eos_token": "<|im_end|>"}')
        (folder / "chat_template.jinja").write_text(TEMPLATE)
        return Family.load(folder)
