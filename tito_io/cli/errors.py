"""Print errors as one line on stderr, in the words of the command line."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import NoReturn

from tito_core import TitoError
from tito_io.engines.protocol import EngineError

from .engine_words import words

BAD_INPUT, ENGINE_FAILED = 2, 3
"""Exit statuses of every command."""
OPTIONS: Mapping[re.Pattern[str], str] = {
    re.compile(r"\bSGLang\(vocab_size=\.\.\.\)"): "--vocab-size",
    re.compile(r"^vocab_size(?=: )"): "--vocab-size",
    re.compile(r"(?:\bthe )?(?<![\w/.])base_url\b"): "--base-url",
    re.compile(r"(?<![\w/.])api_key\b"): "--api-key",
    re.compile(r"`timeout`"): "--timeout",
    re.compile(r"as `family`, or a `tokenize_fn`"): "with --family",
    re.compile(r"with the `tokenize_fn` of a `[\w.]+\.Family`"): "with --family MODEL_FOLDER",
    re.compile(r"\bhttp://embedded(?=/)"): "the embedded engine's ",
}
"""Names of arguments in the library's errors, and the options for them."""


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
    >>> error_text(EngineError("check the base_url", EngineAnswer(404, "no\nroute"), hint="see `answer`"))
    'check --base-url; it says: no route'
    """
    text, answered = str(error), ""
    if isinstance(error, EngineError):  # its hint tells programs where to find what is printed here
        text, answered = error.message, _engine_text(error)
    for argument, option in OPTIONS.items():
        text = argument.sub(option, text)
    return visible(text + answered)


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
