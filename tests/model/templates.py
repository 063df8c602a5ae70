"""Chat templates as functions from messages to a page: the text, and who wrote each part of it.

See docs/concepts.md ("Seam", "Bridge") for what stands between two turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tests.model.messages import Message, arguments, calls, text_or_parts
from tests.model.tokenizers import Token, Tokenizer
from tito_core import TemplateRefused

Range = tuple[int, int]
NOWHERE = (0, 0)


@dataclass
class Page:
    """What a template wrote. All ranges are half-open ranges of characters.

    `bodies` are the messages' own words. `wholes` are all that was written for one: header, words, close.
    `lost` are messages of which words are missing. `media` are placeholders, in order.
    `prompt` is where the generation prompt begins.
    """

    text: str = ""
    bodies: dict[int, Range] = field(default_factory=dict)
    wholes: dict[int, Range] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    media: list[Range] = field(default_factory=list)
    prompt: int | None = None

    def write(self, text: str) -> Range:
        """Write text, and return where it stands."""
        start, self.text = len(self.text), self.text + text
        return start, len(self.text)


class Template(Protocol):
    """A chat template, with the keys of messages that it reads beside `IDENTITY`."""

    @property
    def reads(self) -> frozenset[str]:
        """Keys that it reads beside `IDENTITY`."""

    def page(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Page:
        """Render a conversation. Raises `TemplateRefused`."""


# --- what a template is shown --------------------------------------------------------------------------


def shown(messages: Sequence[Message], change: Callable[[Message], Message]) -> list[list[Message]]:
    """Return a conversation with the arguments of calls as they came, as objects, and as text."""
    forms: list[Callable[[Message], Any]] = [
        lambda c: c["function"].get("arguments"),
        lambda c: (
            given if isinstance(given := arguments(c), str) else json.loads(json.dumps(given, default=float))
        ),
        lambda c: given if isinstance(given := c["function"].get("arguments"), str) else json.dumps(given),
    ]
    return [
        [
            change(
                {
                    **m,
                    "tool_calls": [
                        {**c, "function": {**c["function"], "arguments": form(c)}} for c in calls(m)
                    ],
                }
                if calls(m)
                else m
            )
            for m in messages
        ]
        for form in forms
    ]


def readings(messages: Sequence[Message]) -> Iterator[list[list[Message]]]:
    """Yield ways to show a conversation to a template; a group counts only where each before loses words.

    A lone text part is its string. Texts are lists of one part where the template takes no strings. Media are
    bare kinds.
    """

    def bare(m: Message) -> Message:
        content = text_or_parts(m.get("content"))
        if isinstance(content, list):
            content = [p if p.get("type") == "text" else {"type": kind(p)} for p in content]
        return {**m, "content": content} if "content" in m else m

    def listed(m: Message) -> Message:
        text = m.get("content")
        return {**m, "content": [{"type": "text", "text": text}]} if isinstance(text, str) else m

    plainly = [bare(m) for m in messages]
    for change in (lambda m: m, listed):
        yield shown(plainly, change)


def kind(part: Message) -> str:
    """Return the kind of a medium, such as `image`."""
    return next(one for one in ("image", "audio", "video") if one in part["type"])


# --- what it writes after a turn -----------------------------------------------------------------------


@dataclass
class Tail:
    """What a template writes after a turn: ids, and how many of them are close and generation prompt.

    `wholes` and `bodies` have the range of ids of each new message, `media` those of placeholders.
    It is `clear` where no id is shared by what two of them wrote. `last` is the last id of the turn's words.
    """

    ids: list[int]
    closed: int
    prompt: int
    wholes: list[Range]
    bodies: list[Range]
    media: list[Range]
    clear: bool
    last: list[int]


def tails(
    template: Template, tokenizer: Tokenizer, messages: Sequence[Message], matched: int
) -> list[Tail] | str:
    """Return what may rightly follow the first `matched` messages of a conversation, or why nothing may."""
    why = "TEMPLATE_REFUSED"
    for group in readings(messages):
        found = []
        for way in group:
            try:
                page = template.page(way, add_generation_prompt=True)
                silent = template.page(way, add_generation_prompt=False)
            except TemplateRefused:
                continue
            why = "SWALLOWED"
            if is_whole(page, matched, len(messages)):
                found.append(tail(page, silent, tokenizer, matched, len(messages)))
        if found:
            return found
    return why


def is_whole(page: Page, matched: int, count: int) -> bool:
    """Return whether the turn and all that is new stand on the page, in their order."""
    places = [page.bodies.get(index) for index in range(matched - 1, count)]
    given = [place for place in places if place is not None]
    return (
        len(given) == len(places) and given == sorted(given) and page.lost.isdisjoint(range(matched, count))
    )


def tail(page: Page, silent: Page, tokenizer: Tokenizer, matched: int, count: int) -> Tail:
    """Cut the page after the words of the turn, and tokenize what follows by itself."""
    start = page.bodies[matched - 1][1]
    tokens = tokenizer.tokens(page.text[start:])
    # What the silent page has not is there only because the model is to speak.
    pairs = enumerate(zip(page.text, silent.text, strict=False))
    spoken = next((i for i, (a, b) in pairs if a != b), min(len(page.text), len(silent.text)))
    prompt = spoken if page.prompt is None else page.prompt
    new = range(matched, count)

    def ids(place: Range | None) -> Range:
        return covered(tokens, (place or NOWHERE)[0] - start, (place or NOWHERE)[1] - start)

    close = page.wholes.get(matched - 1, NOWHERE)[1] - start
    borders = [close, prompt - start, *(place - start for i in new for place in places(page, i))]
    return Tail(
        ids=[number for number, _, _ in tokens],
        closed=len([one for one in tokens if one[2] <= close]),
        prompt=len([one for one in tokens if one[2] > prompt - start]),
        wholes=[ids(page.wholes.get(index)) for index in new],
        bodies=[ids(page.bodies.get(index)) for index in new],
        media=[ids(place) for place in page.media if place[0] >= start],
        clear={place for place in borders if place > 0} <= {*(stop for _, _, stop in tokens)}
        and prompt == spoken
        and prompt - start in {0, *(stop for _, _, stop in tokenizer.tokens(silent.text[start:]))},
        last=tokenizer.encode(page.text[slice(*page.bodies[matched - 1])])[-1:],
    )


def places(page: Page, index: int) -> tuple[int, ...]:
    """Return where a message and its words begin and end."""
    return (*page.wholes.get(index, NOWHERE), *page.bodies.get(index, NOWHERE))


def covered(tokens: Sequence[Token], start: int, stop: int) -> Range:
    """Return the ids that write any character from `start` to `stop`; an empty range where there is none."""
    places = [i for i, (_, a, b) in enumerate(tokens) if a < stop and b > start]
    before = len([one for one in tokens if one[2] <= start])
    return (places[0], places[-1] + 1) if places and start < stop else (before, before)
