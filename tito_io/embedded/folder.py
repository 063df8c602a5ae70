"""The embedded model family: a Hugging Face model folder without weights, and the family loaded from it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tito_core import InputError
from tito_io.families.family import Family

from .vocabulary import END_OF_TEXT, END_OF_TURN, SPECIAL, START_OF_TURN, TAGS, Vocabulary, vocabulary

MODEL = "tito-embedded-sampler"
"""The served model name, which says what this is: a sampler of words, not a language model."""
MAX_MODEL_LEN = 32_768
TEMPLATE = (Path(__file__).parent / "chat_template.jinja").read_text(encoding="utf-8")


@cache
def family() -> Family:
    """Return the embedded model family, loaded from a folder as any other family is; once per process."""
    with TemporaryDirectory(prefix="tito-embedded-") as folder:
        return Family.load(write_family(folder))


def write_family(path: str | Path) -> Path:
    """Write the model folder at `path`, which is created where it is missing, and return it.

    `tito_io.families.Family` and `transformers.AutoTokenizer` load it. Its files are the same on every run.
    Raises `InputError` where the folder cannot be written.
    """
    folder, words = Path(path), vocabulary()
    files = {
        "tokenizer.json": words.tokenizer.to_str(pretty=False),
        "chat_template.jinja": TEMPLATE,
        "tokenizer_config.json": json.dumps(_tokenizer_config(words), indent=2) + "\n",
        "generation_config.json": json.dumps(_generation_config(words), indent=2) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return folder


def _tokenizer_config(words: Vocabulary) -> dict[str, Any]:
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {
            str(words.id(token)): {"content": token, **flags, "special": token in SPECIAL}
            for token in (*SPECIAL, *TAGS)
        },
        "additional_special_tokens": [START_OF_TURN, END_OF_TURN],
        "bos_token": None,
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_MODEL_LEN,
    }


def _generation_config(words: Vocabulary) -> dict[str, Any]:
    # Both are stop tokens, the end-of-turn token first: sampling the other one is the odd stop.
    return {
        "do_sample": True,
        "eos_token_id": [words.id(END_OF_TURN), words.id(END_OF_TEXT)],
        "pad_token_id": words.id(END_OF_TEXT),
    }
