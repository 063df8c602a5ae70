"""Print errors as one line on stderr, in the words of the command line.

The message in an engine's error response may repeat the conversation. So errors, which get logged, do not
hold it; it is printed only for the person at the terminal, short enough for one line.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from html.parser import HTMLParser
from typing import Any, NoReturn

import orjson

from tito_core import TitoError
from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import ArgumentError, EngineError

BAD_INPUT, ENGINE_FAILED = 2, 3
"""Exit statuses of every command."""
OPTIONS: Mapping[str, str] = {
    "api_key": "--api-key",
    "base_url": "--base-url",
    "family": "--family",
    "sampling_masks": "--sampling-masks",
    "timeout": "--timeout",
    "vocab_size": "--vocab-size",
}
"""The options for arguments that the library's errors name as their `parameter`."""

LONGEST = 200
"""The most characters that are printed."""
READ = 1 << 16
"""The most characters of a response that are read."""
EMBEDDED_PREFIX = "tito-embedded-"
"""How the names of temporary folders with the embedded engine's family begin."""
TAG = re.compile(r"\s*<[a-z!/?]", re.IGNORECASE)
"""The beginning of an HTML page: proxies answer with pages."""
HIDDEN = frozenset(("script", "style", "head"))
"""Elements whose text a browser does not show. A page's title is read separately."""


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
        message = "" if error.answer is None else words(error.answer.body)
        answered = f"; it says: {message}" if message and message not in error.message else ""
        sampled = 0 if error.partial is None else len(error.partial.completion_ids)
        answered += f"; {sampled} ids had been sampled" if sampled else ""
    return visible(without_embedded_folder(without_embedded_url(with_option(text, parameter))) + answered)


def with_option(text: str, parameter: str, whose: str = "") -> str:
    """Return an error's text with the option in the place of the argument that it names.

    Args:
        text: The error's text.
        parameter: The argument that it names.
        whose: Words behind the option, for a reader who did not choose it.

    >>> with_option("correct the base_url", "base_url", " of the gateway")
    'correct --base-url of the gateway'
    """
    if parameter not in OPTIONS:
        return text
    return re.sub(rf"(?:\bthe )?(?<![\w/.])`?\b{parameter}\b`?", OPTIONS[parameter] + whose, text)


def without_embedded_url(text: str) -> str:
    """Return an error's text without the URL that stands for the embedded engine, which has no address.

    >>> without_embedded_url("POST http://embedded/v1/chat/completions answered 400")
    "POST the embedded engine's /v1/chat/completions answered 400"
    """
    return text.replace("http://embedded/", "the embedded engine's /")


def without_embedded_folder(text: str) -> str:
    """Return an error's text with `embedded` for the folder that stands for it while a command runs.

    >>> without_embedded_folder("/tmp/tito-embedded-a1_b/embedded: has no template x")
    'embedded: has no template x'
    """
    return re.sub(rf"[^\s:]*{EMBEDDED_PREFIX}\w+/embedded", "embedded", text)


def words(body: Any) -> str:
    """Return the message of an error response's `body`, which may be empty.

    >>> words({"error": {"message": "KV cache is gone", "code": 500}})
    'KV cache is gone'
    >>> words("<html><head><title>404 Not Found</title></head><body><h1>nginx</h1></body></html>")
    '404 Not Found'
    """
    text = " ".join(_text(body).split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST].rstrip()}..."


def _text(body: Any) -> str:
    if isinstance(body, bytes):
        return _text(body[:READ].decode(errors="replace"))
    if isinstance(body, str) and TAG.match(body):
        page = _Page()
        page.feed(body[:READ])
        page.close()
        return " ".join(page.title.split()) or page.first or body[:READ]
    if isinstance(body, str):
        return body[:READ]
    message = Complaint.of(body).message if isinstance(body, Mapping) else ""
    try:
        return message or ("" if body is None else orjson.dumps(body).decode())
    except TypeError:  # orjson writes no integer of more than 64 bits
        return str(body)


class _Page(HTMLParser):
    """Reads the title and the first text of a page, however broken it is."""

    def __init__(self) -> None:
        super().__init__()
        self.title = self.first = ""
        self.inside = ""
        """The element whose text is read now."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002  # the base class's
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self.inside:
            self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "title":
            self.title += data
        elif self.inside not in HIDDEN:
            self.first = self.first or data.strip()


def visible(text: str) -> str:
    r"""Return a text with control characters and unusual white space escaped, safe to print in a terminal.

    >>> visible("a b\n\x1b[31m")
    'a b\\n\\x1b[31m'
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode("ascii")
        for one in text
    )
