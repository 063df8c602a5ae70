"""Find the message of each id of a rendered conversation, for any chat template.

Contents are found by rendering a word in place of each. They are believed only if the two texts are the same
but for the contents. Where anything is unclear, the ids are returned without owners.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from attrs import frozen

from tito_core import InputError, TemplateRefused
from tito_core.message import is_media, is_multimodal, texts_in
from tito_io.families.rendering import Objects
from tito_io.families.tokenizer_family import TokenizerBound, TokenizerFamily

NO_MESSAGE = -1
Plain = dict[str, Any]
Range = tuple[int, int]


@frozen
class Attribution:
    """The ids of a rendered conversation, and whose they are.

    Attributes:
        ids: The ids.
        owners: For each id the position of its message, -1 for what belongs to none.
        content: For each id whether it is a message's content, and not the template's. An assistant's content
            is what a model samples of it, the stop included. Empty if it is unknown.
        sampled: For each id whether it is an assistant's content. Empty if it is unknown.
    """

    ids: list[int]
    owners: list[int]
    content: list[bool]
    sampled: list[bool]


@frozen
class Block:
    """The place of a message in a text, as positions of characters."""

    start: int
    content_start: int
    content_stop: int
    stop: int

    def has(self, start: int, stop: int) -> bool:
        """Return whether a piece of the text has any of the content."""
        return start < self.content_stop and stop > self.content_start


def attributed(
    family: TokenizerFamily,
    messages: Sequence[Plain],
    *,
    tools: Objects = None,
    add_generation_prompt: bool = False,
    **template_args: Any,
) -> Attribution:
    """Render `messages` and find out whose each id is.

    It renders all of them once or twice more, and each of them once or twice. The generation prompt belongs
    to none, and so does what the template writes before the first message, where that is known. A stop
    belongs to the assistant that it ends, even where it opens the next message. An id that ends in a message
    is the message's.

    Args:
        family: The tokenizer and its template.
        messages: The conversation, as plain data.
        tools: Tools that the template renders, None for none.
        add_generation_prompt: Whether the ids end with the beginning of an assistant's turn.
        template_args: Further variables for the template.

    Raises:
        TemplateRefused: The template rejects the messages.
    """
    tokenize = family.tokenize_fn(tools=tools, **template_args)
    text = tokenize.text(messages, add_generation_prompt=add_generation_prompt)
    ids = family.encode(text)
    try:
        offsets = _offsets(family, text, ids)
        close = family.suffix(tools=tools, **template_args)
        # The first id of the close is a stop, too, unless it is that of a text.
        named = [one for one in close[:1] if one in family.tokenizer.encodes.added_tokens_decoder]
        stops = {*family.stop_ids, *named}
        ends = [offset for one, offset in zip(ids, offsets, strict=True) if one in stops]
        blocks = _Conversation(tokenize, messages, text, ends, family.decode(close)).blocks(
            add_generation_prompt=add_generation_prompt
        )
    except (_UnclearError, TemplateRefused, InputError):
        return Attribution(ids, [NO_MESSAGE] * len(ids), [], [])
    return _by_offsets(ids, offsets, blocks, [message["role"] == "assistant" for message in messages])


def _by_offsets(
    ids: list[int], offsets: Sequence[Range], blocks: Sequence[Block], speaks: Sequence[bool]
) -> Attribution:
    owners = [_owner(blocks, stop) for _, stop in offsets]
    content = [
        owner != NO_MESSAGE and blocks[owner].has(start, stop)
        for owner, (start, stop) in zip(owners, offsets, strict=True)
    ]
    sampled = [said and speaks[owner] for said, owner in zip(content, owners, strict=True)]
    return Attribution(ids, owners, content, sampled)


def _owner(blocks: Sequence[Block], stop: int) -> int:
    """Return whose an id is that ends at `stop`."""
    place = bisect_left(blocks, stop, key=lambda block: block.stop)
    return place if place < len(blocks) and blocks[place].start < stop else NO_MESSAGE


def _offsets(family: TokenizerFamily, text: str, ids: list[int]) -> list[Range]:
    """Return the characters of each id, as fast tokenizers know them."""
    tokenizer = family.tokenizer.encodes
    _require(getattr(tokenizer, "is_fast", False) and callable(tokenizer))
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    _require(list(found["input_ids"]) == ids)
    return list(found["offset_mapping"])


class _UnclearError(Exception):
    """It is not clear where the messages stand."""


def _require(clear: object) -> None:
    if not clear:
        raise _UnclearError


class _Conversation:
    """Messages and their text, and the same messages with a word in place of each content.

    The contents of assistants stay as they are: what was sampled is found by the template's generation prompt
    before it, and by the last stop in it.
    """

    def __init__(
        self,
        tokenize: TokenizerBound,
        messages: Sequence[Plain],
        text: str,
        ends: Sequence[Range],
        close: str,
    ) -> None:
        self.tokenize = tokenize
        self.messages = messages
        self.text = text
        self.ends = ends
        self.close = close
        self.others = [place for place, one in enumerate(messages) if one["role"] != "assistant"]
        self.short = [
            {**one, "content": _in_form_of(one.get("content"), _word(place))} if place in self.others else one
            for place, one in enumerate(messages)
        ]

    def blocks(self, *, add_generation_prompt: bool) -> list[Block]:
        """Return where the messages stand."""
        short = self.tokenize.text(self.short, add_generation_prompt=add_generation_prompt)
        contents = self._contents(short)
        blocks: list[Block] = []
        for place in range(len(self.messages)):
            if place in contents:
                blocks.append(self._given(place, contents[place], blocks[-1].stop if blocks else None))
                continue
            is_last = place + 1 == len(self.messages)
            _require(place - 1 in contents and (is_last or place + 1 in contents))
            end = self._end(add_generation_prompt) if is_last else contents[place + 1][0]
            blocks.append(self._sampled(place, blocks[-1].stop, contents[place - 1][1], end))
        return blocks

    def _end(self, add_generation_prompt: bool) -> int:
        """Return where the messages end: at the text's end, or where its generation prompt begins."""
        if not add_generation_prompt:
            return len(self.text)
        whole = self.tokenize.text(self.messages, add_generation_prompt=False)
        _require(self.text.startswith(whole))
        return len(whole)

    def _contents(self, short: str) -> dict[int, Range]:
        """Return where the contents stand; the text between them must be that between the words."""
        first, *between = self._between(short)
        _require(self.text.startswith(first))
        at, found = len(first), {}
        for place, following in zip(self.others, between, strict=True):
            said = self._said(self.messages[place])
            forms = (said, said.strip(), json.dumps(said, ensure_ascii=False)[1:-1])
            stops = [at + len(one) for one in forms if self.text.startswith(one + following, at)]
            _require(stops)
            found[place] = at, stops[0]
            at = stops[0] + len(following)
        _require(at == len(self.text))
        return found

    def _said(self, message: Plain) -> str:
        """Return a message's texts, and between them what the template writes for its images."""
        if not is_multimodal([message]):
            return "".join(texts_in(message))
        parts = message["content"]
        return "".join(self._image if is_media(part) else part.get("text", "") for part in parts)

    @cached_property
    def _image(self) -> str:
        """What the template writes for an image between two words."""
        before, after = ({"type": "text", "text": _word(place)} for place in range(2))
        shown = {"role": "user", "content": [before, {"type": "image"}, after]}
        text = self.tokenize.text([shown], add_generation_prompt=False)
        return text.partition(_word(0))[2].partition(_word(1))[0]

    def _between(self, short: str) -> list[str]:
        """Return the text before, between and after the words."""
        pieces: list[str] = []
        for place in self.others:
            _require(short.count(_word(place)) == 1 and _word(place) not in self.text)
            before, _, short = short.partition(_word(place))
            pieces.append(before)
        return [*pieces, short]

    def _given(self, place: int, content: Range, before: int | None) -> Block:
        """Return where a message stands that was not sampled."""
        start, stop = content
        try:
            closing = self._after(place)
        except TemplateRefused:  # a system message alone, for instance: it may be closed as turns are
            closing = self.close
        shared = _shared(closing, self.text[stop:])
        return Block(self._opening(start) if before is None else before, start, stop, stop + shared)

    def _sampled(self, place: int, start: int, before: int, end: int) -> Block:
        """Return where an assistant's message stands, after a content that stops at `before`."""
        opener = _shared(self._after(place - 1, add_generation_prompt=True), self.text[before:])
        began, ended = self._last_stop(start, end)
        rest = self.close.removeprefix(self.text[began:ended])
        closed = self.text.startswith(rest, ended) and rest != self.close
        return Block(start, before + opener, ended, ended + len(rest) * closed)

    def _last_stop(self, start: int, end: int) -> Range:
        """Return the last stop in a piece of the text, the first one of several in a row; else its end."""
        inside = [one for one in self.ends if start < one[1] <= end]
        found = inside.pop() if inside else (end, end)
        while inside and inside[-1][1] == found[0]:
            found = inside.pop()
        return found

    def _opening(self, content: int) -> int:
        """Return where the first message starts: with what the template writes before a second one."""
        first = self.short[0]
        again = {**first, "content": _in_form_of(first["content"], _word(len(self.messages)))}
        try:
            text = self.tokenize.text([first, again], add_generation_prompt=False)
            closing = self._after(0)
        except TemplateRefused:
            return 0
        between = text.partition(_word(0))[2].partition(_word(len(self.messages)))[0]
        opener = between[_shared(closing, between) :]
        return content - len(opener) if self.text[:content].endswith(opener) else 0

    def _after(self, place: int, *, add_generation_prompt: bool = False) -> str:
        """Return what the template writes after a word, if it is the last message."""
        text = self.tokenize.text(self.short[: place + 1], add_generation_prompt=add_generation_prompt)
        return text.partition(_word(place))[2]


def _in_form_of(content: Any, text: str) -> Any:
    """Return a text as a string or as a list of one part; some templates for images take lists alone."""
    return [{"type": "text", "text": text}] if isinstance(content, list) else text


def _shared(first: str, second: str) -> int:
    """Return how many characters two texts share at their beginning.

    >>> _shared("</tool>", "</tools>")
    6
    """
    pairs = enumerate(zip(first, second, strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(first), len(second)))


def _word(place: int) -> str:
    """Return what stands for the content of a message.

    >>> _word(3)
    'Quartz3sky'
    """
    return f"Quartz{place}sky"
