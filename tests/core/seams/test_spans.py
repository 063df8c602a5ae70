"""Which ids of a proven tail belong to which new message, and which of them are its content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.example import CALL, CALLING, RESULT, Recorder, by_parts, each, only_parts, part, shown
from tito_core import Message, Reason, Refusal, TemplateRefused, answer
from tito_core.seams.prove import Proof, prove_questions
from tito_core.seams.spans import TEXTS, MessageSpan, spans_questions
from tito_core.seams.turn import SampledTurn
from tito_core.testing.toys import TOYS, Toy

Plain = dict[str, Any]
APART = Refusal(Reason.UNPROVEN_TAIL, "it is not clear which ids belong to which message")


def proven(
    environment: Sequence[Plain],
    tokenize: Any = example.tokenize,
    message: Plain | None = None,
    suffix: tuple[int, ...] = (example.CLOSE,),
    stops: tuple[int, ...] = (),
) -> Proof:
    turn = SampledTurn(
        message=message or example.assistant(),
        stop=None,
        history=(example.user(),),
        suffix=suffix,
        stops=stops,
    )
    found = answer(prove_questions(turn, tuple(environment)), tokenize)
    assert isinstance(found, Proof)
    return found


def spans(environment: Sequence[Plain], tokenize: Any = example.tokenize, **more: Any) -> Any:
    proof = proven(environment, tokenize, **more)
    return answer(spans_questions(proof), tokenize)


def test_a_message_has_a_place_and_so_has_its_content() -> None:
    assert spans([example.user("more")]) == (MessageSpan(1, 8, 3, 7),)


@pytest.mark.parametrize("message", [example.assistant(), CALLING])
@pytest.mark.parametrize(
    "environment",
    [
        [RESULT],
        [RESULT, example.user("4096")],
        [RESULT, {**RESULT, "content": "8"}, example.user("so?")],
        [{"role": "system", "content": "Quartz"}, example.user("4z"), example.user("Zephyr")],
        [example.user("a"), example.user("a"), example.user("a")],
        [example.user("b"), {**CALLING, "content": "Look."}, RESULT, example.user("b")],
    ],
)
def test_messages_follow_the_close_one_after_the_other(environment: list[Plain], message: Plain) -> None:
    """Whether the turn called is all one: what is left of a call is no part of the tail."""
    proof = proven(environment, message=message)
    found = answer(spans_questions(proof), example.tokenize)
    assert not isinstance(found, Refusal)
    start = proof.cut.closed
    for span, one in zip(found, environment, strict=True):
        own = example.tokenize([one], add_generation_prompt=False)
        assert (span.start, span.stop) == (start, start + len(own))
        assert list(proof.ids[span.start : span.stop]) == own
        assert list(proof.ids[span.content_start : span.content_stop]) == example.text(one["content"])
        start = span.stop
    assert start == len(proof.ids) - proof.generation_prompt


def test_a_message_without_content_has_an_empty_content_at_its_end() -> None:
    empty: list[Plain] = [
        {"role": "user", "content": ""},
        {"role": "user", "content": None},
        {"role": "user"},
        {"role": "user", "content": []},
    ]
    found = spans([example.user("a"), *empty, example.user("b")])
    assert found == (
        MessageSpan(1, 5, 3, 4),
        *(MessageSpan(start, start + 3, start + 3, start + 3) for start in (5, 8, 11, 14)),
        MessageSpan(17, 21, 19, 20),
    )


def test_a_content_of_several_parts_is_one_content() -> None:
    """What the template writes between two parts is in the middle of it."""
    found = spans([{"role": "user", "content": [part("a"), part("b")]}], by_parts, suffix=(40, example.CLOSE))
    assert found == (MessageSpan(2, 9, 4, 7),)
    last = spans([{"role": "user", "content": [part("a")]}], by_parts, suffix=(40, example.CLOSE))
    assert last == (MessageSpan(2, 7, 4, 5),)


def test_a_template_that_takes_only_lists_of_parts_is_asked_in_parts() -> None:
    environment = [example.user("ab"), example.user("c")]
    assert proven(environment, only_parts, suffix=(40, example.CLOSE)).parts
    found = spans(environment, only_parts, suffix=(40, example.CLOSE))
    assert found == (MessageSpan(2, 8, 4, 6), MessageSpan(8, 13, 10, 11))
    assert found == spans(environment, by_parts, suffix=(40, example.CLOSE))


def merging(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write one id for a `k` and the close after it."""
    ids: list[int] = []
    for index in example.tokenize(messages, add_generation_prompt=add_generation_prompt):
        merged = index == example.CLOSE and ids[-1:] == example.text("k")
        ids[len(ids) - merged :] = [1000 if merged else index]
    return ids


def test_an_id_that_a_content_shares_with_the_template_is_its_own() -> None:
    environment = [example.user("hack"), example.user("b"), example.user("k")]
    assert spans(environment, merging) == (
        MessageSpan(1, 7, 3, 7),
        MessageSpan(7, 11, 9, 10),
        MessageSpan(11, 14, 13, 14),
    )


def reversing(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write neighbouring user messages in reverse."""
    shown: list[Message] = []
    start = 0
    for message in messages:
        start = start if message["role"] == "user" else len(shown) + 1
        shown.insert(start if message["role"] == "user" else len(shown), message)
    return example.tokenize(shown, add_generation_prompt=add_generation_prompt)


counting = each(
    lambda m, ids, _: [*ids[:-1], *([500 + len(m["content"])] if m["role"] == "user" else []), ids[-1]]
)
"""Writes after the text of a user's message how long it is."""


def test_messages_that_a_template_mixes_cannot_be_told_apart() -> None:
    """A single one can."""
    assert spans([example.user("ab"), example.user("c")], reversing) == APART
    assert spans([example.user("ab")], reversing) == (MessageSpan(1, 6, 3, 5),)


def test_what_a_template_derives_from_a_content_counts_as_content() -> None:
    """It changes with the content, as a merged id does."""
    assert spans([example.user("ab"), example.user("c")], counting) == (
        MessageSpan(1, 7, 3, 6),
        MessageSpan(7, 12, 9, 11),
    )


def picky(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Refuse conversations that end with a system message, unless the model is to speak."""
    if messages[-1]["role"] == "system" and not add_generation_prompt:
        raise TemplateRefused("a system message is never the last")
    return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


def test_a_question_that_the_template_rejects_is_a_refusal_with_its_text() -> None:
    environment = [{"role": "system", "content": "s"}, example.user("b")]
    assert spans(environment, picky) == Refusal(Reason.TEMPLATE_REFUSED, "a system message is never the last")
    # Where the generation prompt begins is unknown: the template rejects the question without it.
    assert spans(environment[::-1], picky) == (MessageSpan(1, 5, 3, 4), MessageSpan(5, 11, 7, 8))


@pytest.mark.parametrize(("count", "questions"), [(1, 1), (2, 4), (3, 6)])
def test_a_message_takes_two_questions_and_a_single_one_takes_one(count: int, questions: int) -> None:
    """Each has one long message at most, so that the sum is that of the new messages."""
    words = ["a" * 50, "b" * 60, "c" * 70][:count]
    proof = proven(list(map(example.user, words)))
    recorder = Recorder()
    answer(spans_questions(proof), recorder)
    assert len(recorder.asked) == questions
    long = [[m["content"] for m in messages if len(m["content"]) >= 50] for messages in recorder.asked]
    assert sorted(filter(None, long)) == [[word] for word in words if count > 1]


@pytest.mark.parametrize(
    "text", ["4z", "Qy", "s6", "4", "6", "Q", "z", "s", "y", "4096", "Quartz", "sky", " 4z\n"]
)
def test_a_content_that_begins_or_ends_as_a_stand_in_does_is_found_whole(text: str) -> None:
    (span,) = spans([example.user(text)])
    assert span.content_stop - span.content_start == len(text)
    assert len({word[0] for word in TEXTS}) == len({word[-1] for word in TEXTS}) == len(TEXTS) == 3


@pytest.mark.parametrize(
    ("by", "moved"),
    [
        (0, MessageSpan(1, 9, 3, 7)),
        (4, MessageSpan(5, 13, 7, 11)),
        (-2, MessageSpan(0, 7, 1, 5)),
        (-9, MessageSpan(0, 0, 0, 0)),
    ],
)
def test_a_span_that_moves_before_the_first_position_is_cut_there(by: int, moved: MessageSpan) -> None:
    assert MessageSpan(1, 9, 3, 7).moved(by) == moved


ENVIRONMENTS: list[list[Plain]] = [
    [example.user("abba, ab")],
    [example.user("ab"), example.user("ba\n")],
    [{"role": "system", "content": "be ab"}, example.user("4096")],
    [{"role": "developer", "content": "be ab"}],
    [example.user("one"), example.assistant("two"), example.user("three")],
]
RESULTS: list[list[Plain]] = [
    [{**RESULT, "tool_call_id": "a1b2c3d4e", "content": "ab"}],
    [{**RESULT, "tool_call_id": "a1b2c3d4e", "content": "ba"}, example.user("ab?")],
]
CALLED = {**CALLING, "tool_calls": [{**CALL, "id": "a1b2c3d4e"}]}
MERGED = 1
"""How many letters of the template a toy's tokenizer merges with a content."""


@pytest.mark.parametrize("toy", [toy for toy in TOYS if not toy.nondeterministic], ids=repr)
def test_spans_of_every_toy_are_those_that_it_writes(toy: Toy) -> None:
    """A content has its text, and the messages lie one after the other; or there is a refusal."""
    turns = [(example.assistant(), one) for one in ENVIRONMENTS] + [(CALLED, one) for one in RESULTS]
    for message, environment in turns:
        turn = SampledTurn(
            message=message, stop=None, history=(example.user(),), suffix=toy.suffix, stops=toy.stop_ids
        )
        proof = answer(prove_questions(turn, tuple(environment)), toy)
        if isinstance(proof, Refusal):
            continue
        found = answer(spans_questions(proof), toy)
        if isinstance(found, Refusal):
            assert found == APART
            continue
        stop = proof.cut.closed
        for span, one in zip(found, environment, strict=True):
            assert stop == span.start <= span.content_start <= span.content_stop <= span.stop
            stop = span.stop
            written = toy.tokenizer.decode(proof.ids[span.content_start : span.content_stop])
            assert one["content"].strip() in written or one["content"].upper() in written
            assert len(written) <= len(one["content"]) + MERGED
        assert stop == len(proof.ids) - proof.generation_prompt


def test_a_proof_of_a_turn_that_is_written_otherwise_has_no_spans() -> None:
    """The renders of a template that is not deterministic do not fit together."""
    proof = proven([example.user("ab")])
    drifting = [0]

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        drifting[0] += 1
        return [700 + drifting[0], *example.tokenize(messages, add_generation_prompt=add_generation_prompt)]

    assert answer(spans_questions(proof), tokenize) == APART
    moved = attrs.evolve(proof, generation_prompt=3)
    assert answer(spans_questions(moved), example.tokenize) == (MessageSpan(1, 5, 3, 5),)


def test_a_content_that_a_template_writes_in_capitals_is_found_whole() -> None:
    capitals = shown(
        lambda messages: [
            {**one, "content": one["content"].upper()} if one["role"] == "user" else one for one in messages
        ]
    )
    for text in ("4096 in Z", "quartz", "Sky"):
        (found,) = spans([example.user(text)], capitals)
        assert found.content_stop - found.content_start == len(text)
