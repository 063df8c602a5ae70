"""Print errors as one line on stderr, in the words of the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NoReturn

from tito_core import TitoError
from tito_io.engines.protocol import ArgumentError, EngineError

from .engine_words import words

BAD_INPUT, ENGINE_FAILED = 2, 3
"""Exit statuses of every command."""
OPTIONS: Mapping[str, str] = {
    "api_key": "--api-key",
    "base_url": "--base-url",
    "family": "--family",
    "timeout": "--timeout",
    "vocab_size": "--vocab-size",
}
"""The options for arguments that the library's errors name as their `parameter`."""


def complain(text: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"tito: {visible(text)}\n")
    sys.stderr.flush()


def fail(error: TitoError, status: int) -> NoReturn:
    """Print an error and exit with `status`."""
    complain(error_text(error))
    sys.exit(status)


def error_text(error: TitoError) -> str:
    r"""Return an error as one line: arguments as options, followed by the engine's own message.

    >>> from tito_io.engines.protocol import EngineAnswer
    >>> answer = EngineAnswer(404, "no\nroute")
    >>> error_text(EngineError("check the base_url", answer, hint="see `answer`", parameter="base_url"))
    'check --base-url; it says: no route'
    """
    text, answered, parameter = str(error), "", ""
    if isinstance(error, EngineError | ArgumentError):  # the hint tells programs what is no use here
        text, parameter = error.message, error.parameter
    if isinstance(error, EngineError):
        answered = _engine_text(error)
    option = OPTIONS.get(parameter)
    if option is not None:
        text = re.sub(rf"(?:\bthe )?(?<![\w/.])`?\b{parameter}\b`?", option, text)
    return visible(text.replace("http://embedded/", "the embedded engine's /") + answered)


def _engine_text(error: EngineError) -> str:
    """Return the engine's message, unless the error repeats it, and how many ids it had sampled."""
    message = "" if error.answer is None else words(error.answer.body)
    sampled = 0 if error.partial is None else len(error.partial.completion_ids)
    return (f"; it says: {message}" if message and message not in error.message else "") + (
        f"; {sampled} ids had been sampled" if sampled else ""
    )


def visible(text: str) -> str:
    r"""Return a text with control characters and unusual white space escaped, safe to print in a terminal.

    >>> visible("a b\n\x1b[31m")
    'a b\\n\\x1b[31m'
    """
    return "".join(
        one
        if one == " " or one.isprintable()
        else one.encode("unicode_escape", "surrogatepass").decode("ascii")
        for one in text
    )
