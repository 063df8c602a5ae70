"""Parse the harmony format of gpt-oss: reasoning, content and tool calls.

A turn is a list of messages, `<|start|>HEADER<|message|>TEXT<|end|>`; the last one ends with `<|return|>` or,
if it is a call, with `<|call|>`. The header names a channel: `analysis` is reasoning; `final`, and
`commentary` without a recipient, are content. A call's header names a recipient, `to=functions.NAME`. The
generation prompt has opened the first header already.

OpenAI's own parser, the package openai-harmony, is what the tests compare with. It is not used here: it needs
the vocabulary in this process, and it fails on malformed output, which has been sampled by then.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import attrs

from .hermes import Mark, ParsedMessage

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, RETURN, CALLS = "<|end|>", "<|return|>", "<|call|>"
MARKERS = (START, CHANNEL, MESSAGE, CONSTRAIN, END, RETURN, CALLS)
ANY_MARKER = re.compile("|".join(map(re.escape, MARKERS)))

ANALYSIS = "analysis"
FUNCTIONS = "functions."
NAMED_CHANNEL = re.compile(r"<\|channel\|>\s*(\w*)")
NAMED_RECIPIENT = re.compile(r"\bto=([^\s<]+)")


@attrs.frozen
class HarmonyMessage:
    """One message of a turn.

    Attributes:
        header: The text of its header.
        text: Its text.
        end: The marker that ended it; empty where it was cut off.
        functions: The names that a recipient may be without `functions.`, as models write at times.
    """

    header: str
    text: str
    end: str
    functions: Collection[str] = ()

    @property
    def name(self) -> str:
        """The function that it calls; empty for other messages."""
        return self.recipient.removeprefix(FUNCTIONS) if self.recipient.startswith(FUNCTIONS) else ""

    @property
    def recipient(self) -> str:
        """The recipient; empty where that is the user."""
        match = NAMED_RECIPIENT.search(self.header)
        return match[1] if match else ""

    @property
    def hidden(self) -> bool:
        """Whether it is hidden from the user: reasoning, or a message to a tool that is not a function."""
        match = NAMED_CHANNEL.search(self.header)
        return bool(match and match[1] == ANALYSIS) or bool(self.recipient and not self.name)

    @property
    def call(self) -> tuple[str, str] | None:
        """Its name and arguments, if it is a call; one that was cut off, or is to a bare name, must be JSON.

        What is said to a built-in tool such as `python` is code, also if a function has that name.
        """
        name = self.name or (self.recipient if self.recipient in self.functions else "")
        whole = self.end == CALLS and name == self.name
        if not whole:
            with suppress(ValueError, RecursionError):
                whole = isinstance(json.loads(self.text), dict)
        return (name, self.text) if name and whole else None


def parse(
    text: str,
    marks: Sequence[Mark],
    *,
    opened: str = "",
    end: str = "",
    tools: bool = True,
    functions: Collection[str] = (),
) -> ParsedMessage:
    """Parse a turn at its markers.

    `opened` is the header that the prompt ends in, where it is more than a role, and `end` the stop id's
    marker, which is not in the text. What is not a well-formed call stays in the content. `functions` are the
    names of the tools, as far as they are known.

    >>> from .hermes import Tags
    >>> text = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>hi"
    >>> parse(text, Tags(pattern=ANY_MARKER).marks(text), end="<|return|>")
    ParsedMessage(reasoning='hm', content='hi', calls=())
    >>> text = ' to=functions.f<|channel|>commentary json<|message|>{"a":1}'
    >>> parse(text, Tags(pattern=ANY_MARKER).marks(text), end="<|call|>").calls
    (('f', '{"a":1}'),)
    """
    messages = [attrs.evolve(one, functions=functions) for one in _messages(text, marks, opened, end)]
    calls = [one.call for one in messages if tools and one.call]
    rest = [one for one in messages if not (tools and one.call)]
    reasoning, content = ([one.text for one in rest if one.hidden is hidden] for hidden in (True, False))
    return ParsedMessage(
        "\n".join(filter(None, reasoning)) or None, "\n".join(filter(None, content)), tuple(calls)
    )


def _messages(text: str, marks: Sequence[Mark], opened: str, end: str) -> Iterator[HarmonyMessage]:
    """Yield the messages of a turn."""
    header, within, begin = opened, opened.endswith(MESSAGE), 0
    last = Mark(end, len(text), len(text))
    for mark in (*marks, last):
        if mark.tag in (CHANNEL, CONSTRAIN):
            continue  # part of a header, or misplaced in a text
        if mark.tag == MESSAGE and not within:
            header, within, begin = header + text[begin : mark.start], True, mark.stop
        elif mark.tag != MESSAGE:
            yield from _ended(header, text[begin : mark.start], mark.tag, within=within)
            header, within, begin = "", False, mark.stop


def _ended(header: str, text: str, end: str, *, within: bool) -> Iterator[HarmonyMessage]:
    """Yield a message; of one that ends in its header, the text that is not a header."""
    if within:
        yield HarmonyMessage(header, text, end)
    elif text.strip() and CHANNEL not in header + text and not NAMED_RECIPIENT.search(header + text):
        yield HarmonyMessage("", text, end)
