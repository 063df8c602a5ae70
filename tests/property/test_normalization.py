"""Law 7. Normalization is idempotent and an equivalence, and says which differences it forgave.

The tables are the ones that were decided: each line is a question on which serializers or stacks differ.
"""

from __future__ import annotations

import copy
import json
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from pydantic import BaseModel

from tests import oracle
from tests.profiles import tries
from tito_core import Forgiveness, InputError, Messages, Policy, Step, Stitched, answer, stitch_questions
from tito_core.match import PromptMatcher, chain_hash
from tito_core.normalization.canonical import normalize
from tito_core.normalization.clean import clean
from tito_core.normalization.compare import forgiving_hash, same
from tito_core.normalization.receipts import OPTIONAL
from tito_core.testing.readings import unwrapped
from tito_core.testing.strategies.choices import CHOICES, Choices
from tito_core.testing.strategies.message import (
    conversations,
    draw_assistant,
    draw_calls,
    result,
    speech,
)
from tito_core.testing.strategies.respelling import edited, renamed_call_ids, respelled
from tito_core.testing.toys import toy_named

chatml = toy_named("chatml")

F = Forgiveness


@st.composite
def messages(draw: Any) -> dict[str, Any]:
    """Draw a message of any role."""
    kind = draw(st.integers(0, 5))
    if kind <= 2:
        return draw_assistant(draw)
    if kind == 3:
        return result(draw(CHOICES), draw_calls(draw, 1)[0])
    return speech(draw(CHOICES), draw(st.sampled_from(("user", "system", "developer"))))


ANY_MESSAGE = messages()


@st.composite
def relatives(draw: Any) -> list[Any]:
    """Draw a message and two more that are the same or nearly so."""
    message = draw(ANY_MESSAGE)
    family = [message]
    for _ in range(2):
        origin = family[draw(st.integers(0, len(family) - 1))]
        family.append(
            edited(draw(CHOICES), origin) if draw(st.integers(0, 2)) == 0 else copy.deepcopy(origin)
        )
    return [respelled(draw(CHOICES), one) for one in family]


@given(relatives())
@tries(3)
def test_two_messages_are_the_same_exactly_where_the_rules_say_so(family: list[Any]) -> None:
    first, second, _ = family
    expected = oracle.same_message(first, second)
    assert (same(first, second) is not None) == expected
    assert (normalize(first) == normalize(second)) == expected


@given(relatives())
@tries(3)
def test_sameness_is_an_equivalence(family: list[Any]) -> None:
    """Reflexive with nothing to forgive, symmetric with the same receipt, transitive."""
    first, second, third = family
    assert same(first, first) is not None
    assert same(unwrapped(first), unwrapped(first)) == frozenset()
    assert same(first, second) == same(second, first)
    if same(first, second) is not None and same(second, third) is not None:
        assert same(first, third) is not None


def places(value: Any) -> list[Any]:
    """Return every object and list in a message, itself the first."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value, *(place for item in inner for place in places(item))] if inner or value == {} else []


def bent(choices: Choices, message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a key, a None or a number more somewhere in it, or one spelled differently."""
    made = copy.deepcopy(message)
    place: Any = choices.pick(places(made))
    calls: Any = made.get("tool_calls")
    if isinstance(place, list):
        return {**made, "tool_calls": calls[0]} if place is calls and len(calls) == 1 else made
    key = choices.pick((*sorted(place), "id", "name", "arguments", "index", "x", "reasoning", "tool_calls"))
    value = place.get(key)
    place[key] = choices.pick(
        (value, None, 1, 1.0, True, "", [], {"n": 1}, [{"type": "text", "text": "a", "n": 1}])
    )
    if isinstance(value, int) and choices.pick((False, True)):
        place[key] = float(value)
    if choices.once_in(5):
        del place[key]
    return made


@given(ANY_MESSAGE, CHOICES, st.integers(1, 3))
@tries(4)
def test_a_match_without_a_receipt_means_equal_messages(
    message: dict[str, Any], choices: Choices, bends: int
) -> None:
    """Whatever is forgiven has a name; JSON tells what is equal, 1 from 1.0 and from true."""
    first = unwrapped(message)
    for _ in range(bends):
        second = unwrapped(bent(choices, first))
        try:
            found = same(first, second)
        except InputError:  # its role is gone
            return
        alike = json.dumps(first, sort_keys=True) == json.dumps(second, sort_keys=True)
        assert (found == frozenset()) == alike
        assert found == same(second, first)
        first = choices.pick((first, second))


@given(ANY_MESSAGE, CHOICES)
@tries(3)
def test_every_spelling_of_a_message_is_the_message(message: dict[str, Any], choices: Choices) -> None:
    spelled = respelled(choices, message)
    assert same(message, spelled) is not None
    assert normalize(spelled) == normalize(message)
    assert hash(normalize(spelled)) == hash(normalize(message))


@given(ANY_MESSAGE)
@tries(2)
def test_cleaning_twice_is_cleaning_once_and_cleaning_keeps_the_message(message: dict[str, Any]) -> None:
    before = copy.deepcopy(message)
    once = clean([message])
    assert clean(once) == once
    assert message == before
    assert same(message, once[0]) is not None


@given(
    relatives(),
    st.sets(st.sampled_from(sorted(Policy(forgive=frozenset()).forgive | set(F), key=lambda f: f.name))),
)
@tries(2)
def test_forgiving_more_never_makes_two_messages_different(
    family: list[Any], names: set[Forgiveness]
) -> None:
    """An option adds matches and takes none away, and a receipt names no option that was not asked for."""
    options = frozenset(names) & OPTIONAL
    first, second, _ = family
    strict, lenient = same(first, second), same(first, second, options)
    assert strict is None or lenient is not None
    assert lenient is None or lenient & OPTIONAL <= options


def client_copy(choices: Choices, message: Any) -> dict[str, Any]:
    """Return a message as a client may keep it: trimmed, padded, or without what it does not echo."""
    copied: dict[str, Any] = dict(unwrapped(message))
    for key in ("content", "reasoning", "reasoning_content"):
        value = copied.get(key)
        if isinstance(value, str):
            copied[key] = choices.pick((value, value.strip(), f"\ufeff {value}\n", None))
    return copied


@given(relatives(), CHOICES)
@tries(3)
def test_messages_that_a_policy_takes_for_one_have_one_hash(family: list[Any], choices: Choices) -> None:
    """Otherwise a match would not be found after a near miss, where steps are looked up by their hashes."""
    ours, *others = map(unwrapped, family)
    for theirs in (*others, client_copy(choices, ours), *(client_copy(choices, one) for one in others)):
        if same(ours, theirs, OPTIONAL) is not None:
            assert forgiving_hash(ours) == forgiving_hash(theirs)


@given(st.data())
@tries(2)
def test_conversations_that_a_policy_takes_for_one_have_one_hash(data: st.DataObject) -> None:
    history = [dict(unwrapped(message)) for message in data.draw(conversations(chatml))]
    history.append(assistant("done"))  # steps end with a turn: a result alone does not say what was renamed
    renamed = data.draw(renamed_call_ids(history))
    choices = data.draw(CHOICES)
    theirs = [client_copy(choices, one) if choices.once_in(3) else one for one in renamed]
    stored, search = Messages.of(history), PromptMatcher(theirs, OPTIONAL)
    if search.fits(stored) is not None:
        assert chain_hash(stored) == search.hashes[-1]
    assert PromptMatcher(renamed, OPTIONAL).fits(stored) is not None


def assistant(content: Any = "a", **more: Any) -> dict[str, Any]:
    """Return an assistant message."""
    return {"role": "assistant", "content": content, **more}


def calling(arguments: Any, name: str = "f", identity: str | None = "c1", **more: Any) -> dict[str, Any]:
    """Return an assistant message with one call."""
    call = {"id": identity, "function": {"name": name, "arguments": arguments}, **more}
    return {"role": "assistant", "tool_calls": [call]}


def tool_result(identity: str | None, content: str = "7") -> dict[str, Any]:
    """Return a tool result."""
    return {"role": "tool", "tool_call_id": identity, "content": content}


def user(content: Any, **more: Any) -> dict[str, Any]:
    """Return a user's message."""
    return {"role": "user", "content": content, **more}


def part(text: str) -> dict[str, Any]:
    """Return a text part."""
    return {"type": "text", "text": text}


class Wire(BaseModel):
    """A message as a pydantic object."""

    role: str
    content: str | None = None


@attrs.frozen
class Own:
    """A message as a host's own value."""

    role: str
    content: str | None = None


SAME: dict[str, tuple[Any, Any, set[Forgiveness]]] = {
    "missing and None": (user("a"), user("a", name=None), {F.ABSENT}),
    "absent and None content": (assistant(None), {"role": "assistant"}, {F.ABSENT}),
    "empty and None content": (assistant(""), assistant(None), {F.EMPTY_CONTENT}),
    "empty and absent content": (assistant(""), {"role": "assistant"}, {F.EMPTY_CONTENT}),
    "an empty part and no content": (assistant([part("")]), assistant(None), {F.EMPTY_CONTENT, F.TEXT_PART}),
    "one part and its string": (user([part("a")]), user("a"), {F.TEXT_PART}),
    "text and object arguments": (calling('{"a": 1}'), calling({"a": 1}), {F.ARGUMENTS}),
    "order of keys in an object": (calling({"a": 1, "b": 2}), calling({"b": 2, "a": 1}), set()),
    "order of keys": (calling('{"a": 1, "b": 2}'), calling('{"b": 2, "a": 1}'), {F.ARGUMENTS}),
    "spacing": (calling('{"a":1}'), calling(' {"a" : 1}\n'), {F.ARGUMENTS}),
    "escapes": (calling('{"a": "\\u00e9"}'), calling('{"a": "é"}'), {F.ARGUMENTS}),
    "1 and 1.0": (calling('{"a": 1}'), calling('{"a": 1.0}'), {F.ARGUMENTS}),
    "1 and 1.0 as objects": (calling({"a": 1}), calling({"a": 1.0}), {F.ARGUMENTS}),
    "1e2 and 100": (calling('{"a": [1e2]}'), calling('{"a": [100]}'), {F.ARGUMENTS}),
    "decimals by value": (calling('{"a": 0.10}'), calling({"a": 0.1}), {F.ARGUMENTS}),
    "empty arguments and {}": (calling(""), calling("{}"), {F.ARGUMENTS}),
    "empty arguments and an empty object": (calling(""), calling({}), {F.ARGUMENTS}),
    "reasoning and reasoning_content": (
        assistant(reasoning="t"),
        assistant(reasoning_content="t"),
        {F.REASONING_NAME},
    ),
    "empty and no reasoning": (assistant(reasoning=""), assistant(), {F.EMPTY_REASONING}),
    "empty and None reasoning": (assistant(reasoning=""), assistant(reasoning=None), {F.EMPTY_REASONING}),
    "None and absent reasoning": (assistant(reasoning_content=None), assistant(), {F.ABSENT}),
    "reasoning in a list": (assistant(reasoning="tu"), assistant(reasoning=["t", "u"]), {F.REASONING_PARTS}),
    "reasoning in text parts": (
        assistant(reasoning="t"),
        assistant(reasoning_content=[part("t")]),
        {F.REASONING_NAME, F.REASONING_PARTS},
    ),
    "reasoning in the content": (
        assistant(reasoning="t"),
        assistant([{"type": "thinking", "thinking": "t"}, part("a")]),
        {F.REASONING_PARTS, F.TEXT_PART},
    ),
    "reasoning in the content, in parts": (
        assistant([{"type": "thinking", "thinking": [part("t"), part("u")]}, part("a")]),
        assistant([part("a"), {"type": "thinking", "thinking": "tu", "signature": "s"}]),
        {F.REASONING_PARTS},
    ),
    "reasoning alone in the content": (
        assistant("", reasoning="t"),
        assistant([{"type": "thinking", "thinking": "t"}]),
        {F.EMPTY_CONTENT, F.REASONING_PARTS, F.TEXT_PART},
    ),
    "an empty list of reasoning": (
        assistant(reasoning=[]),
        assistant(),
        {F.EMPTY_REASONING, F.REASONING_PARTS},
    ),
    "no calls": (assistant(tool_calls=[]), assistant(), {F.EMPTY_CALLS}),
    "no calls and None": (assistant(tool_calls=[]), assistant(tool_calls=None), {F.EMPTY_CALLS}),
    "a call's index": (calling("{}", index=0), calling("{}"), {F.CALL_KEYS}),
    "a function's keys": (
        assistant(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}", "strict": True}}]),
        assistant(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
        {F.CALL_KEYS},
    ),
    "a call's missing id": (
        assistant(tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]),
        assistant(tool_calls=[{"id": None, "function": {"name": "f", "arguments": "{}"}}]),
        {F.ABSENT},
    ),
    "1 and 1.0 in a content": (user(1), user(1.0), {F.NUMBERS}),
    "1 and 1.0 as a name": (user("a", name=1), user("a", name=1.0), {F.NUMBERS}),
    "unknown keys": (assistant(refusal="no", x=[1]), assistant(), {F.OTHER_KEYS}),
    "an assistant's name": (assistant(), assistant(name="model"), {F.OTHER_KEYS}),
    "an assistant's other name": (assistant(name="a"), assistant(name="b"), {F.OTHER_KEYS}),
    "an assistant's missing name": (assistant(), assistant(name=None), {F.ABSENT}),
    "keys of the message in a text part": (
        assistant("a"),
        assistant([{**part("a"), "role": "assistant", "tool_calls": []}]),
        {F.OTHER_KEYS, F.TEXT_PART},
    ),
    "keys in one of several text parts": (
        user([part("a"), part("b")]),
        user([part("a"), {**part("b"), "id": 1}]),
        {F.OTHER_KEYS},
    ),
    "a pydantic object": (Wire(role="user", content="a"), user("a"), {F.OBJECT}),
    "an attrs object": (Own(role="user", content="a"), user("a"), {F.OBJECT}),
    "a mapping that is no dict": (MappingProxyType(user("a")), user("a"), set()),
    "malformed arguments, byte for byte": (calling("{"), calling("{"), set()),
    "duplicate keys": (calling('{"a":1,"a":2}'), calling('{"a":2}'), {F.ARGUMENTS}),
    "duplicate keys, deep": (calling('{"b":[{"a":1,"a":{}}]}'), calling({"b": [{"a": {}}]}), {F.ARGUMENTS}),
    "spacing in duplicate keys": (calling('{"a":1,"a":2}'), calling('{"a":1, "a":2}'), {F.ARGUMENTS}),
    "a key spelled twice": (calling('{"a":1,"\\u0061":2}'), calling('{"a":2}'), {F.ARGUMENTS}),
    "more digits than a double has": (
        calling('{"a": 52.520006599999999999}'),
        calling('{"a": 52.5200066}'),
        {F.ARGUMENTS},
    ),
    "a double's digits written out": (
        calling('{"a": 1.2345678901234567e20}'),
        calling('{"a": 123456789012345670000}'),
        {F.ARGUMENTS},
    ),
    "beyond the largest double": (calling('{"a": 1e400}'), calling('{"a": 1e999}'), {F.ARGUMENTS}),
    "below the smallest double": (calling('{"a": 1e-400}'), calling('{"a": 0}'), {F.ARGUMENTS}),
    "zero and its negative": (calling('{"a": -0.0}'), calling('{"a": 0}'), {F.ARGUMENTS}),
    "an array, byte for byte": (calling("[1]"), calling("[1]"), set()),
}

DIFFERENT: dict[str, tuple[Any, Any]] = {
    "content not echoed": (assistant("a"), assistant(None)),
    "content put beside calls": (calling("{}"), calling("{}") | {"content": "a"}),
    "other content beside calls": (calling("{}") | {"content": "a"}, calling("{}") | {"content": "b"}),
    "content beside calls of other ids": (calling("{}") | {"content": "a"}, calling("{}", identity="x")),
    "content beside calls without ids": (
        calling("{}", identity=None) | {"content": "a"},
        calling("{}", identity=None),
    ),
    "another text": (user("a"), user("b")),
    "trailing white space": (assistant("a"), assistant("a\n")),
    "another role": (user("a"), assistant("a")),
    "system and developer": ({"role": "system", "content": "a"}, {"role": "developer", "content": "a"}),
    "another tool call id in a result": (tool_result("c1"), tool_result("c2")),
    "a result without its id": (tool_result("c1"), tool_result(None)),
    "another tool call id in a call": (calling("{}"), calling("{}", identity="c2")),
    "another name": (calling("{}"), calling("{}", name="g")),
    "a user's name": (user("a", name="x"), user("a", name="y")),
    "a user's empty and absent content": (user(""), user(None)),
    "true and 1": (calling('{"a": true}'), calling('{"a": 1}')),
    "true and 1 as objects": (calling({"a": True}), calling({"a": 1})),
    "false and 0, deep": (calling({"a": [{"b": False}]}), calling({"a": [{"b": 0}]})),
    "1 and text": (calling('{"a": 1.0}'), calling('{"a": "1"}')),
    "null and absent in arguments": (calling('{"a": null}'), calling("{}")),
    "null and empty text in arguments": (calling('{"a": null}'), calling('{"a": ""}')),
    "large integers by value": (calling('{"a": 9007199254740993}'), calling('{"a": 9007199254740992}')),
    "a large integer and its double": (
        calling('{"a": 9007199254740993}'),
        calling('{"a": 9007199254740993.0}'),
    ),
    "other digits of a double": (calling('{"a": 0.1}'), calling('{"a": 0.10000000000000002}')),
    "the first of two keys": (calling('{"a":1,"a":2}'), calling('{"a":1}')),
    "an infinity and what overflows": (calling('{"a": Infinity}'), calling('{"a": 1e400}')),
    "order in a list": (calling('{"a": [1, 2]}'), calling('{"a": [2, 1]}')),
    "malformed arguments": (calling("{"), calling("{ ")),
    "NaN": (calling('{"a": NaN}'), calling('{"a":NaN}')),
    "a top-level array": (calling("[1]"), calling("[1 ]")),
    "a top-level text": (calling('"a"'), calling(' "a"')),
    "text that holds the JSON of the arguments": (calling('"{}"'), calling("{}")),
    "several parts and their joined text": (user([part("a"), part("b")]), user("ab")),
    "several parts in another order": (user([part("a"), part("b")]), user([part("b"), part("a")])),
    "two calls in another order": (
        assistant(tool_calls=calling("{}")["tool_calls"] + calling("{}", name="g")["tool_calls"]),
        assistant(tool_calls=calling("{}", name="g")["tool_calls"] + calling("{}")["tool_calls"]),
    ),
    "dropped reasoning": (assistant(reasoning="t"), assistant()),
    "another reasoning": (assistant(reasoning="t"), assistant(reasoning_content="u")),
    "another reasoning in a list": (assistant(reasoning="t u"), assistant(reasoning=["t", "u"])),
    "a user's thinking": (user([{"type": "thinking", "thinking": "t"}, part("a")]), user("a", reasoning="t")),
    "a dropped call": (calling("{}"), assistant(None)),
}


@pytest.mark.parametrize(("ours", "theirs", "receipt"), SAME.values(), ids=SAME.keys())
def test_these_are_the_same_and_the_receipt_says_why(
    ours: Any, theirs: Any, receipt: set[Forgiveness]
) -> None:
    assert same(ours, theirs) == frozenset(receipt)
    assert same(theirs, ours) == frozenset(receipt)
    assert normalize(ours) == normalize(theirs)
    assert oracle.same_message(ours, theirs)


@pytest.mark.parametrize(("ours", "theirs"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_these_are_different(ours: Any, theirs: Any) -> None:
    assert same(ours, theirs) is None
    assert same(theirs, ours) is None
    assert normalize(ours) != normalize(theirs)
    assert not oracle.same_message(ours, theirs)


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
KEYS = st.sampled_from(('"a"', '"b"', '"\\u0061"', '""'))
SPACES = st.sampled_from(("", "", " ", "\n\t "))
LEAVES = st.one_of(
    NUMBERS,
    st.sampled_from(("0", "-0.0", "1", "1.0", "10e-1", "1e400", "9007199254740993", "true", "false", "null")),
    st.text(max_size=2).map(json.dumps),
    st.text(max_size=2).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(('"1"', '"\\ud800"', '"\\/"')),
)


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 2) -> str:
    """Draw the text of a JSON object, with equal keys, white space, and numbers that no program writes."""
    members = []
    for _ in range(draw(st.integers(0, 3))):
        value = draw(LEAVES if not depth or draw(st.booleans()) else json_texts(depth - 1))
        listed = f"[{value},{draw(LEAVES)}]" if draw(st.integers(0, 4)) == 0 else value
        members.append(f"{draw(SPACES)}{draw(KEYS)}{draw(SPACES)}:{draw(SPACES)}{listed}{draw(SPACES)}")
    return f"{{{','.join(members)}}}"


def as_read(value: Any) -> Any:
    """Return what a reader has in hand, each value with its kind; a double as JavaScript writes it."""
    if isinstance(value, dict):
        return {key: as_read(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(as_read, value))
    if isinstance(value, float) and abs(value) < 1e21 and Decimal(repr(value)) % 1 == 0:
        value = int(Decimal(repr(value)))
    return type(value), value


@given(json_texts(), json_texts())
@tries(4)
def test_arguments_are_the_same_exactly_where_readers_of_json_have_the_same(one: str, other: str) -> None:
    read = list(map(json.loads, (one, other)))
    assert (same(calling(one), calling(other)) is not None) == (as_read(read[0]) == as_read(read[1]))


@given(json_texts())
@tries(4)
def test_arguments_come_back_from_a_reader_of_json_that_writes_them_again(text: str) -> None:
    read = json.loads(text)
    assert same(calling(text), calling(read)) is not None
    written = json.dumps(read)
    if "Infinity" not in written:  # which is no JSON: a number was too large for a double
        assert same(calling(text), calling(written)) is not None
        assert same(calling(text), calling(json.dumps(read, ensure_ascii=False, indent=1))) is not None


FORGIVABLE: dict[str, tuple[Any, Any, Forgiveness]] = {
    "a line break at the end": (assistant("a"), assistant("a\n"), F.OUTER_WHITESPACE),
    "spaces at the end": (assistant("a  "), assistant("a"), F.OUTER_WHITESPACE),
    "white space before": (assistant("a"), assistant("\n a"), F.OUTER_WHITESPACE),
    "white space alone": (assistant(" \n", tool_calls=[]), assistant(None), F.OUTER_WHITESPACE),
    "a byte order mark": (assistant("\ufeffa"), assistant("a"), F.OUTER_WHITESPACE),
    "reasoning trimmed": (assistant(reasoning="\nt\n"), assistant(reasoning="t"), F.OUTER_WHITESPACE),
    "content beside calls not echoed": (calling("{}") | {"content": "a"}, calling("{}"), F.DROPPED_CONTENT),
    "reasoning not echoed": (assistant(reasoning="t"), assistant(), F.DROPPED_REASONING),
    "an integer that JavaScript read": (
        calling('{"a": [1234567890123456789]}'),
        calling('{"a": [1234567890123456800]}'),
        F.ROUNDED_INTEGERS,
    ),
    "a key with null": (calling('{"path": "a"}'), calling('{"path": "a", "line": null}'), F.ADDED_NULLS),
    "a key with null, deep": (
        calling('{"a": [{}, null]}'),
        calling('{"a": [{"b": null}, null]}'),
        F.ADDED_NULLS,
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "option"), FORGIVABLE.values(), ids=FORGIVABLE.keys())
def test_a_policy_forgives_by_name_and_the_receipt_names_it(
    ours: Any, theirs: Any, option: Forgiveness
) -> None:
    others = OPTIONAL - {option}
    assert same(ours, theirs) is None
    assert same(ours, theirs, others) is None
    receipt = same(ours, theirs, frozenset((option,)))
    assert receipt is not None
    assert option in receipt


def test_each_optional_difference_has_an_example() -> None:
    shown = {option for _, _, option in FORGIVABLE.values()}
    assert shown | {F.RENAMED_TOOL_IDS} == OPTIONAL
    named = frozenset().union(*(receipt for _, _, receipt in SAME.values()))
    assert named | {F.MEDIA} == set(F) - OPTIONAL  # images have a law of their own


UNFORGIVABLE: dict[str, tuple[Any, Any]] = {
    "white space within": (assistant("a b"), assistant("a  b")),
    "a user's white space": (user("a"), user("a ")),
    "a user's reasoning": (user("a", reasoning="t"), user("a", reasoning=" t")),
    "white space inside reasoning": (assistant(reasoning="t u"), assistant(reasoning="t  u")),
    "white space in a call": (calling('{"a": " b"}'), calling('{"a": "b"}')),
    "white space in parts": (assistant([part("a"), part("b ")]), assistant([part("a"), part("b")])),
    "other reasoning": (assistant(reasoning="t"), assistant(reasoning="u")),
    "content beside calls without ids": DIFFERENT["content beside calls without ids"],
    "content beside calls of other ids": DIFFERENT["content beside calls of other ids"],
    "another text": (assistant("a"), assistant("b")),
    "another large integer": (
        calling('{"a": 1234567890123456789}'),
        calling('{"a": 1234567890123456788}'),
    ),
    "a dropped null": (calling('{"a": null}'), calling("{}")),
    "a null in place of another": (calling('{"a": null}'), calling('{"b": null}')),
    "a null in a list": (calling('{"a": []}'), calling('{"a": [null]}')),
    "an added zero": (calling("{}"), calling('{"a": 0}')),
}


@pytest.mark.parametrize(("ours", "theirs"), UNFORGIVABLE.values(), ids=UNFORGIVABLE.keys())
def test_no_policy_forgives_what_was_not_named(ours: Any, theirs: Any) -> None:
    assert same(ours, theirs, OPTIONAL) is None


def renamed(first: str, second: str, result: str) -> list[dict[str, Any]]:
    """Return a conversation with two calls and a result."""
    two = calling("{}", identity=first)["tool_calls"] + calling("{}", identity=second)["tool_calls"]
    return [user("a"), assistant(None, tool_calls=two), tool_result(result), assistant("b")]


def match(
    stored: list[dict[str, Any]], prompt: list[dict[str, Any]], *options: Forgiveness
) -> frozenset[F] | None:
    """Return the receipt of a whole conversation's match."""
    step = Step(prompt=stored[:-1], completion=stored[-1:], prompt_ids=[1], completion_ids=[197, 2])
    policy = Policy(forgive=frozenset(options))
    found = answer(stitch_questions([step], [*prompt, user("c")], chatml.suffix, policy=policy), chatml)
    return found.forgiven if isinstance(found, Stitched) else None


def test_renamed_tool_call_ids_are_forgiven_where_the_policy_names_them() -> None:
    """The client may number the calls anew, if a result still names the call it belonged to."""
    stored = renamed("c1", "c2", "c2")
    assert match(stored, renamed("c1", "c2", "c2")) == frozenset()
    assert match(stored, renamed("x1", "x2", "x2")) is None
    assert match(stored, renamed("x1", "x2", "x2"), F.RENAMED_TOOL_IDS) == frozenset((F.RENAMED_TOOL_IDS,))
    assert match(stored, renamed("c2", "c1", "c1"), F.RENAMED_TOOL_IDS) == frozenset((F.RENAMED_TOOL_IDS,))
    assert match(stored, renamed("x1", "x2", "x1"), F.RENAMED_TOOL_IDS) is None
    assert match(stored, renamed("x1", "x1", "x1"), F.RENAMED_TOOL_IDS) is None
    assert match(stored, renamed("c1", "c2", "x"), F.RENAMED_TOOL_IDS) is None
    alone = [user("a"), assistant("b"), tool_result("c1"), assistant("d")]
    other = [*alone[:2], tool_result("c2"), alone[3]]
    assert match(alone, alone, F.RENAMED_TOOL_IDS) == frozenset()
    assert match(alone, other, F.RENAMED_TOOL_IDS) is None  # no call says that the two are one


def test_a_match_says_what_it_forgave_anywhere_in_the_conversation() -> None:
    stored = [user("a"), assistant("b", reasoning="t"), user("c"), assistant("d")]
    echoed = [
        user([part("a")]),
        assistant("b\n", reasoning_content="t"),
        user("c", name=None),
        assistant("d"),
    ]
    assert match(stored, echoed) is None
    receipt = {F.OUTER_WHITESPACE, F.TEXT_PART, F.REASONING_NAME, F.ABSENT}
    assert match(stored, echoed, F.OUTER_WHITESPACE) == frozenset(receipt)


def test_a_message_of_the_client_library_is_the_message_on_the_wire() -> None:
    """Its many empty fields are nothing, and its tool calls are objects all the way down."""
    wire = calling('{"a": 1}') | {"content": None}
    wire["tool_calls"][0]["type"] = "function"
    parsed: Any = ChatCompletionMessage.model_validate(wire)
    receipt = same(wire, parsed)
    assert receipt is not None
    assert F.OBJECT in receipt
    assert normalize(wire) == normalize(parsed)


@given(ANY_MESSAGE, CHOICES)
@tries(2)
def test_normalizing_twice_is_normalizing_once(message: dict[str, Any], choices: Choices) -> None:
    """A canonical form holds no spelling: normalizing it, or a spelling of it again, ends in one place."""
    form: Any = normalize(message)
    assert normalize(form) == form
    for _ in range(3):
        message = unwrapped(respelled(choices, message))
        assert normalize(message) == form
