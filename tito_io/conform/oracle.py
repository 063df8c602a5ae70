"""Find the right next prompt in a render of the whole conversation.

Nothing here is taken from the kernel. The templates of the vectors say in comments where each message's own
words begin and end; the oracle renders them with marks in the place of these comments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NoReturn

import attrs
from jinja2 import Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .toy_tokenizer import ToyTokenizer

Message = Mapping[str, Any]
COMMENT = re.compile(r"\{#-? (begin|end) ([\w.]+) -?#\}")
MARK = re.compile("\ue000(begin|end) ([0-9]+)\ue001")


class TemplateRaisedError(Exception):
    """The template calls `raise_exception`."""


@attrs.frozen
class Page:
    """A rendered conversation.

    Attributes:
        text: The text.
        words: Where each message's own words stand in it, as characters; lost messages are missing.
    """

    text: str
    words: Mapping[int, tuple[int, int]]

    @classmethod
    def of(cls, marked: str) -> Page:
        """Return the page in a text with marks."""
        text, places, at = "", {}, 0
        for match in MARK.finditer(marked):
            text += marked[at : match.start()]
            places[match[1], int(match[2])] = len(text)
            at = match.end()
        words = {
            index: (places["begin", index], place) for (name, index), place in places.items() if name == "end"
        }
        return cls(text + marked[at:], words)


@attrs.frozen
class Answer:
    """A right next prompt.

    Attributes:
        ids: All ids.
        spans: For each new message the positions of its content in `ids`: first, and after the last. None for
            a message without content.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int] | None, ...]


@attrs.frozen
class SampledTurn:
    """A turn as the oracle continues it.

    Attributes:
        prompt: Ids of its prompt.
        sampled: Ids that the model sampled, with the stop if there was one.
        cut: Whether it was cut short.
    """

    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    cut: bool = False


@attrs.frozen
class Oracle:
    """Renders one template with its tools and arguments.

    Attributes:
        template: The template, with its comments.
        tokenizer: The tokenizer.
        tools: Tools, None for none.
        arguments: Further variables of the template.
    """

    template: str
    tokenizer: ToyTokenizer
    tools: Sequence[Mapping[str, Any]] | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict)

    def page(self, messages: Sequence[Message], *, speak: bool) -> Page:
        """Render; `speak` asks for the generation prompt. Raises `TemplateRaisedError`."""
        variables = {"messages": messages, "tools": self.tools, "add_generation_prompt": speak}
        return Page.of(_marked(self.template).render({**self.arguments, **variables}))

    def prompt(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Return the ids of a prompt that is rendered whole."""
        return tuple(self.tokenizer.encode(self.page(messages, speak=True).text))

    def tail(self, messages: Sequence[Message], place: int) -> str | None:
        """Return what stands after the words of the turn at `place`; None if a new message is lost."""
        page = self.page(messages, speak=True)
        if place not in page.words:
            return None
        for index in range(place + 1, len(messages)):
            start, stop = page.words.get(index, (0, 0))
            if start == stop and messages[index].get("content"):
                return None
        return page.text[page.words[place][1] :]

    def text_after(self, messages: Sequence[Message], place: int) -> str:
        """Return what stands after the words of the turn at `place`; nothing if it is not written."""
        try:
            page = self.page(messages, speak=place < len(messages) - 1)
        except TemplateRaisedError:
            return ""
        return page.text[page.words[place][1] :] if place in page.words else ""

    def answers(
        self, turn: SampledTurn, stops: Sequence[int], messages: Sequence[Message], place: int
    ) -> tuple[Answer, ...]:
        """Return the right next prompts after a turn; nothing if a new message is lost.

        An odd stop may be kept before what the template writes, or be replaced by it. A turn that was cut may
        end with the beginning of its close.
        """
        tail = self.tail(messages, place)
        if tail is None:
            return ()
        ids = tuple(self.tokenizer.encode(tail))
        spans = self._spans(messages, place, ids)
        before = (*turn.prompt, *turn.sampled)
        count = 0 if turn.cut else sampled_of(turn.sampled, ids, stops)
        found = [_answer(before, ids, spans, count)]
        if not turn.cut and not count:
            found.append(_answer(before[:-1], ids, spans, 0))
        begun = sampled_of(turn.sampled, ids, ()) if turn.cut else 0
        if begun:  # of its close, or text that is written alike
            found.append(_answer(before, ids, spans, begun))
        return tuple(found)

    def _spans(
        self, messages: Sequence[Message], place: int, ids: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """Return where the contents of new messages stand among the ids of the tail."""
        page = self.page(messages, speak=True)
        text, begin = page.text, page.words[place][1]
        ends = [0, *accumulate(len(self.tokenizer.bytes_of(number)) for number in ids)]
        spans: list[tuple[int, int] | None] = []
        for index in range(place + 1, len(messages)):
            start, stop = (len(text[begin:at].encode()) for at in page.words[index])
            inside = [at for at in range(len(ids)) if ends[at] < stop and ends[at + 1] > start]
            spans.append((inside[0], inside[-1] + 1) if inside else None)
        return spans


def sampled_of(sampled: Sequence[int], tail: Sequence[int], stops: Sequence[int]) -> int:
    """Return how many ids of the tail the model has sampled already; 0 after an odd stop.

    A model that was stopped by the first stop that the template writes has ended its turn: all up to there
    counts, sampled or not. Else the longest end of what was sampled that begins the tail.

    >>> sampled_of([5, 7], [7, 10, 1], stops=[7]), sampled_of([5, 46, 7], [10, 7, 10, 1], stops=[7])
    (1, 2)
    >>> sampled_of([5, 8], [7, 10, 1], stops=[7, 8])
    0
    """
    first = next((place + 1 for place, number in enumerate(tail) if number in stops), 0)
    by_stop = first if first and sampled and sampled[-1] == tail[first - 1] else 0
    sizes = range(min(len(sampled), len(tail)), by_stop, -1)
    return next((size for size in sizes if tuple(sampled[-size:]) == tuple(tail[:size])), by_stop)


def _answer(
    before: tuple[int, ...], tail: tuple[int, ...], spans: Sequence[tuple[int, int] | None], count: int
) -> Answer:
    moved = len(before) - count
    placed = [None if span is None else (span[0] + moved, span[1] + moved) for span in spans]
    return Answer((*before, *tail[count:]), tuple(placed))


@cache
def _marked(template: str) -> Template:
    """Return a template that writes marks in the place of its comments."""
    return environment().from_string(COMMENT.sub(r"{{- mark('\1', \2) -}}", template))


def without_comments(template: str) -> str:
    """Return a template that writes the same without the comments, which say where the answer begins.

    >>> without_comments("{{- 'a' -}}{#- begin loop.index0 -#}{{- message.content -}}{#- end loop.index0 -#}")
    "{{- 'a' -}}{{- message.content -}}"
    """
    return COMMENT.sub("", template)


def environment() -> ImmutableSandboxedEnvironment:
    """Return the Jinja environment that the README of the vectors describes."""
    jinja = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    jinja.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    jinja.globals["raise_exception"] = _raise
    jinja.globals["mark"] = "\ue000{} {}\ue001".format
    return jinja


def _raise(text: str) -> NoReturn:
    raise TemplateRaisedError(text)
