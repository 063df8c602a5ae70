"""The embedded family as a Hugging Face model folder, without weights: there are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .vocabulary import CLOSE, OPEN, OVER, SPECIAL, TAGS, Vocabulary, vocabulary

MODEL = "tito-embedded-sampler"
"""The served name, which says what this is: a sampler of words, not a language model."""
MAX_MODEL_LEN = 32_768
TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")


def write_family(path: str | Path) -> Path:
    """Write the folder at `path`, made where it is missing, and return it.

    `tito_io.family.Family` and `transformers.AutoTokenizer` load it. The same files on every run.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    words = vocabulary()
    words.tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    _write(folder / "tokenizer_config.json", _tokenizer_config(words))
    _write(folder / "generation_config.json", _generation_config(words))
    return folder


def _write(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


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
