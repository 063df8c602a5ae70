"""The embedded family as a Hugging Face model folder, without weights: there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tito_core import InputError

from .vocabulary import CLOSE, OPEN, OVER, SPECIAL, TAGS, Vocabulary, vocabulary

MODEL = "tito-embedded-sampler"
"""The served name, which says what this is: a sampler of words, not a language model."""
MAX_MODEL_LEN = 32_768
TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")


def write_family(path: str | Path) -> Path:
    """Write the folder at `path`, made where it is missing, and return it.

    `tito_io.families.Family` and `transformers.AutoTokenizer` load it. The same files on every run. Raises
    `InputError` where the folder cannot be written.
    """
    folder, words = Path(path), vocabulary()
    files = {
        "tokenizer.json": words.tokenizer.to_str(pretty=False),
        "chat_template.jinja": TEMPLATE,
        "tokenizer_config.json": _lines(_tokenizer_config(words)),
        "generation_config.json": _lines(_generation_config(words)),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return folder


def _lines(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def _tokenizer_config(words: Vocabulary) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {str(words.id(token)): _added(token) for token in (*SPECIAL, *TAGS)},
        "additional_special_tokens": [OPEN, CLOSE],
        "bos_token": None,
        "eos_token": CLOSE,
        "pad_token": OVER,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_MODEL_LEN,
    }


def _added(token: str) -> dict[str, Any]:
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    return {"content": token, **flags, "special": token in SPECIAL}


def _generation_config(words: Vocabulary) -> dict[str, Any]:
    """Both end tokens, the turn's first: sampling the second is the odd stop."""
    return {
        "do_sample": True,
        "eos_token_id": [words.id(CLOSE), words.id(OVER)],
        "pad_token_id": words.id(OVER),
    }
