"""Where a turn is over: how it is closed, and how much of its close it sampled itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.core import example
from tests.core.example import CALLING, RESULT, each, shown
from tests.core.seams.test_prove import proved, turn
from tito_core import (
    Bridge,
    Extension,
    Message,
    OddStop,
    Policy,
    Reason,
    Refusal,
    Step,
    stitch,
    suffix_ids,
    try_stitch,
)
from tito_core.bridge import Known
from tito_core.seams.close import Cut, rest_of_close
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_core.seams.prove import Proof
from tito_core.seams.turn import SampledTurn
from tito_core.testing.toys import toy_named


@pytest.mark.parametrize(
    ("asked", "closed"),
    [
        (turn((example.CLOSE,)), 1),
        (turn((), stop=example.CLOSE), 0),  # nothing is known to close a turn: what follows it is the opener
        (turn((77,), stop=example.CLOSE), 0),
        (turn((77,), stops=(88, example.CLOSE)), 0),  # a known stop, whatever the turn ended with
    ],
)
def test_a_plain_turn_is_closed_by_the_suffix_or_by_a_stop(asked: SampledTurn, closed: int) -> None:
    environment = [example.user("more")]
    bridge = (example.CLOSE, *example.tokenize(environment, add_generation_prompt=True))
    proof = proved(asked, environment)
    assert isinstance(proof, Proof)
    assert (proof.ids, proof.cut, proof.generation_prompt) == (bridge, Cut(0, closed), 2)


@pytest.mark.parametrize("stop", [None, 99])
def test_another_close_than_the_suffix_is_a_refusal_that_says_so(stop: int | None) -> None:
    refusal = proved(turn((77,), stop=stop), [example.user("more")])
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.CLOSE_MISMATCH
    assert "suffix" in refusal.detail


def test_a_call_that_stopped_elsewhere_names_its_stop() -> None:
    refusal = proved(turn((77,), stop=99, message=CALLING), [RESULT])
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.ODD_STOP
    assert "99" in refusal.detail
    unknown = proved(turn((77,), message=CALLING), [RESULT])
    assert isinstance(unknown, Refusal)
    assert unknown.reason is Reason.UNPROVEN_TAIL


def test_the_end_of_a_call_that_is_not_written_last_cannot_be_shown() -> None:
    tokenize = shown(lambda messages: messages[:-1] if messages[-1]["role"] == "assistant" else messages)
    refusal = proved(turn((example.CLOSE,), message=CALLING), [RESULT], tokenize)
    assert refusal == Refusal(Reason.UNPROVEN_TAIL, "the end of the tool call's turn cannot be shown")


@pytest.mark.parametrize("message", [CALLING, example.assistant()])
def test_a_close_that_overlaps_itself_begins_with_the_first_of_its_ids(message: dict[str, Any]) -> None:
    """Two ids close a turn and the same id opens the next: the close is the first two of three."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for index in example.tokenize(messages, add_generation_prompt=add_generation_prompt):
            ids += {example.OPEN: [9, example.OPEN], example.CLOSE: [9, 9]}.get(index, [index])
        return ids

    proof = proved(turn((9, 9), stop=9, message=message), [RESULT], tokenize)
    assert isinstance(proof, Proof)
    assert proof.ids == (9, 9, *tokenize([RESULT], add_generation_prompt=True))


def closed_by_what_follows(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a text and then CLOSE after a turn that something follows."""
    ids: list[int] = []
    for place, message in enumerate(messages):
        written = example.tokenize([message], add_generation_prompt=False)
        followed = message["role"] != "assistant" or place < len(messages) - 1
        ids += [*written[:-1], *([8, example.CLOSE] if followed else [])]
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


@pytest.mark.parametrize("stop", [None, 99, example.CLOSE])
def test_the_close_of_a_call_begins_where_the_call_is_over(stop: int | None) -> None:
    closed = (8, example.CLOSE)
    asked = turn((), message=CALLING, stop=stop, stops=(example.CLOSE, 99))
    found = proved(asked, [RESULT], closed_by_what_follows)
    assert isinstance(found, Proof)
    assert found.ids == (*closed, *closed_by_what_follows([RESULT], add_generation_prompt=True))
    assert found.cut.closed == len(closed)


NO_SUFFIX = "after the turn the template does not write the suffix"


NO_CLOSE = "the turn ended with 99, which closes no tool call here: if it does, it is missing in stop_ids"


two_closes = each(lambda m, ids, _: [*ids[:-1], 5 if m.get("tool_calls") else example.CLOSE])
"""Closes a turn that calls with 5, any other message with CLOSE."""


@pytest.mark.parametrize(
    ("stop", "stops", "expected"),
    [
        (5, (), Cut(2, 1)),
        (None, (5,), Cut(2, 1)),
        (99, (5,), Cut(2, 1)),  # the turn ended oddly: the one that can close a call shows the place
        (None, (99, 5, 5), Cut(2, 1)),
        (99, (), Refusal(Reason.ODD_STOP, NO_CLOSE)),
        (None, (99,), Refusal(Reason.CLOSE_MISMATCH, NO_SUFFIX)),
        (None, (5, 104), Cut(2, 1)),  # another id of the call does not close it
    ],
)
def test_the_end_of_a_call_is_shown_by_the_stop_or_by_the_only_known_one(
    stop: int | None, stops: tuple[int, ...], expected: Cut | Refusal
) -> None:
    found = proved(turn((example.CLOSE,), message=CALLING, stop=stop, stops=stops), [RESULT], two_closes)
    assert (found.cut if isinstance(found, Proof) else found) == expected
    if isinstance(found, Proof):
        assert found.ids == (5, *two_closes([RESULT], add_generation_prompt=True))


MARKED = r"<E>|[.>]\n|\w+|\W"
"""What is one id: a stop, a mark with the line break after it, a word, any other character."""
WHOLE = rf"</a>|{MARKED}"
"""As well as the first part of a close."""
VOCABULARY: dict[str, int] = {}
SAID = example.assistant("At nine.")
QUESTION = example.user("When?")
CALLED: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 7}'}}],
}
CALL_TEXT = '<call>{"x": 7}</call>'
POLICIES = [Policy(odd_stop=one) for one in OddStop]


class Closing:
    """A template that closes a turn with a text, and a tokenizer of words."""

    def __init__(self, close: str, words: str = MARKED) -> None:
        self.close, self.words = close, words

    def encode(self, text: str) -> list[int]:
        return [VOCABULARY.setdefault(word, len(VOCABULARY)) for word in re.findall(self.words, text)]

    def text(self, messages: Sequence[Message]) -> str:
        """Return a conversation in which the model speaks next."""
        written = ""
        for message in messages:
            calls = message.get("tool_calls") or ()
            said = "".join(f"<call>{call['function']['arguments']}</call>" for call in calls)
            close = self.close if message["role"] == "assistant" else "\n"
            written += f"[{message['role']}]\n{message.get('content') or ''}{said}{close}"
        return f"{written}[assistant]\n"

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        text = self.text(messages)
        return self.encode(text if add_generation_prompt else text.removesuffix("[assistant]\n"))


def text_of(ids: Sequence[int]) -> str:
    words = {index: word for word, index in VOCABULARY.items()}
    return "".join(words[index] for index in ids)


def continued(  # a template, a turn, and what is new
    template: Closing, turn: Message, said: str, new: Message, policy: Policy, *, truncated: bool
) -> set[str]:
    """Return the texts after the last prompt, or reasons for none, however the next prompt is asked for."""
    prompt, sampled = template([QUESTION], add_generation_prompt=True), template.encode(said)
    step = Step(
        prompt=[QUESTION],
        completion=[turn],
        prompt_ids=prompt,
        completion_ids=sampled,
        truncated=truncated,
    )
    messages, suffix, stops = [QUESTION, turn, new], suffix_ids(template), template.encode("<E>")
    profile = GrowingProfile(probe(template, stops))
    known: list[Known] = [
        {"turn": turn, "sampled": len(sampled), "truncated": truncated},
        {"turn": turn, "sampled": len(sampled), "truncated": truncated, "history": [QUESTION]},
    ]
    bridge = Bridge(template, stops, policy=policy)
    found = [
        try_stitch([step], messages, suffix, template, policy=policy),
        try_stitch([step], messages, suffix, template, policy=policy, stops=stops),
        try_stitch([step], messages, suffix, template, policy=policy, profile=profile),
        *(bridge.extend(step.ids, [new], **one) for one in known),
    ]
    return {one.detail if isinstance(one, Refusal) else text_of(one.ids[len(prompt) :]) for one in found}


MERGED = Closing("\n</a><E>\n")
"""The close begins with a line break, which is one id with the last mark of a call."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("said", [CALL_TEXT, f"{CALL_TEXT}\n"])
def test_a_call_that_was_cut_after_its_end_is_closed_once(said: str, policy: Policy) -> None:
    """Whether it sampled the line break or not."""
    right = f"{CALL_TEXT}\n</a><E>\n[tool]\n7\n[assistant]\n"
    assert continued(MERGED, CALLED, said, RESULT, policy, truncated=True) == {right}


@pytest.mark.parametrize("said", [CALL_TEXT[:-1], CALL_TEXT[:-7], CALL_TEXT[:-9], "<call>"])
def test_a_call_that_broke_off_is_refused_where_its_end_is_one_id_with_the_close(said: str) -> None:
    """Nothing shows whether the first id of the close must be inserted."""
    refusal = "the end of the tool call is one id with its turn's close"
    assert continued(MERGED, CALLED, said, RESULT, Policy(), truncated=True) == {refusal}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_call_that_broke_off_is_closed_where_its_end_is_an_id_of_its_own(policy: Policy) -> None:
    template = Closing("\n</a><E>\n", r"<E>|\w+|\W")
    found = continued(template, CALLED, '<call>{"x": 7', RESULT, policy, truncated=True)
    assert found == {'<call>{"x": 7\n</a><E>\n[tool]\n7\n[assistant]\n'}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("said", "truncated"), [("At nine.\n<E>", False), ("At nine.", True)])
def test_a_turn_whose_last_mark_is_one_id_with_its_close_is_closed_once(
    said: str, truncated: bool, policy: Policy
) -> None:
    right = "At nine.\n<E>\n[user]\nWhen?\n[assistant]\n"
    assert continued(Closing("\n<E>\n"), SAID, said, QUESTION, policy, truncated=truncated) == {right}


ENDS_INSIDE = Closing("</a><E>", WHOLE)
"""A turn may end after the first id of the close, which a text may have, too."""


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("content", "said", "right"),
    [
        ("At nine.", "At nine.", "At nine.</a><E>"),
        ("At nine.", "At nine.</a>", "At nine.</a><E>"),
        ("At nine.</a>", "At nine.</a>", "At nine.</a></a><E>"),  # the last id is text
        ("At nine.</a>", "At nine.</a></a>", "At nine.</a></a><E>"),
        ("At nine.</a></a>", "At nine.</a></a>", "At nine.</a></a></a><E>"),
    ],
)
def test_the_message_of_a_cut_turn_shows_how_much_of_its_close_it_sampled(
    content: str, said: str, right: str, policy: Policy
) -> None:
    found = continued(ENDS_INSIDE, example.assistant(content), said, QUESTION, policy, truncated=True)
    assert found == {f"{right}[user]\nWhen?\n[assistant]\n"}


@pytest.mark.parametrize("policy", POLICIES)
def test_the_last_id_of_an_odd_turn_may_be_one_of_its_text_and_its_close(policy: Policy) -> None:
    """A template without special tokens closes a turn with a line break, which merges with a letter."""
    toy, asked, said = toy_named("plain_text"), example.user(), {"role": "assistant", "content": "a"}
    sampled = toy.encode("a\n")
    assert len(sampled) == 1
    prompt = toy([asked], add_generation_prompt=True)
    step = Step(prompt=[asked], completion=[said], prompt_ids=prompt, completion_ids=sampled)
    found = stitch([step], [asked, said, example.user("b")], toy.suffix, toy, policy=policy)
    assert found == [*step.ids, *toy.encode("USER: b\nASSISTANT: ")]


@pytest.mark.parametrize("said", ["At nine.", "At nine.</a>", "At nine.</a></a>"])
def test_a_close_that_begins_with_one_id_twice_is_written_once(said: str) -> None:
    found = continued(Closing("</a></a><E>", WHOLE), SAID, said, QUESTION, Policy(), truncated=True)
    assert found == {"At nine.</a></a><E>[user]\nWhen?\n[assistant]\n"}


@pytest.mark.parametrize("truncated", [True, None])
def test_without_its_message_a_turn_that_may_end_inside_of_its_close_is_refused(
    truncated: bool | None,
) -> None:
    template = ENDS_INSIDE
    bridge = Bridge(template, template.encode("<E>"))
    prompt = template([QUESTION], add_generation_prompt=True)
    for said, count in (("At nine.</a>", None), ("At nine.</a></a>", 6)):
        ids = [*prompt, *template.encode(said)]
        found = bridge.extend(ids, [QUESTION], truncated=truncated, sampled=count)
        detail = "the last id may be the turn's, or its close's: give the turn as `turn`"
        assert found == Refusal(Reason.UNPROVEN_TAIL, detail)
    whole = bridge.extend([*prompt, *template.encode("At nine.</a><E>")], [QUESTION])
    assert isinstance(whole, Extension)
    assert text_of(whole.added) == "[user]\nWhen?\n[assistant]\n"


@pytest.mark.parametrize(
    ("suffix", "end", "tail", "cut", "rest"),
    [
        ((2, 3), [50], (2, 3, 1), Cut(0, 2), (2, 3)),
        ((2, 3), [50, 2], (2, 3, 1), Cut(0, 2, sampled=1), (3,)),
        (
            (7, 2),
            [50, 5, 6],
            (30, 5, 67, 2, 1),
            Cut(3, 1, merged=True),
            (7, 2),
        ),  # 67 is the call's 6 and the close's 7
        ((7, 2), [50, 5, 6], (30, 5, 67, 2, 1), Cut(3, 1), None),  # it may be the call's alone
        ((7, 2), [50, 5, 67], (30, 5, 67, 2, 1), Cut(3, 1, merged=True), (2,)),
        ((7, 2), [50], (30, 5, 67, 2, 1), Cut(3, 1, merged=True), None),  # it broke off in the call
        ((7, 8, 2), [50, 5, 6], (30, 5, 67, 8, 2, 1), Cut(4, 1, merged=True), (7, 8, 2)),
        ((7, 2), [50, 5, 6], (30, 5, 67, 2, 1), Cut(3, 1, whole=True), (2,)),
        ((7, 2), [50, 5, 6], (2, 1), Cut(0, 1), None),
    ],
)
def test_the_rest_of_a_close_whose_first_id_a_call_may_share(
    suffix: tuple[int, ...], end: list[int], tail: tuple[int, ...], cut: Cut, rest: tuple[int, ...] | None
) -> None:
    assert rest_of_close(end, tail, cut, suffix) == rest
