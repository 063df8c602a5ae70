"""What the tests of the dialects share: sampled turns, their deltas in any split, messages of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any

import attrs
import orjson
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tito_io.dialects import ParsedRequest, SampledMessage, StreamReading, TurnAnswer
from tito_io.dialects.protocol import Dialect, ReplyStamp
from tito_io.engines.protocol import Delta, Usage
from tito_io.engines.replies.hermes import (
    CALL,
    CALLED,
    THINKS,
    THOUGHTS,
    Tags,
    any_of,
    parse,
)

ALL_TAGS = (*THINKS, *THOUGHTS, CALL, CALLED)
TAGS = Tags({tag: place for place, tag in enumerate(ALL_TAGS, 1)}, pattern=any_of(ALL_TAGS))
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look", "description": "Look it up", "parameters": {"type": "object"}},
}
HELLO: dict[str, Any] = {"role": "user", "content": "hi"}
STAMP = ReplyStamp(id="resp_1", created=17, model="m")
GOOD_CALL = '\n{"name": "look", "arguments": {"a": 1}}\n'

Token = tuple[int, str]
"""An id and its text."""


@attrs.frozen
class Sampled:
    """A turn as an engine samples it."""

    tokens: tuple[Token, ...]
    thinking: bool
    """Whether its prompt left a thought open."""

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(index for index, _ in self.tokens)

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.tokens)

    def message(self, *, tools: bool) -> dict[str, Any]:
        """Return the message that the adapters make of it."""
        runs: list[str] = [""]
        for index, text in self.tokens:
            runs.extend([""]) if index in TAGS.ids.values() else runs.append(runs.pop() + text)
        marks = TAGS.marks(self.text, [TAGS.count(run) for run in runs])
        return parse(self.text, marks, thinking=self.thinking, tools=tools).message("call-1")


def spelled(text: str) -> list[Token]:
    """Return a text letter by letter, in ids of letters."""
    return [(100 + ord(letter) % 50, letter) for letter in text]


def token(tag: str) -> list[Token]:
    """Return a tag as the token that it is."""
    return [(TAGS.ids[tag], tag)]


WORDS = st.sampled_from(
    ("so", " it is", "\n", "\n\n", " ", "<", "</", "<tool", "ünï🙂", "{}", "a\nb", "<|", "to")
)
LETTERS = st.builds(spelled, WORDS)
SPELLED_TAG = st.builds(spelled, st.sampled_from((*ALL_TAGS, "<|channel|>", "to=f")))
CALLS = st.builds(
    lambda body, closed: [*token(CALL), *spelled(body), *(token(CALLED) if closed else [])],
    st.sampled_from((GOOD_CALL, GOOD_CALL, "", "{", '{"name": "f", "arguments": {}}')),
    st.booleans(),
)


def joined(parts: Sequence[list[Token]]) -> list[Token]:
    return [one for part in parts for one in part]


@st.composite
def sampled(draw: DrawFn) -> Sampled:
    """Draw a turn: perhaps a thought, then text and calls, and letters that spell tags in both."""
    within = st.lists(LETTERS | SPELLED_TAG | CALLS | st.sampled_from(THINKS).map(token), max_size=4).map(
        joined
    )
    after = st.lists(LETTERS | LETTERS | CALLS | SPELLED_TAG, max_size=6).map(joined)
    kind = draw(st.sampled_from(("none", "none", "own", "open", "endless")))
    said = draw(after)
    if kind == "none":
        return Sampled(tuple(said), thinking=False)
    opened = (
        []
        if kind == "open"
        else [
            *draw(st.sampled_from(([], spelled("\n"), spelled(" ")))),
            *token(draw(st.sampled_from(THINKS))),
        ]
    )
    closed = [] if kind == "endless" else [*token(draw(st.sampled_from(THOUGHTS))), *said]
    return Sampled((*opened, *draw(within), *closed), thinking=kind == "open")


def together(tokens: Sequence[Token], cuts: Sequence[int]) -> Iterator[Delta]:
    """Yield deltas of whole ids with their text, as engines that decode id by id do."""
    for begin, stop in _spans(len(tokens), cuts):
        some = tokens[begin:stop]
        ids = tuple(index for index, _ in some)
        yield Delta(ids=ids, logprobs=(-0.5,) * len(ids), text="".join(text for _, text in some))


def apart(turn: Sampled, cuts: Sequence[int], text_cuts: Sequence[int]) -> Iterator[Delta]:
    """Yield deltas in which ids and text have nothing to do with each other."""
    spans, texts = list(_spans(len(turn.ids), cuts)), list(_spans(len(turn.text), text_cuts))
    for place in range(max(len(spans), len(texts))):
        ids = turn.ids[slice(*spans[place])] if place < len(spans) else ()
        text = turn.text[slice(*texts[place])] if place < len(texts) else ""
        yield Delta(ids=ids, text=text)


def _spans(size: int, cuts: Sequence[int]) -> Iterator[tuple[int, int]]:
    places = sorted({0, size, *(cut for cut in accumulate(cuts) if cut < size)})
    yield from pairwise(places)


CUTS = st.lists(st.integers(1, 5), max_size=60)


def answer(message: dict[str, Any], ids: Sequence[int] = (7, 8), **fields: Any) -> TurnAnswer:
    """Return the answer that a message makes."""
    called = "tool_calls" if message.get("tool_calls") else "stop"
    given = {"finish_reason": called, "completion_ids": tuple(ids), "logprobs": (-0.5,) * len(ids), **fields}
    usage = Usage(prompt_tokens=10, completion_tokens=len(ids), cached_tokens=6)
    said = SampledMessage(message=message, **given)
    return TurnAnswer(id="resp_1", created=17, model="m", choices=(said,), prompt_ids=(5, 6), usage=usage)


def streamed(
    dialect: Dialect,
    asked: ParsedRequest,
    deltas: Iterator[Delta],
    end: TurnAnswer,
    reading: StreamReading | None = None,
) -> list[dict[str, Any]]:
    """Return the events of a stream."""
    stream = dialect.stream(asked, STAMP)
    stream.reading = reading
    return events(b"".join([stream.start(), *map(stream.delta, deltas), stream.finish(end)]))


def events(raw: bytes) -> list[dict[str, Any]]:
    """Return the data of server-sent events, each named as its data say."""
    found = []
    for block in filter(None, raw.decode().split("\n\n")):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if "data" in lines and lines["data"] != "[DONE]":
            data = orjson.loads(lines["data"])
            assert lines.get("event", data.get("type")) == data.get("type")
            found.append(data)
    return found


# Messages of any kind, as engines give them.

TEXTS = st.text(alphabet=st.sampled_from('ab \n{}"\\<>/é🙂\u2028'), max_size=12)
NUMBERS = st.sampled_from(
    ("1", "1.0", "-0.0", "1e400", "0.1000000000000000055", "12345678901234567890123", "2e3")
)
ARGUMENTS = st.one_of(
    st.sampled_from(("", "{}", '{"a": 1}', '{"a": ', "[1]", '{"a": 1, "a": 2}', '{"a": NaN}', "null", '"x"')),
    st.sampled_from(
        ('{"tito_raw_arguments": "x"}', '{"a":"\\ud83d"}', '{"b": true,\n"a": [1, {"c": null}]}')
    ),
    NUMBERS.map('{{"n": {}}}'.format),
    st.integers(98, 102).map(lambda depth: '{"a": ' + "[" * depth + "]" * depth + "}"),
    st.dictionaries(TEXTS, TEXTS | st.integers() | st.booleans(), max_size=3).map(
        lambda found: orjson.dumps({key: str(value) for key, value in found.items()}).decode()
    ),
    TEXTS,
)


@st.composite
def messages(draw: DrawFn) -> dict[str, Any]:
    """Draw an assistant message."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.none() | TEXTS)}
    thought = draw(st.none() | TEXTS)
    if thought is not None:
        message[draw(st.sampled_from(("reasoning", "reasoning_content")))] = thought
    calls = draw(st.lists(st.tuples(st.sampled_from(("look", "f", "é")), ARGUMENTS), max_size=3))
    if calls:
        message["tool_calls"] = [
            {"id": f"call-{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    return message
