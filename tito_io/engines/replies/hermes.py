"""Parse the Hermes format, which Qwen and many others write: reasoning, content and tool calls.

`<think>` and `</think>` enclose reasoning, for Mistral `[THINK]` and `[/THINK]`; `<tool_call>` and
`</tool_call>` the JSON of a call. A tag that is a token counts only where that token was sampled: the same
letters spelled out are text, as in an answer that explains the tags. What is not a well-formed call stays in
the content.
"""

from __future__ import annotations

import json
import re
from base64 import b32encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import repeat, zip_longest
from typing import Any

import attrs

THINK, THOUGHT, CALL, CALLED = "<think>", "</think>", "<tool_call>", "</tool_call>"
TAGS = (THINK, THOUGHT, CALL, CALLED)
BRACKETS = ("[THINK]", "[/THINK]")
"""Mistral's tags of reasoning, which count only where they are tokens."""
THINKS, THOUGHTS = zip((THINK, THOUGHT), BRACKETS, strict=True)


def any_of(tags: Iterable[str]) -> re.Pattern[str]:
    """Return what matches any of the tags."""
    return re.compile("|".join(map(re.escape, tags)))


ANY_TAG = any_of(TAGS)

HALVES = re.compile("[\ud800-\udfff]")
"""Halves of surrogate pairs: sampled JSON may spell one, and UTF-8 has no bytes for it."""

REAL = True
DECODER = json.JSONDecoder()
SEPARATORS = re.compile(r"[\s,:]*")


@attrs.frozen
class Mark:
    """A tag in a text, from `start` to `stop`."""

    tag: str
    start: int
    stop: int


@attrs.frozen
class Tags:
    """The tags of an output format in one vocabulary.

    Attributes:
        ids: The ids of those tags that are single tokens.
        line_breaks: The ids of tokens that are only line breaks.
        pattern: Finds the tags in a text.
    """

    ids: Mapping[str, int] = attrs.field(factory=dict)
    line_breaks: frozenset[int] = frozenset()
    pattern: re.Pattern[str] = ANY_TAG

    def thinking(self, prompt_ids: Sequence[int]) -> bool:
        """Whether the prompt ends inside reasoning, as generation prompts of reasoning models do.

        >>> Tags({THINK: 7}, frozenset([10])).thinking([1, 7, 10])
        True
        """
        tail = list(prompt_ids[-2:])
        if tail and tail[-1] in self.line_breaks:
            tail.pop()
        return bool(tail) and tail[-1] in (self.ids.get(tag) for tag in THINKS)

    def sampled(self, ids: Sequence[int]) -> list[str]:
        """Return the tags among sampled ids.

        >>> Tags({CALL: 8, CALLED: 9}).sampled([8, 1, 2, 9])
        ['<tool_call>', '</tool_call>']
        """
        names = {index: tag for tag, index in self.ids.items()}
        return [names[index] for index in ids if index in names]

    def runs(self, ids: Sequence[int]) -> list[list[int]]:
        """Return the ids before, between and after the sampled tags.

        >>> Tags({CALL: 8, CALLED: 9}).runs([1, 8, 2, 3, 9])
        [[1], [2, 3], []]
        """
        runs: list[list[int]] = [[]]
        for index in ids:
            if index in self.ids.values():
                runs.append([])
            else:
                runs[-1].append(index)
        return runs

    def count(self, text: str) -> int:
        """Return how many times a text spells a tag that is a token.

        >>> Tags({THINK: 7}).count("<think> and <tool_call>")
        1
        """
        return sum(match.group() in self.ids for match in self.pattern.finditer(text))

    def plain(self, text: str, ids: Sequence[int]) -> bool:
        """Whether every tag that the text spells was sampled as its token."""
        spelled = [match.group() for match in self.pattern.finditer(text) if match.group() in self.ids]
        return spelled == self.sampled(ids)

    def marks(self, text: str, spelled: Sequence[int] | None = None) -> list[Mark]:
        """Return the tags that count.

        `spelled` counts the text's tags that were spelled out before, between and after the sampled ones, as
        `count` finds them in each of `runs`; None where no tag was spelled out.

        >>> tags = Tags({CALL: 8, CALLED: 9})
        >>> [mark.start for mark in tags.marks("<tool_call> opens <tool_call></tool_call>", [1, 0, 0])]
        [18, 29]
        """
        real = iter(_pattern(spelled)) if spelled is not None else repeat(REAL)
        return [
            Mark(match.group(), match.start(), match.end())
            for match in self.pattern.finditer(text)
            if match.group() not in self.ids or next(real, False)
        ]


def _pattern(spelled: Sequence[int]) -> Iterator[bool]:
    """Yield, for each tag of a text in order, whether it was sampled as a token."""
    for place, count in enumerate(spelled):
        if place:
            yield True
        yield from [False] * count


def writable(text: str) -> str:
    r"""Return a text that can be written as UTF-8: each half of a surrogate pair becomes U+FFFD.

    >>> writable("a\ud83d") == "a\ufffd"
    True
    """
    return HALVES.sub("\ufffd", text)


def _writable_calls(calls: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((writable(name), writable(arguments)) for name, arguments in calls)


def _writable_ids(ids: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(one if one is None else writable(one) for one in ids)


@attrs.frozen
class ParsedMessage:
    """The parts of a completion. Every text is `writable`.

    Attributes:
        reasoning: The reasoning; None without any.
        content: The other text.
        calls: Names and arguments of tool calls; the arguments are JSON exactly as sampled.
        ids: The ids of the calls that were sampled with one; empty if none was.
        notices: What of the text was not read as it may have been meant.
    """

    reasoning: str | None = attrs.field(converter=attrs.converters.optional(writable))
    content: str = attrs.field(converter=writable)
    calls: tuple[tuple[str, str], ...] = attrs.field(default=(), converter=_writable_calls)
    ids: tuple[str | None, ...] = attrs.field(default=(), repr=False, converter=_writable_ids)
    notices: tuple[str, ...] = attrs.field(default=(), repr=False)

    def message(self, key: str) -> dict[str, Any]:
        """Return the assistant message; the ids of its calls are made from `key`, unless they were sampled.

        The content is never null: chat templates print null as a word, or fail.
        """
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning is not None:
            message["reasoning"] = self.reasoning
        if self.calls:
            named = [
                one or _call_id(key, place)
                for place, (_, one) in enumerate(zip_longest(self.calls, self.ids))
            ]
            message["tool_calls"] = [
                {"id": one, "type": "function", "function": {"name": name, "arguments": arguments}}
                for one, (name, arguments) in zip(named, self.calls, strict=True)
            ]
        return message


def _call_id(key: str, place: int) -> str:
    """Return an id of nine letters and digits: Mistral's templates reject any other.

    >>> _call_id("call-1", 0)
    'mte37ycto'
    """
    return b32encode(blake2b(f"{key}-{place}".encode()).digest())[:9].decode().lower()


def parse(text: str, marks: Sequence[Mark], *, thinking: bool = False, tools: bool = True) -> ParsedMessage:
    r"""Parse a text at its tags; `thinking` is True where it begins inside reasoning.

    >>> text = '<think>hm</think>\n\nSo:\n<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>'
    >>> parse(text, Tags().marks(text))
    ParsedMessage(reasoning='hm', content='So:', calls=(('f', '{"a":1}'),))
    """
    start = thought(text, marks, thinking=thinking)
    pieces, calls, begin = list[str](), list[tuple[str, str]](), start.begin
    tags = [mark for mark in marks if mark.start >= begin and mark.tag in (CALL, CALLED)] if tools else []
    for opening, closing in zip_longest(tags, tags[1:]):
        if opening.tag != CALL or (closing is not None and closing.tag != CALLED):
            continue  # no call, or one that another opens in
        call = _call(text[opening.stop : closing.start if closing else None])
        if call is not None:
            pieces.append(text[begin : opening.start])
            calls.append(call)
            begin = closing.stop if closing else len(text)
    pieces.append(text[begin:])
    return start.message(pieces, calls)


@attrs.frozen
class Thought:
    """The reasoning that a turn begins with.

    Attributes:
        text: The reasoning; None without any, or where it is open.
        begin: Where the rest begins: the answer, or the open reasoning.
        open: Whether the reasoning is never closed. It then ends where calls begin.
    """

    text: str | None = None
    begin: int = 0
    open: bool = False

    def message(
        self,
        pieces: Sequence[str],
        calls: Sequence[tuple[str, str]],
        ids: Sequence[str | None] = (),
    ) -> ParsedMessage:
        """Return the message of the texts around calls, and the calls."""
        reasoning = self.text
        if self.open:
            reasoning, pieces = pieces[0].strip("\n"), pieces[1:]
        if calls:
            pieces = [piece if piece.strip() else "" for piece in pieces]
        content = _joined(pieces, after=reasoning is not None)
        return ParsedMessage(reasoning or None, content, tuple(calls), tuple(ids))


def thought(text: str, tags: Sequence[Mark], *, thinking: bool) -> Thought:
    """Return the reasoning that a text begins with; with `thinking` the prompt opened it.

    Reasoning that is closed but not opened was opened by the prompt. Some models open it once more.
    """
    marks, begin, opened = [mark for mark in tags if mark.tag in THINKS + THOUGHTS], 0, thinking
    for mark in marks:
        if mark.tag in THOUGHTS or text[begin : mark.start].strip():
            break
        begin, opened = mark.stop, True
    if not opened and (not marks or marks[0].tag in THINKS):
        return Thought()
    end = next((mark for mark in marks if mark.tag in THOUGHTS), None)
    if end is None:
        return Thought(begin=begin, open=True)
    return Thought(text[begin : end.start].strip("\n"), end.stop)


def _joined(pieces: Sequence[str], *, after: bool) -> str:
    r"""Return the content around calls, without the line breaks that separate them; `after` reasoning or not.

    >>> _joined(["So:\n", "\n", "\nbye"], after=False)
    'So:\nbye'
    """
    opened = [piece.lstrip("\n") if place or after else piece for place, piece in enumerate(pieces)]
    closed = [*(piece.rstrip("\n") for piece in opened[:-1]), *opened[-1:]]
    return "\n".join(filter(None, closed))


def _call(body: str) -> tuple[str, str] | None:
    """Return the name and the arguments of a call, None where it is malformed.

    Arguments may be any JSON, as engines have it: the agent then tells the model what is wrong.

    >>> _call(' {"arguments": {"a": 1.0}, "name": "f"} '), _call('{"name": 1, "arguments": {}}')
    (('f', '{"a": 1.0}'), None)
    """
    try:
        if not isinstance(json.loads(body, parse_constant=_no_number), dict):
            return None
        found = list(members(body.strip()))
    except (ValueError, RecursionError):
        return None
    written = dict(found)
    name, arguments = written.get("name", ""), written.get("arguments", "")
    if len(written) < len(found) or not name.startswith('"') or not arguments:
        return None
    return json.loads(name), arguments


def members(text: str) -> Iterator[tuple[str, str]]:
    """Yield the members of a JSON object, each value as it is written.

    >>> dict(members('{"a": [1,  2], "b":{}}'))
    {'a': '[1,  2]', 'b': '{}'}
    """
    place = _skipped(text, 1)
    while text[place] != "}":
        key, place = DECODER.raw_decode(text, place)
        begin = _skipped(text, place)
        _, end = DECODER.raw_decode(text, begin)
        yield key, text[begin:end]
        place = _skipped(text, end)


def _skipped(text: str, place: int) -> int:
    """Return where the next key or value of an object begins."""
    match = SEPARATORS.match(text, place)
    return match.end() if match else place


def _no_number(word: str) -> float:
    """Reject NaN and Infinity, which Python's reader accepts."""
    raise ValueError(f"{word} is not JSON")
