"""Law 7. Once.

Each new message stands in the next prompt exactly once, whatever ids its calls and results have: equal ones,
missing ones, ones without a call, in any order. It holds however much is known. A template that drops a
message, or writes it twice, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.profiles import tries
from tito_core import Bridge, Located, Refusal, Step, answer, locate, try_stitch
from tito_core.join import NextPrompt
from tito_core.seams.case import TurnKind, case_of
from tito_core.seams.certify import certify_questions
from tito_core.seams.profile import Case, Profile
from tito_core.testing.strategies.choices import CHOICES, Choices
from tito_core.testing.strategies.message import Chat
from tito_core.testing.strategies.sampled import ended, rendered, right_stop, sampled_words
from tito_core.testing.toys import TOYS, Message, Toy, toy_named
from tito_core.testing.toys.page import Page
from tito_core.testing.toys.toy import full_text, text_of

MARKS = tuple(f"q{number}z" for number in range(6))
"""A text for each new message, which no other message has. The toy that cuts texts leaves them whole."""
TEXTS = ("{}", "It is {}.", "{}\nb", "ab{}", "{} ab")
OWN, OTHERS, UNKNOWN, NULL, ABSENT = "own", "another's", "unknown", "null", "absent"
IDS = (OWN, OWN, OWN, OTHERS, UNKNOWN, NULL, ABSENT)
"""What a result may have for an id."""
CALLED = (("callaaaa1", "callaaaa2"), ("callaaaa1", "callaaaa1"), (None, None), (ABSENT, ABSENT))
"""The ids of two calls."""
USER: dict[str, Any] = {"role": "user", "content": "b a"}


@attrs.frozen
class Continued:
    """A turn and what is new after it.

    Attributes:
        toy: The template.
        history: What stands before the turn.
        turn: The turn.
        new: The new messages, the text of each holding one of `MARKS`; but turns with calls say nothing.
    """

    toy: Toy
    history: Chat
    turn: dict[str, Any]
    new: Chat

    @property
    def step(self) -> Step:
        """The turn as it was sampled to its right stop."""
        chat = [*self.history, self.turn, *self.new]
        place = len(self.history)
        words = sampled_words(self.toy, chat[: place + 1], 0)
        return Step(
            prompt=self.history,
            completion=[self.turn],
            prompt_ids=rendered(self.toy, self.history),
            completion_ids=ended(self.toy, words, right_stop(self.toy, chat, place)),
        )

    def answers(self) -> Iterator[tuple[str, NextPrompt | Refusal]]:
        """Yield what is answered at every level of knowledge, by its name."""
        toy, step, prompt = self.toy, self.step, [*self.history, self.turn, *self.new]
        stops = toy.stop_ids
        yield "alone", try_stitch([step], prompt, toy.suffix, toy)
        yield "stops", try_stitch([step], prompt, toy.suffix, toy, stops=stops)
        yield "profile", try_stitch([step], prompt, toy.suffix, toy, profile=profile_of(toy, step, prompt))
        bridge = Bridge(toy, stops, suffix=toy.suffix, spans=False)
        yield "ids", bridge.extend(step.ids, self.new)
        yield "turn", bridge.extend(step.ids, self.new, turn=self.turn)
        yield "history", bridge.extend(step.ids, self.new, turn=self.turn, history=self.history)


def profile_of(toy: Toy, step: Step, prompt: Chat) -> Profile:
    """Return a profile that knows the case."""
    located = locate([step], prompt)
    named = case_of(located.turn, located.environment) if isinstance(located, Located) else None
    cases = () if named is None else (certified(toy, *named),)
    return Profile(suffix=toy.suffix, stop_ids=toy.stop_ids, cases=cases)


@cache
def certified(toy: Toy, kind: TurnKind, shape: tuple[str, ...]) -> Case:
    return answer(certify_questions(kind, shape, toy.suffix, toy.stop_ids), toy)


def identified(key: str, value: Any) -> dict[str, Any]:
    return {} if value == ABSENT else {key: None if value == NULL else value}


def calling(*ids: Any, content: Any = "", name: str = "get") -> dict[str, Any]:
    """Return a turn with calls of these ids."""
    function = {"name": name, "arguments": '{"q": "ab"}'}
    calls = [{**identified("id", one), "type": "function", "function": function} for one in ids]
    return {"role": "assistant", "content": content, "tool_calls": calls}


def result(choices: Choices, ids: Sequence[Any], place: int) -> dict[str, Any]:
    """Return a result of the call at `place`, or one that has another id."""
    kind = choices.pick(IDS)
    given = {OWN: ids[place], OTHERS: ids[place - 1], UNKNOWN: "callzzzz9"}.get(kind, kind)
    named = {"name": "get"} if choices.once_in(4) else {}
    return {"role": "tool", **identified("tool_call_id", given), **named, "content": ""}


def results(choices: Choices, ids: Sequence[Any]) -> Chat:
    """Return the results of calls, in any order; at times one more, or one less."""
    found = choices.turned([result(choices, ids, place) for place in range(len(ids))])
    return [*found, *found[:1]] if choices.once_in(6) else found[choices.once_in(6) :]


def after(choices: Choices, ids: Sequence[Any]) -> Chat:
    """Return what is new after a turn with calls of `ids`, without texts."""
    later: Chat = [{"role": choices.pick(("user", "user", "system", "developer"))}]
    new = [*(results(choices, ids) if ids else later), *(later if choices.once_in(3) else [])]
    if choices.once_in(4):  # a turn of another model
        other = choices.pick(CALLED)[:1]
        called: Chat = [calling(*other, name="look"), *results(choices, other)]
        new += choices.pick(([{"role": "assistant"}, {"role": "user"}], called))
    return new


def marked(choices: Choices, messages: Chat) -> Chat:
    """Return messages with texts, each with a mark of its own; turns with calls have none."""
    return [
        message if message.get("tool_calls") else {**message, "content": choices.pick(TEXTS).format(mark)}
        for message, mark in zip(messages, MARKS, strict=False)
    ]


@st.composite
def continued(draw: DrawFn, toys: Sequence[Toy] = TOYS) -> Continued:
    """Draw a turn, with earlier calls or none, and what is new after it."""
    toy, choices = draw(st.sampled_from(toys)), draw(CHOICES)
    ids = choices.pick(CALLED)[: choices.pick((2, 1, 0))] if "tool" in toy.roles else ()
    earlier = choices.pick(CALLED)[:1]
    before: Chat = [
        calling(*earlier, name="find"),
        {"role": "tool", **identified("tool_call_id", earlier[0]), "content": "b"},
        {"role": "assistant", "content": "a b"},
        USER,
    ]
    history = [USER, *(before if ids and choices.once_in(3) else [])]
    turn = (
        calling(*ids, content=choices.pick(("", None, "a")))
        if ids
        else {"role": "assistant", "content": "a b"}
    )
    new = after(draw(CHOICES), ids)
    return Continued(toy, history, turn, marked(draw(CHOICES), new))


def counts(case: Continued, found: NextPrompt) -> list[int]:
    """Return how often the text of each new message stands in what was added."""
    text = case.toy.decode(found.added).lower()
    marks = [mark for mark, one in zip(MARKS, case.new, strict=False) if not one.get("tool_calls")]
    return [text.count(mark) for mark in marks]


def check(case: Continued) -> list[str]:
    """Return at which levels the case was answered, after counting each message."""
    answered = {name: one for name, one in case.answers() if not isinstance(one, Refusal)}
    wrong = {name: one for name, one in answered.items() if set(counts(case, one)) - {1}}
    assert {name: case.toy.decode(one.added) for name, one in wrong.items()} == {}
    return list(answered)


@given(continued())
@tries(6)
def test_each_new_message_stands_in_the_prompt_once(case: Continued) -> None:
    check(case)


CHATML = toy_named("chatml")
ID = "callaaaa1"
TWO = calling(*CALLED[0])
RESULTS: Chat = [
    {"role": "tool", "tool_call_id": one, "content": mark}
    for one, mark in zip(CALLED[0], MARKS, strict=False)
]


USUAL = Continued(CHATML, [USER], TWO, RESULTS)


def test_the_usual_conversations_are_answered_at_every_level() -> None:
    """The law would hold of a kernel that refuses everything."""
    assert len(check(USUAL)) == len(list(USUAL.answers()))


def template(name: str, text: Any) -> Toy:
    """Return ChatML with another text for a message: `text` is called with all messages and a place."""

    def write(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
        for place, message in enumerate(messages):
            page.write(f"<|im_start|>{message['role']}\n")
            page.body(place, text(messages, place))
            page.write("<|im_end|>\n")
        page.write("<|im_start|>assistant\n" * add_prompt)

    return attrs.evolve(CHATML, name=name, quirk="", write=write)


def twice(messages: Sequence[Message], place: int) -> str:
    """Write a result twice."""
    message = messages[place]
    return text_of(message) * 2 if message["role"] == "tool" else full_text(message)


def asked_twice(messages: Sequence[Message], place: int) -> str:
    """Write what a user says before it, too."""
    message = messages[place]
    return f"{text_of(message)}: {full_text(message)}" if message["role"] == "user" else full_text(message)


def by_id(messages: Sequence[Message], place: int) -> str:
    """Write for a result the last one with its id."""
    message = messages[place]
    if message["role"] != "tool":
        return full_text(message)
    found = {one.get("tool_call_id"): text_of(one) for one in messages if one["role"] == "tool"}
    return found[message.get("tool_call_id")]


def of_calls(messages: Sequence[Message], place: int) -> str:
    """Write after calls their results, found by their ids; a result itself is not written."""
    message = messages[place]
    ids = [call.get("id", ABSENT) for call in message.get("tool_calls") or ()]
    run = messages[place + 1 :]
    found = [text_of(one) for name in ids for one in run if one.get("tool_call_id", ABSENT) == name]
    return "" if message["role"] == "tool" else full_text(message) + "|".join(found)


def from_call(messages: Sequence[Message], place: int) -> str:
    """Write for a result that of the call in its place, found by its id."""
    message = messages[place]
    if message["role"] != "tool":
        return full_text(message)
    start = max(at for at in range(place + 1) if at == 0 or messages[at - 1]["role"] != "tool")
    before = messages[start - 1] if start else {}
    calls, run = before.get("tool_calls") or (), messages[start : place + 1 + len(messages)]
    if place - start >= len(calls):
        return text_of(message)
    wanted = calls[place - start].get("id", ABSENT)
    return next((text_of(one) for one in run if one.get("tool_call_id", ABSENT) == wanted), "")


def in_both(messages: Sequence[Message], place: int) -> str:
    """Write a user's text before the next answer, too."""
    message = messages[place]
    before = [one for one in messages[:place] if one["role"] == "user"]
    again = text_of(before[-1]) if message["role"] == "assistant" and before else ""
    return f"{again}{full_text(message)}"


WRONG = [template(one.__name__, one) for one in (twice, asked_twice, by_id, of_calls, from_call, in_both)]


SAME = Continued(CHATML, [USER], calling(ID, ID), [{**one, "tool_call_id": ID} for one in RESULTS])
QUESTION: Chat = [{"role": "user", "content": MARKS[0]}]
ASKED = Continued(CHATML, [USER], {"role": "assistant", "content": "a b"}, QUESTION)


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("twice", USUAL),
        ("asked_twice", ASKED),
        *(("twice", SAME), ("by_id", SAME), ("of_calls", SAME), ("from_call", SAME)),
    ],
)
def test_a_template_that_writes_a_message_twice_or_not_is_refused_at_every_level(
    name: str, case: Continued
) -> None:
    (toy,) = (one for one in WRONG if one.name == name)
    assert check(attrs.evolve(case, toy=toy)) == []


@pytest.mark.parametrize("toy", WRONG, ids=lambda toy: toy.name)
@given(data=st.data())
@tries(2)
def test_no_message_is_written_twice_or_not_by_a_template_that_may_do_so(
    toy: Toy, data: st.DataObject
) -> None:
    check(data.draw(continued((toy,))))
