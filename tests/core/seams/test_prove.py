"""Where a turn's own text is over: the arithmetic on tails, and the questions behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.toys import STEADY
from tito_core import Message, Reason, Refusal, Stitched, TemplateRefused, answer, stitch, stitch_questions
from tito_core.seams.prove import (
    CallClose,
    LocatedTurn,
    Proof,
    SampledTurn,
    _call_close,
    _stops,
    _suffixes,
    prove_questions,
)
from tito_core.seams.seam import OTHER, SHORT, Seam
from tito_core.seams.stand_in import TurnForm

CHATML = next(toy for toy in STEADY if toy.name == "chatml")
SUFFIX = (2, 3)


def turn(suffix: tuple[int, ...] = SUFFIX, stop: int | None = None, **more: Any) -> SampledTurn:
    message = more.pop("message", {"role": "assistant", "content": "x"})
    return SampledTurn(
        message=message, after="user", history=(example.user(),), suffix=suffix, stop=stop, **more
    )


@pytest.mark.parametrize(
    ("tail", "shared", "end", "places"),
    [
        ((7, 2, 3, 9), 3, 3, [1]),  # in what is always written
        ((7, 2, 3, 9), 2, 3, []),  # half of it depends on what follows
        ((7, 8, 2, 3), 2, 2, [2]),  # right after it
        ((7, 8, 2, 3), 1, 2, []),
        ((2, 3, 2, 3), 4, 4, [0, 2]),
        ((2, 2, 3), 3, -1, [1]),
        ((7, 8), 2, 2, []),
    ],
)
def test_where_the_suffix_stands_after_a_call(
    tail: tuple[int, ...], shared: int, end: int, places: list[int]
) -> None:
    assert _suffixes(tail, turn(), CallClose(shared, end)) == places


def test_an_empty_suffix_is_never_found() -> None:
    assert _suffixes((7, 8), turn(suffix=()), CallClose(2, 2)) == []


@pytest.mark.parametrize(
    ("suffix", "tail", "shared", "end", "places"),
    [
        (SUFFIX, (7, 5, 9), 2, 2, [1]),  # the last id before anything follows
        (SUFFIX, (5, 9), 1, 1, [0]),
        (SUFFIX, (7, 5, 2, 3), 2, 2, []),  # the suffix itself is there
        (SUFFIX, (5, 7, 9), 2, 2, []),  # it belongs to the call
        (SUFFIX, (5, 5, 9), 2, 2, []),  # one of two: which of them, nobody knows
        (SUFFIX, (7, 5, 9), 1, 1, [1]),  # it opens what follows
        (SUFFIX, (7, 5, 9), 2, 1, []),  # what follows does not begin there
        ((), (5, 1), 0, 0, [0]),
        ((), (7, 5), 2, 2, [1]),
        ((), (5, 1), 1, -1, []),
        ((), (6, 1), 0, 0, []),
    ],
)
def test_where_the_sampled_stop_ends_a_call(
    suffix: tuple[int, ...], tail: tuple[int, ...], shared: int, end: int, places: list[int]
) -> None:
    assert _stops(tail, turn(suffix, stop=5), CallClose(shared, end)) == places


CALLING: dict[str, Any] = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "7"}


class Recorder:
    """`talk`, keeping what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[Sequence[Message], bool]] = []

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        self.asked.append((messages, add_generation_prompt))
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


def found(environment: tuple[dict[str, Any], ...] = (RESULT,)) -> LocatedTurn:
    context, form = (example.user("Hello."),), TurnForm(CALLING, -1)
    ids = example.tokenize([*context, form.write(SHORT), *environment], add_generation_prompt=True)
    rest = example.tokenize(environment, add_generation_prompt=True)
    return LocatedTurn(context, form, environment, Seam(tuple(ids), len(ids) - len(rest) - 3))


def test_the_end_of_a_call_is_asked_with_nothing_after_it() -> None:
    recorder = Recorder()
    assert answer(_call_close(found()), recorder) == CallClose(shared=4, end=3)  # `"`, `}`, CLOSE, and OPEN
    arguments = [m[1]["tool_calls"][0]["function"]["arguments"] for m, _ in recorder.asked]
    assert [text in given for text, given in zip((OTHER, SHORT, SHORT), arguments, strict=True)] == [True] * 3
    assert [(len(m), speaks) for m, speaks in recorder.asked] == [(3, True), (2, True), (2, False)]


def test_a_call_that_is_written_only_when_the_model_speaks_has_no_known_end() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        shown = messages if add_generation_prompt else [m for m in messages if m["role"] != "assistant"]
        return example.tokenize(shown, add_generation_prompt=add_generation_prompt)

    assert answer(_call_close(found()), tokenize) == CallClose(shared=4, end=-1)


def test_a_generation_prompt_that_changes_the_close_is_unknown() -> None:
    """Whatever follows the turn then counts as environment: nothing shows where the prompt begins."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
        return ids if add_generation_prompt else [9 if index == example.CLOSE else index for index in ids]

    proof = proved(turn((example.CLOSE,)), [example.user("more")], tokenize)
    assert isinstance(proof, Proof)
    assert proof.generation_prompt == 0


def test_a_call_that_is_not_written_at_the_end_has_no_close() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        last = messages[-1]["role"] == "assistant"
        return example.tokenize(
            messages[:-1] if last else messages, add_generation_prompt=add_generation_prompt
        )

    assert answer(_call_close(found()), tokenize) is None


def test_a_proof_is_the_tail_from_its_cut_on() -> None:
    seam = Seam(ids=(1, 50, 7, 2, 9), place=2)
    proof = Proof(LocatedTurn((), TurnForm({}), (), seam), cut=1, close=(2,), generation_prompt=1)
    assert proof.ids == (2, 9)
    assert proof.ends((8, 7, 2, 9))
    assert not proof.ends((8, 8, 2, 9))  # the id before the close may be half of a merge


def proved(asked: SampledTurn, environment: Any, tokenize: Any = example.tokenize) -> Proof | Refusal:
    return answer(prove_questions(asked, tuple(environment)), tokenize)


def test_a_plain_turn_is_closed_by_the_suffix_or_by_its_stop() -> None:
    environment = [example.user("more")]
    bridge = (example.CLOSE, *example.tokenize(environment, add_generation_prompt=True))
    for asked in (turn((example.CLOSE,)), turn((), stop=example.CLOSE), turn((77,), stop=example.CLOSE)):
        proof = proved(asked, environment)
        assert isinstance(proof, Proof)
        assert (proof.ids, proof.cut, proof.close, proof.generation_prompt) == (
            bridge,
            0,
            (example.CLOSE,),
            2,
        )


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
    assert (unknown.reason, unknown.detail[:1]) == (Reason.UNPROVEN_TAIL, "0")


@pytest.mark.parametrize(
    ("lost", "role"), [((1,), "tool"), ((0,), "user"), ((0, 1), "user"), ((2,), "system")]
)
def test_the_message_that_a_template_drops_is_named_by_its_role(lost: tuple[int, ...], role: str) -> None:
    """Whichever it is, and where a neighbour of it is written."""
    environment = [example.user("a"), {"role": "tool", "content": "b"}, {"role": "system", "content": "c"}]

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        start = len(messages) - len(environment)
        shown = [m for i, m in enumerate(messages) if i - start not in lost]
        return example.tokenize(shown, add_generation_prompt=add_generation_prompt)

    refusal = proved(turn((example.CLOSE,)), environment, tokenize)
    assert refusal == Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")


def test_results_of_several_earlier_calls_are_a_refusal() -> None:
    strangers = [{**RESULT, "tool_call_id": name} for name in ("x", "y")]
    refusal = proved(turn((example.CLOSE,), message=CALLING), strangers)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, "earlier" in refusal.detail) == (Reason.UNPROVEN_TAIL, True)
    assert isinstance(proved(turn((example.CLOSE,), message=CALLING), strangers[:1]), Proof)
    assert isinstance(proved(turn((example.CLOSE,), message=CALLING), [RESULT, *strangers[:1]]), Proof)
    later = [{**CALLING, "tool_calls": [{**CALLING["tool_calls"][0], "id": "y"}]}, strangers[1]]
    assert isinstance(proved(turn((example.CLOSE,), message=CALLING), [strangers[0], *later]), Proof)


def test_a_refused_question_has_the_text_of_the_templates_error() -> None:
    refusal = proved(turn((example.CLOSE,)), [{"role": "critic", "content": "x"}])
    assert refusal == Refusal(Reason.TEMPLATE_REFUSED, "no role critic")


def test_a_template_that_does_not_know_developers_is_asked_about_the_system() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        known = [m for m in messages if m["role"] != "developer"]
        return example.tokenize(known, add_generation_prompt=add_generation_prompt)

    proof = proved(turn((example.CLOSE,)), [{"role": "developer", "content": "d"}], tokenize)
    assert isinstance(proof, Proof)
    assert proof.located.environment == ({"role": "system", "content": "d"},)


def test_a_turn_knows_the_messages_before_it() -> None:
    messages = [example.user("a"), example.assistant("b"), example.user("c")]
    assert turn(prompt=messages, place=1).past == (example.user("a"),)
    assert turn().past == ()


def test_the_stitched_prompt_of_a_call_has_its_close_once() -> None:
    call = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]
    assistant = {"role": "assistant", "content": "", "tool_calls": call}
    asked = [{"role": "user", "content": "hi"}]
    step = example.step(
        asked, prompt_ids=[1, 2], sampled=[*CHATML.sample([*asked, assistant]), CHATML.stop_ids[0]]
    )
    step = type(step)(
        prompt=asked, completion=[assistant], prompt_ids=[1, 2], completion_ids=step.completion_ids
    )
    ids = stitch([step], [*step.messages, RESULT], CHATML.suffix, CHATML)
    assert ids is not None
    rendered = CHATML([*asked, assistant, RESULT], add_generation_prompt=True)
    start = len(CHATML(asked, add_generation_prompt=True))
    assert ids[2:] == rendered[start:]
    result = answer(stitch_questions([step], [*step.messages, RESULT], CHATML.suffix), CHATML)
    assert isinstance(result, Stitched)
    assert result.inserted_close == CHATML.suffix[1:]


def test_the_end_of_a_call_that_is_not_written_last_cannot_be_shown() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        last = messages[-1]["role"] == "assistant"
        return example.tokenize(
            messages[:-1] if last else messages, add_generation_prompt=add_generation_prompt
        )

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


def test_a_tail_that_depends_on_the_role_before_the_turn_is_proven() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
        roles = [message["role"] for message in messages]
        spoke = len(roles) - roles[::-1].index("assistant") - 1
        return [*ids, 50] if roles[:spoke][-1:] == ["tool"] else ids

    for before, quiet in (("tool", (50,)), ("user", ())):
        proof = proved(attrs.evolve(turn((example.CLOSE,)), after=before), [example.user("more")], tokenize)
        assert isinstance(proof, Proof)
        assert proof.ids == (
            example.CLOSE,
            *example.tokenize([example.user("more")], add_generation_prompt=True),
            *quiet,
        )


def test_a_form_that_rendered_outranks_one_that_the_template_rejected() -> None:
    """The first form loses the text, the second is rejected: the reason is that the text is lost."""

    def tokenize(messages: Any, *, add_generation_prompt: bool) -> list[int]:
        arguments = [call["function"]["arguments"] for m in messages for call in m.get("tool_calls", ())]
        if any(isinstance(one, dict) for one in arguments):
            raise TemplateRefused("arguments must be a string")
        return [1, 2, 3] if add_generation_prompt else [1, 2]

    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    calling = attrs.evolve(turn((2,)), message={"role": "assistant", "content": None, "tool_calls": [call]})
    refusal = proved(calling, [{"role": "tool", "tool_call_id": "a", "content": "7"}], tokenize)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNPROVEN_TAIL
