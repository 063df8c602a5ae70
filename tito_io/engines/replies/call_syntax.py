r"""The syntax in which a chat template writes tool calls, learned from the template, and read back from text.

The template is asked to write a turn that says a word, and a turn that calls two functions. What the second
has in place of the word is the syntax. It has one of three kinds:

- an object: `{"name": NAME, "arguments": ARGUMENTS}`, whatever the keys are called and stands around it;
- a name, and then the arguments as JSON: `<|tool_call_begin|>NAME<|tool_sep|>{"place": ...}`;
- a name, and then each argument by itself: `<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>`.

White space around the syntax does not count. Tags of the syntax that are tokens count only where the token
was sampled: what a model spells in letters is text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any, Literal, TypeAlias

import attrs

from tito_core import Message
from tito_io.engines.constraint import tool_name, tool_schema

from .hermes import DECODER, members

Span: TypeAlias = tuple[int, int]

SAID = "Zebra"
"""What the turn without calls says."""
ASKED, NEXT = "Quagga.", "Okapi."
"""What the user says before the turn, and after it."""
NAMES = ("consult_almanac", "consult_atlas")
WORDS = ("tidewater", "moorland")
COUNTS = (41, 73)
KEYS = ("place", "count")
IDS = ("a1b2c3d40", "a1b2c3d41")
"""Ids of the calls: some templates take nine letters and digits alone."""
NAMED_IDS = tuple(f"functions.{name}:{place}" for place, name in enumerate(NAMES))
"""Ids with the name and the number: Kimi K2 Thinking's template writes them in the place of the name."""
ID = "\ue000"
"""Stands for the id of a call in a learned text."""
A_NAME = r"(?P<name>[\w.:/-]{0,127}\w)"
AN_ID = r"(?P<id>[\w.:-]{1,128})"
A_WORD = re.compile(r"[\w.:/-]+")
NUMBER = re.compile(r":\d")
A_KEY = r"(?P<key>[^<>=\n]{1,256}?)"
MOST_BROKEN = 64
"""How many calls of a turn may be broken: after more of them nothing is read, which bounds the time."""
LONGEST_LITERAL, DEEPEST_LITERAL = 65_536, 32
"""The longest argument, and its most brackets, that is read as one of Python's literals.

Some templates write those. Python's own reader must not be given what nests deeper: it then fails later, at
another text (`SystemError`, CPython 3.11).
"""
TAG = r"<[^<>\s]{1,60}>|\[/?[A-Z_]{2,30}\]"
PIECES = re.compile(rf"{TAG}|.", re.DOTALL)
"""A tag, or else one letter."""
TYPES: Sequence[tuple[str, type]] = (
    ("null", type(None)),
    ("boolean", bool),
    ("integer", int),
    ("number", int),
    ("number", float),
    ("object", dict),
    ("array", list),
    ("string", str),
)
"""The types of a schema, and Python's for the values."""


def calling(count: int, ids: Sequence[str] = IDS, *, as_text: bool = False) -> Message:
    """Return a turn that calls so many functions; with `as_text` their arguments are JSON text.

    It has no content: an engine may make a list of an empty text, which Kimi K2's template prints.
    """
    calls = []
    for place in range(count):
        given: Any = json.dumps(_given(place)) if as_text else _given(place)
        function = {"name": NAMES[place], "arguments": given}
        calls.append({"id": ids[place], "type": "function", "function": function})
    return {"role": "assistant", "tool_calls": calls}


def _given(place: int) -> dict[str, Any]:
    """Return the arguments of a call of the turn."""
    return {KEYS[0]: WORDS[place], KEYS[1]: COUNTS[place]}


def around(turn: Message, *, answered: bool = False) -> list[Message]:
    """Return a conversation with a turn, which is the last message unless it is `answered`."""
    after: list[Message] = [{"role": "user", "content": NEXT}] if answered else []
    return [{"role": "user", "content": ASKED}, turn, *after]


def stand_in_tools() -> list[dict[str, Any]]:
    """Return the tools that the turn calls."""
    properties = {"place": {"type": "string"}, "count": {"type": "integer"}}
    schema = {"type": "object", "properties": properties}
    functions = [{"name": name, "description": "Not called.", "parameters": schema} for name in NAMES]
    return [{"type": "function", "function": function} for function in functions]


@attrs.frozen
class Pairs:
    """How each argument is written by itself: patterns of what stands before, inside and after it.

    Attributes:
        begin: Before the key.
        middle: Between key and value.
        end: After the value.
        lines: Whether a value has lines of its own: the line breaks around it are not its own.
    """

    begin: str
    middle: str
    end: str
    lines: bool


@attrs.frozen(kw_only=True)
class CallSyntax:
    """How a template writes calls: regular expressions of what stands around them.

    Attributes:
        kind: What a call consists of.
        opened: Before the first call.
        begin: Before each call.
        middle: Between name and arguments; empty of an object.
        end: After each call.
        closed: After the last call.
        sign: The text with which calls begin, up to white space; `{` of a bare object.
        keys: The keys of name and arguments in an object.
        pairs: How arguments are written by themselves.
        numbered: Whether calls have their number beside the name: that word is the id, `functions.NAME:0`.
    """

    kind: Literal["object", "json", "pairs"]
    opened: str
    begin: str
    middle: str
    end: str
    closed: str
    sign: str = "{"
    keys: tuple[str, str] = ("", "")
    pairs: Pairs | None = None
    numbered: bool = False

    def read(
        self, text: str, tools: Sequence[Mapping[str, Any]], spelled: Collection[int] = ()
    ) -> tuple[list[str], list[ReadCall]]:
        """Return the texts around the calls of a text without reasoning, and the calls.

        Args:
            text: The text of a turn, special tokens included.
            tools: What is offered; the types of arguments without quotes are in their schemas.
            spelled: Where tags begin that are letters, and no tokens.
        """
        pieces, calls, begin, failed = list[str](), list[ReadCall](), 0, 0
        for opening in self._openings(text):
            if opening[0] < begin:
                continue
            found = self._section(text, opening, tools, spelled)
            failed += not found
            if failed > MOST_BROKEN:
                break
            if found:
                pieces.append(text[begin : opening[0]])
                calls += found
                begin = _after(rf"\s*(?:{self.closed})?", text, found[-1].stop)
        return [*pieces, text[begin:]], calls

    def _section(
        self, text: str, opening: Span, tools: Sequence[Mapping[str, Any]], spelled: Collection[int]
    ) -> list[ReadCall]:
        """Return the calls that follow one another at an opening."""
        calls, place = list[ReadCall](), opening[1]
        if any(opening[0] <= one < place for one in spelled):
            return calls
        while (call := self._call(text, place, tools, spelled)) is not None:
            calls.append(call)
            place = _after(r"[\s,;]*", text, call.stop)
        return calls

    def reads_back(self, turn: str, count: int) -> bool:
        """Return whether the calls that it was learned from are read in it; a name alone opens no call."""
        marked = self.kind == "object" or not self.bare
        read = self.read(turn.replace(ID, IDS[0]), stand_in_tools())[1] if marked else []
        expected = [(NAMES[place], _given(place)) for place in range(count)]
        return [(call.name, json.loads(call.arguments)) for call in read] == expected

    def written(self, call: ReadCall) -> tuple[str, Any]:
        """Return what a template writes of a call: its name, and its arguments.

        Templates write a text like the JSON that it spells where each argument stands by itself: `"3"` and 3.
        """
        arguments = json.loads(call.arguments)
        if self.kind == "pairs":
            texts = (one if isinstance(one, str) else json.dumps(one) for one in arguments.values())
            arguments = dict(zip(arguments, texts, strict=True))
        return call.name, arguments

    @property
    def bare(self) -> bool:
        """Whether a call is an object with nothing around it: then it is the whole turn."""
        return not self.opened and not self.begin

    def _openings(self, text: str) -> Iterator[Span]:
        """Yield where calls may begin: the end of the text before them, and the place of the first."""
        if self.bare:
            place = _after(r"\s*", text, 0)
            if text[place : place + 1] == "{":
                yield 0, place
            return
        head = re.compile(f"(?:{self.opened})\\s*(?={self._head})" if self.opened else f"(?={self._head})")
        for match in head.finditer(text):
            yield match.span()

    @property
    def _head(self) -> str:
        return f"{self.begin}\\s*" + (r"\{" if self.kind == "object" else f"{A_NAME}{self.middle}")

    def _call(
        self, text: str, place: int, tools: Sequence[Mapping[str, Any]], spelled: Collection[int]
    ) -> ReadCall | None:
        """Return the call at a place, None without one."""
        match = re.compile(self._head).match(text, place)
        if match is None:
            return None
        if self.kind == "object":
            read = self._object(text, match.end() - 1)
        elif self.kind == "json":
            read = _json_call(text, match, self._id(match))
        else:
            read = self._with_pairs(text, match, tools)
        if read is None:
            return None
        stop = self._stop(text, read.stop)
        within = (one for one in spelled if place <= one < (stop or 0))
        if stop is None or any(not read.body[0] <= one < read.body[1] for one in within):
            return None
        return attrs.evolve(read, stop=stop)

    def _stop(self, text: str, place: int) -> int | None:
        """Return where a call ends whose arguments end at a place.

        An object that is whole needs no mark after it where the turn ends, as for vLLM's parser of Kimi.
        """
        stop = re.compile(rf"\s*{self.end}").match(text, place)
        if stop is not None:
            return stop.end()
        return len(text) if self.kind != "pairs" and not text[place:].strip() else None

    def _id(self, match: re.Match[str]) -> str | None:
        """Return the id that was sampled with a call's name."""
        if not self.numbered:
            return match.groupdict().get("id")
        words = A_WORD.finditer(match.string, *match.span())
        return next(word.group() for word in words if word.end() > match.start("name"))

    def _object(self, text: str, place: int) -> ReadCall | None:
        found = _decoded(text, place)
        if found is None:
            return None
        (value, stop), (name, arguments) = found, self.keys
        given = value.get(arguments)
        given = _decoded(given, 0) if isinstance(given, str) else (given, 0)
        if not isinstance(value.get(name), str) or given is None or not isinstance(given[0], dict):
            return None
        identity = value.get("id")
        return ReadCall(
            name=value[name],
            arguments=_member(text[place:stop], arguments),
            id=identity if isinstance(identity, str) else None,
            body=(place, stop),
            stop=stop,
        )

    def _with_pairs(
        self, text: str, match: re.Match[str], tools: Sequence[Mapping[str, Any]]
    ) -> ReadCall | None:
        assert self.pairs is not None  # noqa: S101  # of this kind
        types = _types(match["name"], tools)
        one = re.compile(rf"\s*{self.pairs.begin}{A_KEY}{self.pairs.middle}")
        ending, values, place = re.compile(self.pairs.end), dict[str, Any](), match.end()
        while (pair := one.match(text, place)) is not None:
            closing = ending.search(text, pair.end())
            if closing is None:
                return None
            inner = text[pair.end() : closing.start()]
            if self.pairs.lines:
                inner = inner.removeprefix("\n").removesuffix("\n")
            values[pair["key"]] = _value(inner, types.get(pair["key"], {"string"}))
            place = closing.end()
        written = json.dumps(values, ensure_ascii=False)
        return ReadCall(match["name"], written, self._id(match), (match.end(), place), place)


@attrs.frozen
class ReadCall:
    """A call in a text.

    Attributes:
        name: The function's name.
        arguments: The arguments as JSON; as sampled, where they were sampled as JSON.
        id: The call's id, if it was sampled.
        body: Where the arguments stand, in which tags are text.
        stop: Where it ends.
    """

    name: str
    arguments: str
    id: str | None
    body: Span
    stop: int


def _after(pattern: str, text: str, place: int) -> int:
    match = re.compile(pattern).match(text, place)
    return place if match is None else match.end()


def _json_call(text: str, match: re.Match[str], identity: str | None) -> ReadCall | None:
    place = _after(r"\s*", text, match.end())
    found = _decoded(text, place)
    if found is None:
        return None
    stop = found[1]
    return ReadCall(match["name"], text[place:stop], identity, (place, stop), stop)


def _decoded(text: str, place: int) -> tuple[dict[str, Any], int] | None:
    """Return the JSON object at a place and where it ends; None without one."""
    try:
        value, stop = DECODER.raw_decode(text, place)
    except (ValueError, RecursionError):
        return None
    return (value, stop) if isinstance(value, dict) else None


def _member(text: str, key: str) -> str:
    """Return the value of a member of a JSON object, as it is written; of a text, the text.

    >>> _member('{"name": "f", "arguments": {"a":  1.0}}', "arguments")
    '{"a":  1.0}'
    """
    value = next(value for name, value in members(text) if name == key)
    return json.loads(value) if value.startswith('"') else value


def _types(name: str, tools: Sequence[Mapping[str, Any]]) -> dict[str, set[str]]:
    """Return the types that a tool's schema gives its arguments."""
    schema = next((tool_schema(tool) for tool in tools if tool_name(tool) == name), {})
    properties = schema.get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {key: _allowed(value) for key, value in known.items()}


def _allowed(schema: Any) -> set[str]:
    """Return the types that a schema allows; a text's where it names none, as engines have it.

    >>> _allowed({"anyOf": [{"type": "integer"}, {"type": "null"}]}) == {"integer", "null"}, _allowed({})
    (True, {'string'})
    """
    schema = schema if isinstance(schema, Mapping) else {}
    choices = [schema, *(one for key in ("anyOf", "oneOf", "allOf") for one in _listed(schema, key))]
    found = set[str]()
    for one in choices:
        if isinstance(one, Mapping):
            named = _listed(one, "type") or [one.get("type")]
            found |= {name for name in named if isinstance(name, str)}
            found = found.union(*map(_names, _listed(one, "enum")))
            if "$ref" in one:
                found.add("object")
    return found or {"string"}


def _names(value: Any) -> set[str]:
    """Return the types of JSON that a value has."""
    return {name for name, kind in TYPES if type(value) is kind}


def _listed(schema: Mapping[str, Any], key: str) -> list[Any]:
    values = schema.get(key)
    return values if isinstance(values, list) else []


def _value(inner: str, types: set[str]) -> Any:
    """Return an argument that is written without quotes: a text where the schema says so, else JSON.

    A schema that allows texts and others gets a text unless JSON is of another type that it allows.
    """
    if types == {"string"}:
        return inner
    for read in (json.loads, _literal_of_python):
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            value = json.loads(json.dumps(read(inner), allow_nan=False))
            if "string" not in types or _names(value) & types - {"string"}:
                return value
    return inner


def _literal_of_python(text: str) -> Any:
    if len(text) > LONGEST_LITERAL or sum(map(text.count, "([{-+~")) > DEEPEST_LITERAL:
        raise ValueError("too long or too deep")
    return ast.literal_eval(text.strip())


# Learning.


def learned(said: str, called: str, count: int) -> CallSyntax | None:
    r"""Return the syntax of calls; None where none is found.

    Args:
        said: The conversation whose turn says a word.
        called: The same with a turn that calls functions.
        count: How many it calls.

    >>> said = "<u>Quagga.<a>Zebra<e><u>Okapi."
    >>> call = '<call>consult_almanac<sep>{"place": "tidewater", "count": 41}</call>'
    >>> syntax = learned(said, f"<u>Quagga.<a><calls>{call}</calls><e><u>Okapi.", 1)
    >>> syntax.read('So:\n<calls><call>f<sep>{"a": 1}</call></calls>', [])[1][0].arguments
    '{"a": 1}'
    """
    for identity in IDS:
        called = called.replace(identity, ID)
    begin = called.rfind(ASKED)
    start, end = len(_beginning(said, called)), len(called) - len(_ending(said, called))
    if begin < 0 or start <= begin or end <= start:
        return None
    turn = called[start:end]
    for find in (_object_unit, _json_unit, _pair_unit):
        units = list(_units(find, turn, count))
        syntax = _syntax(turn, units) if len(units) == count else None
        if syntax is not None and syntax.reads_back(turn, count):
            return syntax
    return None


@attrs.frozen
class Unit:
    """A call of a turn, from its name or its object to the end of its arguments.

    Attributes:
        kind: What it consists of.
        span: Where it stands.
        middle: Between name and arguments; None of an object.
        keys: The keys of name and arguments in an object.
        pairs: How arguments are written by themselves.
    """

    kind: Literal["object", "json", "pairs"]
    span: Span
    middle: str | None = None
    keys: tuple[str, str] = ("", "")
    pairs: Pairs | None = None


def _units(find: Callable[[str, int, int], Unit | None], turn: str, count: int) -> Iterator[Unit]:
    """Yield the calls of a turn as far as they are found."""
    start = 0
    for number in range(count):
        unit = find(turn, number, start)
        if unit is None:
            return
        yield unit
        start = unit.span[1]


def _syntax(turn: str, units: Sequence[Unit]) -> CallSyntax | None:
    """Return the syntax around the calls of a turn."""
    last = units[-1]
    before, after = turn[: units[0].span[0]], turn[last.span[1] :]
    end, begin, opened, closed = after, before, "", ""
    if len(units) > 1:
        inside = turn[units[0].span[1] : units[1].span[0]]
        end = _beginning(inside, after)
        begin = _ending(inside[len(end) :], before)
        opened, closed = before[: len(before) - len(begin)], after[len(end) :]
    middles = [unit.middle for unit in units if unit.middle is not None]
    middle = _pattern(middles)
    if middle is None:
        return None
    return CallSyntax(
        kind=last.kind,
        opened=_literal(opened),
        begin=_literal(begin),
        middle=middle,
        end=_literal(end),
        closed=_literal(closed),
        sign=next(iter(opened.split() or begin.split()), "{"),
        keys=last.keys,
        pairs=last.pairs,
        numbered=bool(middles) and NUMBER.match(middles[0]) is not None,
    )


def _objects(turn: str, start: int) -> Iterator[tuple[dict[str, Any], Span]]:
    """Yield the JSON objects of a turn."""
    for match in re.compile(r"\{").finditer(turn, start):
        found = _decoded(turn, match.start())
        if found is not None:
            yield found[0], (match.start(), found[1])


def _object_unit(turn: str, number: int, start: int) -> Unit | None:
    """Return a call that is an object with a name and arguments."""
    for found, span in _objects(turn, start):
        name = [key for key, value in found.items() if value == NAMES[number]]
        given = [key for key, value in found.items() if _same(value, _given(number))]
        if name and given:
            return Unit("object", span, keys=(name[0], given[0]))
    return None


def _same(value: Any, arguments: Mapping[str, Any]) -> bool:
    if isinstance(value, str) and value.startswith("{"):
        found = _decoded(value, 0)
        value = None if found is None else found[0]
    return bool(value == arguments)


def _json_unit(turn: str, number: int, start: int) -> Unit | None:
    """Return a call that is a name and then the arguments as an object."""
    name = turn.find(NAMES[number], start)
    stop = name + len(NAMES[number])
    spans = (span for found, span in _objects(turn, stop) if found == _given(number))
    span = next(spans, None)
    if name < 0 or span is None:
        return None
    return Unit("json", (name, span[1]), turn[stop : span[0]])


def _pair_unit(turn: str, number: int, start: int) -> Unit | None:
    """Return a call that is a name and then each argument by itself."""
    texts = (NAMES[number], KEYS[0], WORDS[number], KEYS[1], str(COUNTS[number]))
    places = list(_in_order(turn, texts, start))
    if len(places) != len(texts):
        return None
    name, key, value, other, last = places
    middle, inner = turn[key[1] : value[0]], turn[value[1] : other[0]]
    if middle != turn[other[1] : last[0]]:
        return None
    before = turn[name[1] : key[0]]
    begin = _ending(inner, before)
    end = inner[: len(inner) - len(begin)]
    if not turn.startswith(end.rstrip(), last[1]) or not begin.strip() or not end.strip():
        return None
    pairs = Pairs(_literal(begin), _literal(middle), _literal(end), lines=middle.endswith("\n"))
    span = name[0], last[1] + len(end.rstrip())
    return Unit("pairs", span, before[: len(before) - len(begin)], pairs=pairs)


def _in_order(turn: str, texts: Sequence[str], start: int) -> Iterator[Span]:
    for text in texts:
        place = turn.find(text, start)
        if place < 0:
            return
        start = place + len(text)
        yield place, start


def _beginning(one: str, other: str) -> str:
    """Return the beginning that texts share; no tag is cut in two.

    >>> _beginning("</call><call>", "</call></calls>")
    '</call>'
    """
    pieces, others = PIECES.findall(one), PIECES.findall(other)
    same = takewhile(lambda pair: pair[0] == pair[1], zip(pieces, others, strict=False))
    return "".join(piece for piece, _ in same)


def _ending(one: str, other: str) -> str:
    """Return the end that texts share; no tag is cut in two."""
    pieces, others = PIECES.findall(one)[::-1], PIECES.findall(other)[::-1]
    same = list(takewhile(lambda pair: pair[0] == pair[1], zip(pieces, others, strict=False)))
    return "".join(piece for piece, _ in same[::-1])


def _literal(text: str) -> str:
    """Return the pattern of a learned text: white space does not count, and an id is any."""
    words = [AN_ID.join(map(re.escape, word.split(ID))) for word in text.split()]
    return r"\s*".join(words) if words else ""


def _pattern(texts: Sequence[str]) -> str | None:
    """Return the pattern of texts that differ in a number at most; None where they differ otherwise."""
    if len({re.sub(r"\d+", "0", text) for text in texts}) > 1:
        return None
    if len(set(texts)) < 2:  # noqa: PLR2004  # they are equal, or there is one
        between = _literal(texts[0]) if texts else ""
        return rf"\s*{between}\s*" if between else r"\s*" * bool(texts)
    return r"\d+".join(map(_literal, re.split(r"\d+", texts[0])))
