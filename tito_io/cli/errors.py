"""What a command says where something went wrong: one line on stderr, in the words of the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NoReturn

from tito_core import TitoError
from tito_io.engines.protocol import EngineError

from .engine_words import words

BAD_INPUT, ENGINE_FAILED = 2, 3
ELSEWHERE = re.compile(
    r"; (?:its own words are in `answer\.body`|(?:what (?:it had|was) sampled is|they are) in `partial`)"
)
"""Where the library's errors keep what a person at a terminal is shown instead."""
OPTIONS: Mapping[re.Pattern[str], str] = {
    re.compile(r"\bSGLang\(vocab_size=\.\.\.\)"): "--vocab-size",
    re.compile(r"^vocab_size(?=: )"): "--vocab-size",
    re.compile(r"(?:\bthe )?(?<![\w/.])base_url\b"): "--base-url",
    re.compile(r"(?<![\w/.])api_key\b"): "--api-key",
    re.compile(r"as `family`, or a `tokenize_fn`"): "with --family",
    re.compile(r"with the `tokenize_fn` of a `tito_io\.family\.Family`"): "with --family MODEL_FOLDER",
}
"""The library's names of things, and the options that say the same."""


def complain(text: str) -> None:
    """Say a line on stderr."""
    sys.stderr.write(f"tito: {visible(text)}\n")


def fail(error: TitoError, status: int) -> NoReturn:
    """Say what went wrong, and end."""
    complain(error_text(error))
    sys.exit(status)


def error_text(error: TitoError) -> str:
    r"""Return an error as the command line says it, with the engine's own words.

    >>> from tito_io.engines.protocol import Answer
    >>> kept = "check the base_url; its own words are in `answer.body`"
    >>> error_text(EngineError(kept, Answer(404, "no\nroute")))
    'check --base-url; it says: no route'
    """
    text = str(error)
    said = _said(error, text) if isinstance(error, EngineError) else ""
    text = ELSEWHERE.sub("", text)
    for library, option in OPTIONS.items():
        text = library.sub(option, text)
    return visible(text + said)


def _said(error: EngineError, text: str) -> str:
    """Return what an engine said, if the error's text does not repeat it, and how much it had sampled."""
    said = "" if error.answer is None else words(error.answer.body)
    sampled = 0 if error.partial is None else len(error.partial.completion_ids)
    return (f"; it says: {said}" if said and said not in text else "") + (
        f"; {sampled} ids had been sampled" if sampled else ""
    )


def visible(text: str) -> str:
    r"""Return a text with its white space, and what a terminal would act on, in sight.

    >>> visible("a b\n\x1b[31m")
    'a b\\n\\x1b[31m'
    """
    return "".join(one if one == " " or one.isprintable() else _escaped(one) for one in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
