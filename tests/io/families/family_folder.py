"""Tiny model folders, and what transformers makes of them: the reference that local rendering must equal."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import transformers.utils.chat_template_utils as reference_module
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer

from tito_core import InputError, TemplateRefused
from tito_io.families.family import Family

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001  # templates print the wall clock, which has no zone
SPECIAL = ["<bos>", "<eos>", "<pad>", "<|im_start|>", "<|im_end|>", "<image>"]
CORPUS = [
    "the quick brown fox",
    "system user assistant tool",
    "what is the weather in Paris",
    "hello world, so",
]
CONFIG = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>"}


class FrozenClock(datetime):
    """The time of day that transformers sees."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> FrozenClock:
        """Return noon of New Year's Day, 2026."""
        return cls(2026, 1, 1, 12, tzinfo=tz)


def freeze(setattr_: Callable[[object, str, object], None]) -> None:
    """Stop the clock that transformers' templates read; pass `monkeypatch.setattr`."""
    setattr_(reference_module, "datetime", FrozenClock)


def tiny_tokenizer() -> Tokenizer:
    """Train a byte-level vocabulary of a few words."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=340,
        initial_alphabet=ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    return tokenizer


def write(path: Path, files: Mapping[str, Any]) -> Path:
    """Write files into a folder: texts as they are, everything else as JSON."""
    for name, value in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def tiny_folder(path: Path, template: str | None = None, **files: Any) -> Path:
    """Write a model folder; `files` are by name, with `__` for the dot: `tokenizer_config__json`."""
    path.mkdir(parents=True, exist_ok=True)
    tiny_tokenizer().save(str(path / "tokenizer.json"))
    named = {name.replace("__", "."): value for name, value in files.items()}
    given = {} if template is None else {"chat_template.jinja": template}
    return write(path, {"tokenizer_config.json": CONFIG, **given, **named})


def load(path: Path, template: str | None = None) -> Family:
    """Load a folder, the clock stopped at noon."""
    return Family.load(path, template=template, clock=lambda: NOON)


def reference(path: Path) -> Any:
    """Load a folder as transformers does."""
    return AutoTokenizer.from_pretrained(path)


def rendered(
    family: Family, messages: Sequence[Mapping[str, Any]], **options: Any
) -> tuple[str, list[int]] | None:
    """Return the text and ids, or None where the template or the input is refused."""
    try:
        return family.text(messages, **options), family.ids(messages, **options)
    except (TemplateRefused, InputError):
        return None


def expected(
    tokenizer: Any, messages: Sequence[Mapping[str, Any]], **options: Any
) -> tuple[str, list[int]] | None:
    """Return what transformers renders, or None where it raises."""
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except Exception:  # noqa: BLE001  # it raises whatever the template raised
        return None
    return text, tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False, **options)
