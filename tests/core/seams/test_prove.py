"""The tail after a turn: what of a template proves it, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tito_core import (
    Message,
    Reason,
    Refusal,
    TemplateRefused,
    answer,
    stitch_questions,
)
from tito_core.bridge import ANYWHERE
from tito_core.seams.close import Cut
from tito_core.seams.experiments import REAL_TEXTS
from tito_core.seams.prove import MOST, MOST_UNKNOWN, TOO_MANY, Proof, prove_questions
from tito_core.seams.seam import SHORT, Seam
from tito_core.seams.turn import LocatedTurn, SampledTurn
from tito_core.seams.turn_form import TurnForm


def turn(suffix: tuple[int, ...] = (example.CLOSE,), stop: int | None = None, **more: Any) -> SampledTurn:
    message = more.pop("message", {"role": "assistant", "content": "x"})
    return SampledTurn(
        message=message, after="user", history=(example.user(),), suffix=suffix, stop=stop, **more
    )


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


@pytest.mark.parametrize("kept", [0, 1])
def test_a_generation_prompt_that_changes_the_close_is_unknown(kept: int) -> None:
    """Whatever follows the turn then counts as environment: nothing shows where the prompt begins."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
        closes = [place for place, index in enumerate(ids) if index == example.CLOSE][kept:]
        changed = [9 if place in closes else index for place, index in enumerate(ids)]
        return ids if add_generation_prompt else changed

    proof = proved(turn((example.CLOSE,)), [example.user("more")], tokenize)
    assert isinstance(proof, Proof)
    assert proof.generation_prompt == 0


def test_a_proof_is_the_tail_from_its_cut_on() -> None:
    seam = Seam(ids=(1, 50, 7, 2, 9), place=2)
    located = LocatedTurn(context=(), form=TurnForm({}), environment=(), seam=seam)
    proof = Proof(located=located, cut=Cut(1, 1), generation_prompt=1)
    assert proof.ids == (2, 9)
    assert proof.ends((8, 50, 7, 2, 9))
    assert not proof.ends((8, 50, 6, 7, 2, 9))  # something more stands between the call and its close
    assert not proof.ends((8, 8, 7, 2, 9))  # the id before may be half of a merge


def proved(asked: SampledTurn, environment: Any, tokenize: Any = example.tokenize) -> Proof | Refusal:
    return answer(prove_questions(asked, tuple(environment)), tokenize)


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


@pytest.mark.parametrize(("content", "kind"), [(7, "int"), ({"a": "b"}, "dict"), (True, "bool")])
def test_a_content_without_texts_is_not_called_dropped(content: Any, kind: str) -> None:
    """The template writes it: only no question can show where."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        written = [{**message, "content": str(message.get("content", ""))} for message in messages]
        return example.tokenize(written, add_generation_prompt=add_generation_prompt)

    refusal = proved(turn((example.CLOSE,)), [{"role": "user", "content": content}], tokenize)
    detail = f"the content of a user message is of type {kind}, and has no texts"
    assert refusal == Refusal(Reason.UNPROVEN_TAIL, detail)


def test_a_message_that_another_is_written_in_place_of_is_named() -> None:
    """All three together grow by as much as three messages of which each is written once."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        said = [str(message.get("content")) for message in messages]
        shown = [
            messages[i - 1] if i and said[i - 1].startswith("again") else message
            for i, message in enumerate(messages)
        ]
        return example.tokenize(shown, add_generation_prompt=add_generation_prompt)

    environment = [example.user("a"), example.user("again"), {"role": "system", "content": "c"}]
    refusal = Refusal(Reason.UNPROVEN_TAIL, "a new user message is not written once after the turn")
    assert proved(turn((example.CLOSE,)), environment[1:], tokenize) == refusal
    assert proved(turn((example.CLOSE,)), environment, tokenize) == refusal


def refusing(words: str) -> Any:
    """Return a template that refuses a conversation with these words."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if words in repr(messages):
            raise TemplateRefused(f"no {words}")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    return tokenize


def test_a_message_that_may_not_be_longer_is_not_said_to_be_dropped() -> None:
    """A template may check what a message says."""
    proof = proved(turn((example.CLOSE,)), [example.user("a"), example.user("b")], refusing("b more"))
    assert isinstance(proof, Proof)


@pytest.mark.parametrize(
    ("history_known", "words", "detail"),
    [
        (True, "Now: Hello.", "the template takes no history where the texts before the turn are others"),
        (
            True,
            "Be kind",
            f"the template takes no history where {REAL_TEXTS}",
        ),
        (False, "no_think", None),  # of an unknown history one of several is enough
    ],
)
def test_a_history_that_the_template_does_not_take_shows_nothing(
    history_known: bool, words: str, detail: str | None
) -> None:
    system = {"role": "system", "content": "Be kind."}
    asked = turn(
        (example.CLOSE,),
        history_known=history_known,
        switched=frozenset[str]() if history_known else ANYWHERE,
    )
    asked = attrs.evolve(asked, history=(system, example.user()) if history_known else ())
    found = proved(asked, [example.user("more")], refusing(words))
    if detail is None:
        assert isinstance(found, Proof)
    else:
        assert found == Refusal(Reason.UNPROVEN_TAIL, detail)


def test_an_unknown_history_needs_one_that_the_template_takes() -> None:
    def short(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if len(messages) > 3:
            raise TemplateRefused("three messages at most")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    asked = attrs.evolve(turn((example.CLOSE,)), history_known=False, history=())
    refusal = Refusal(Reason.UNPROVEN_TAIL, "the template takes no other history")
    assert proved(asked, [example.user("more")], short) == refusal


@pytest.mark.parametrize(("history_known", "most"), [(True, MOST), (False, MOST_UNKNOWN)])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_a_proof_takes_few_questions_however_many_messages_follow(
    count: int, most: int, *, history_known: bool
) -> None:
    recorder = Recorder()
    asked = attrs.evolve(turn((example.CLOSE,)), history_known=history_known)
    assert isinstance(proved(asked, [example.user("a")] * count, recorder), Proof)
    assert len(recorder.asked) <= most


def measuring(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """End a user's message with an id for its length: then each is asked about alone."""
    ids: list[int] = []
    for message in messages:
        own = example.tokenize([message], add_generation_prompt=False)
        ids += [*own[:-1], 500 + len(own), own[-1]] if message["role"] == "user" else own
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def test_a_proof_that_takes_too_many_questions_is_refused() -> None:
    assert isinstance(proved(turn((example.CLOSE,)), [example.user("a")] * 2, measuring), Proof)
    assert proved(turn((example.CLOSE,)), [example.user("a")] * 40, measuring) == TOO_MANY


def quoting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a user's message once more in front of the next message."""
    ids: list[int] = []
    before = ""
    for message in messages:
        ids += [*example.text(before), *example.tokenize([message], add_generation_prompt=False)]
        before = message["content"] if message["role"] == "user" else ""
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def doubling(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a user's message twice, with something between."""
    twice = [
        {**m, "content": f"{m['content']}-{m['content']}"} if m["role"] == "user" else m for m in messages
    ]
    return example.tokenize(twice, add_generation_prompt=add_generation_prompt)


def summing(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write at the end how long all user messages are together."""
    ids = example.tokenize(messages, add_generation_prompt=False)
    asked = sum(len(message["content"]) for message in messages if message["role"] == "user")
    return [*ids, 500 + asked, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


@pytest.mark.parametrize("tokenize", [quoting, doubling, summing])
def test_a_message_that_is_not_written_once_is_refused(tokenize: Any) -> None:
    environment = [example.user("ab"), example.user("c")]
    refusal = Refusal(Reason.UNPROVEN_TAIL, "a new user message is not written once after the turn")
    assert proved(turn((example.CLOSE,)), environment, tokenize) == refusal


def strict_about_results(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Refuse results of calls that nobody made, as some templates do once a call was made."""
    called: set[Any] = set()
    for message in messages:
        called |= {call.get("id") for call in message.get("tool_calls") or ()}
        if message["role"] == "tool" and called and message["tool_call_id"] not in called:
            raise TemplateRefused("a result answers no call")
    return example.tokenize(messages, add_generation_prompt=add_generation_prompt)


def test_results_of_several_earlier_calls_are_called_in_an_unlike_history() -> None:
    strangers = [{**RESULT, "tool_call_id": name} for name in ("x", "y")]
    recorder = Recorder()
    calling = turn((example.CLOSE,), message=CALLING)
    assert isinstance(proved(calling, strangers, recorder), Proof)
    histories = [messages[:-3] for messages, _ in recorder.asked if messages[-2:] == tuple(strangers)]
    called = [[call["id"] for m in past for call in m.get("tool_calls") or ()] for past in histories]
    assert ["x", "y"] in called
    assert isinstance(proved(calling, strangers[:1]), Proof)
    assert isinstance(proved(calling, [RESULT, *strangers[:1]]), Proof)


def test_results_of_earlier_calls_that_only_the_unlike_history_takes_are_a_refusal() -> None:
    """The turn's text cannot be located in a short history, which has no calls to answer."""
    strangers = [{**RESULT, "tool_call_id": name} for name in ("x", "y")]
    refusal = proved(turn((example.CLOSE,), message=CALLING), strangers, strict_about_results)
    assert refusal == Refusal(Reason.TEMPLATE_REFUSED, "a result answers no call")


def test_a_refused_question_has_the_text_of_the_templates_error() -> None:
    refusal = proved(turn((example.CLOSE,)), [{"role": "critic", "content": "x"}])
    assert refusal == Refusal(Reason.TEMPLATE_REFUSED, "no role critic")


@pytest.mark.parametrize("moves", [False, True])
def test_a_text_that_a_template_drops_or_moves_before_the_turn_is_refused(moves: bool) -> None:
    """No other role is tried: vLLM moves what developers say to the beginning, others to nowhere."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        first = [{**m, "role": "system"} for m in messages if m["role"] == "developer"]
        known = [m for m in messages if m["role"] != "developer"]
        return example.tokenize([*first * moves, *known], add_generation_prompt=add_generation_prompt)

    found = proved(turn((example.CLOSE,)), [{"role": "developer", "content": "d"}], tokenize)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.SWALLOWED


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


@pytest.mark.parametrize("after", ["user", "tool"])
@pytest.mark.parametrize("reused", [(), (None,)])
def test_a_template_of_one_call_a_turn_takes_results_without_ids(
    reused: tuple[None, ...], after: str
) -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if any(len(one.get("tool_calls", ())) > 1 for one in messages):
            raise TemplateRefused("one call at once")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    called = {**CALLING, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    asked = attrs.evolve(
        turn((example.CLOSE,), example.CLOSE, message=called, reused=reused), after=after, history=()
    )
    proof = answer(prove_questions(asked, ({"role": "tool", "content": "7"},)), tokenize)
    assert isinstance(proof, Proof), proof
    assert proof.ids[0] == example.CLOSE


@pytest.mark.parametrize("role", ["function", "ipython"])
def test_the_stand_in_history_ends_with_the_role_that_the_real_one_ends_with(role: str) -> None:
    """A template may write results under another name, and remember that it is inside a tool loop."""
    seen: list[str] = []

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        roles = [message["role"] for message in messages]
        last = len(roles) - roles[::-1].index("assistant") - 1
        seen.append(roles[last - 1])
        known = [{**m, "role": "tool"} if m["role"] == role else m for m in messages]
        ids = example.tokenize(known, add_generation_prompt=add_generation_prompt)
        return [*ids, 50] if roles[last - 1] == role else ids

    asked = attrs.evolve(turn((example.CLOSE,)), after=role)
    proof = proved(asked, [example.user("more")], tokenize)
    assert isinstance(proof, Proof)
    assert proof.ids[-1] == 50
    assert set(seen) == {role}


def writing_after_thoughts(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write something after a turn with reasoning; refuse a turn with two calls."""
    ids: list[int] = []
    for message in messages:
        if len(message.get("tool_calls") or ()) > 1:
            raise TemplateRefused("one call at once")
        ids += example.tokenize([message], add_generation_prompt=False)
        ids += [50] if message.get("reasoning") and message["content"] else []
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


THINKING = {**example.assistant(), "reasoning": "Why?"}


TWICE = {**CALLING, "tool_calls": CALLING["tool_calls"] * 2}


@pytest.mark.parametrize("history_known", [False, True])
@pytest.mark.parametrize(
    ("message", "others", "agrees"),
    [
        (example.assistant(), (), True),
        (example.assistant(), (example.assistant("x"),), True),
        (example.assistant(), (THINKING,), False),
        (THINKING, (example.assistant(),), False),
        (THINKING, (), True),
        (CALLING, (TWICE,), True),  # the template takes no such turn: it cannot be the real one
        (CALLING, (TWICE, {**CALLING, "reasoning": "Why?"}), True),
        (CALLING, (TWICE, {**CALLING, "reasoning": "Why?", "content": "Look."}), False),
    ],
)
def test_a_tail_is_that_of_every_turn_that_the_template_takes(
    message: dict[str, Any], others: tuple[dict[str, Any], ...], agrees: bool, history_known: bool
) -> None:
    asked = turn((example.CLOSE,), message=message, others=others, history_known=history_known)
    following = RESULT if message is CALLING else example.user("more")
    found = proved(asked, [following], writing_after_thoughts)
    if agrees:
        assert isinstance(found, Proof)
    else:
        assert found == Refusal(
            Reason.UNPROVEN_TAIL, "the tail differs where the texts before the turn are others"
        )


def naming(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write in front of a result the name of the first call that has its id."""
    ids: list[int] = []
    names: dict[Any, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            names.setdefault(call["id"], call["function"]["name"])
        ids += example.text(names[message["tool_call_id"]]) if message["role"] == "tool" else []
        ids += example.tokenize([message], add_generation_prompt=False)
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


@pytest.mark.parametrize("reused", [(), ("c",)])
def test_a_result_whose_id_may_have_been_called_before_is_named_by_either_call(
    reused: tuple[str, ...],
) -> None:
    found = proved(turn((example.CLOSE,), message=CALLING, reused=reused), [RESULT], naming)
    assert isinstance(found, Refusal if reused else Proof)


def switching(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Open a thought for the model unless the system text says `/no_think`."""
    ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
    off = messages[0]["role"] == "system" and "/no_think" in messages[0]["content"]
    return ids if off or not add_generation_prompt else [*ids, 60]


@pytest.mark.parametrize(("words", "prompt"), [("Be kind.", 3), ("Be kind. /no_think", None)])
def test_a_switch_in_an_unknown_history_is_a_refusal(words: str, prompt: int | None) -> None:
    system = {"role": "system", "content": words}
    known = attrs.evolve(turn((example.CLOSE,)), history=(system, example.user()))
    unknown = attrs.evolve(known, history=(), history_known=False)
    found, refusal = (proved(asked, [example.user("more")], switching) for asked in (known, unknown))
    detail = "the tail differs where an earlier message switches reasoning on or off"
    assert refusal == Refusal(Reason.UNPROVEN_TAIL, detail)
    assert (found.generation_prompt if isinstance(found, Proof) else None) == prompt


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_switch_in_an_earlier_message_is_seen(role: str) -> None:
    """Only the real history's opening and last user message are asked about."""

    def remembering(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
        off = any(
            "/no_think" in str(message.get("content")) for message in messages if message["role"] == role
        )
        return ids if off or not add_generation_prompt else [*ids, 60]

    asked = turn((example.CLOSE,))
    assert isinstance(proved(asked, [example.user("more")], remembering), Proof)
    assert isinstance(
        proved(attrs.evolve(asked, switched=ANYWHERE - {role}), [example.user("more")], remembering), Proof
    )
    switched = attrs.evolve(asked, switched=frozenset((role,)))
    refusal = proved(switched, [example.user("more")], remembering)
    assert refusal == Refusal(
        Reason.UNPROVEN_TAIL, "the tail differs where the texts before the turn are others"
    )


def part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def by_parts(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write a mark after each part of a content, and a string as one part."""
    ids: list[int] = []
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [one["text"] for one in content]
        own = example.tokenize([{**message, "content": ""}], add_generation_prompt=False)
        ids += [*own[:2], *(index for text in parts for index in [*example.text(text), 40]), *own[2:]]
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def test_a_content_in_two_text_parts_is_asked_about_in_two() -> None:
    """The second ends where the turn ends; a template may join the two in its own way."""
    asked: list[Sequence[Message]] = []

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked.append(messages)
        return by_parts(messages, add_generation_prompt=add_generation_prompt)

    message = {"role": "assistant", "content": [part("a"), part("b")]}
    proof = proved(turn((40, example.CLOSE), message=message), [example.user("more")], tokenize)
    assert isinstance(proof, Proof)
    assert proof.ids == (40, example.CLOSE, *by_parts([example.user("more")], add_generation_prompt=True))
    turns = [one["content"] for messages in asked for one in messages[-2:] if one["role"] == "assistant"]
    assert [[sorted(text) for text in content] for content in turns] == [[["text", "type"]] * 2] * len(turns)
    assert turns[0] == [part("So."), part(SHORT)]
    assert turns[1][0] == turns[0][0]


def only_parts(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Take no content but a list of parts."""
    if any(isinstance(message.get("content"), str) for message in messages):
        raise TemplateRefused("a content is a list of parts")
    return by_parts(messages, add_generation_prompt=add_generation_prompt)


def silent_about_texts(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write nothing of a content that is a string."""
    shown = [
        {**m, "content": [] if isinstance(m.get("content"), str) else m.get("content")} for m in messages
    ]
    return by_parts(shown, add_generation_prompt=add_generation_prompt)


@pytest.mark.parametrize("tokenize", [only_parts, silent_about_texts])
@pytest.mark.parametrize("message", [example.assistant(), {"role": "assistant", "content": [part("x")]}])
def test_a_template_that_takes_only_lists_of_parts_is_asked_in_parts(
    tokenize: Any, message: dict[str, Any]
) -> None:
    proof = proved(turn((40, example.CLOSE), message=message), [example.user("more")], tokenize)
    assert isinstance(proof, Proof)
    assert proof.parts
    assert proof.ids == (40, example.CLOSE, *by_parts([example.user("more")], add_generation_prompt=True))
    texts = proved(turn((40, example.CLOSE), message=message), [example.user("more")], by_parts)
    assert isinstance(texts, Proof)
    assert (texts.ids, texts.parts) == (proof.ids, False)


def test_what_a_template_refuses_in_parts_too_is_refused() -> None:
    refusal = proved(turn((40, example.CLOSE)), [{"role": "critic", "content": "x"}], only_parts)
    assert refusal == Refusal(Reason.TEMPLATE_REFUSED, "a content is a list of parts")


def test_a_template_that_takes_texts_is_not_asked_in_parts() -> None:
    """It refuses, or loses the turn, for another reason: that is seen with two short questions."""
    recorder = Recorder()
    refusal = proved(turn((example.CLOSE,)), [{"role": "critic", "content": "x"}], recorder)
    assert refusal == Refusal(Reason.TEMPLATE_REFUSED, "no role critic")
    contents = [message["content"] for messages, _ in recorder.asked for message in messages]
    assert all(isinstance(content, str) for content in contents)
    assert [[m["role"] for m in messages] for messages, _ in recorder.asked[-2:]] == [
        ["user", "assistant"],
        ["user", "assistant"],
    ]


@pytest.mark.parametrize("given", [{}, {"content": None}])
def test_a_call_without_a_content_is_asked_about_with_an_empty_one_where_the_template_takes_no_other(
    given: dict[str, Any],
) -> None:
    """DeepSeek-V3.1 and QwQ-32B read a text there, which OpenAI's clients do not send, and servers add."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if any(message.get("content") is None for message in messages):
            raise TemplateRefused("a content is a text")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    function = {"name": "f", "arguments": '{"x": 1}'}
    calling = {"role": "assistant", **given, "tool_calls": [{"id": "c", "function": function}]}
    result = [{"role": "tool", "tool_call_id": "c", "content": "7"}]
    found, expected = (
        proved(attrs.evolve(turn((example.CLOSE,)), message=message), result, tokenize)
        for message in (calling, {**calling, "content": ""})
    )
    assert isinstance(found, Proof)
    assert found == expected


LOOKUP = {"function": {"name": "f", "arguments": '{"x": 1}'}, "id": "c", "type": "function"}
CONTENTLESS = [{"role": "assistant", "tool_calls": [LOOKUP], **given} for given in ({}, {"content": None})]


@pytest.mark.parametrize("calling", CONTENTLESS)
@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_a_call_without_a_content_may_need_an_empty_one_in_some_histories_only(
    calling: dict[str, Any], most: int
) -> None:
    """DeepSeek-V3.1's template fails for it after an earlier call."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if any(message.get("content") is None for message in messages[most:]):
            raise TemplateRefused("a content is a text")
        return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

    found, expected = (
        proved(turn((example.CLOSE,), message=one), [RESULT], tokenize)
        for one in (calling, {**calling, "content": ""})
    )
    assert isinstance(found, Proof), found
    assert isinstance(expected, Proof)
    assert (found.ids, found.cut) == (expected.ids, expected.cut)


@pytest.mark.parametrize("calling", CONTENTLESS)
def test_a_call_whose_empty_content_is_written_otherwise_than_none_is_refused(
    calling: dict[str, Any],
) -> None:
    """An engine may be sent the one or the other."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for message in messages:
            mark = [50] * (bool(message.get("tool_calls")) and message.get("content") == "")
            ids += [*example.tokenize([message], add_generation_prompt=False), *mark]
        return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids

    refusal = "the tail differs where a call has an empty content in place of none"
    found = proved(turn((example.CLOSE,), message=calling), [RESULT], tokenize)
    assert found == Refusal(Reason.UNPROVEN_TAIL, refusal)


def leaves_out_silence(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write no assistant message that says nothing."""
    shown = [one for one in messages if one["role"] != "assistant" or one.get("content")]
    return example.tokenize(shown, add_generation_prompt=add_generation_prompt)


def closes_silence(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Close an assistant message that says nothing with another id."""
    ids: list[int] = []
    for message in messages:
        silent = message["role"] == "assistant" and not message.get("content")
        own = example.tokenize([message], add_generation_prompt=False)
        ids += [*own[:-1], 5] if silent else own
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


SILENT = [{"role": "assistant", **said} for said in ({"content": ""}, {"content": None}, {})]


@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize(
    ("tokenize", "proven"),
    [(example.tokenize, True), (leaves_out_silence, False), (closes_silence, False)],
)
def test_a_turn_that_says_nothing_is_refused_unless_it_is_closed_as_others_are(
    tokenize: Any, silent: dict[str, Any], *, proven: bool
) -> None:
    found = proved(turn((example.CLOSE,), message=silent), [example.user("more")], tokenize)
    if proven:
        assert isinstance(found, Proof)
        assert found.ids == (
            example.CLOSE,
            *example.tokenize([example.user("more")], add_generation_prompt=True),
        )
    else:
        assert found == Refusal(Reason.UNPROVEN_TAIL, "the tail differs where the turn says nothing")
    assert isinstance(proved(turn((example.CLOSE,)), [example.user("more")], tokenize), Proof)


def writes_strings(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write nothing of a content that is a list."""
    shown = [{**one, "content": ""} if isinstance(one.get("content"), list) else one for one in messages]
    return example.tokenize(shown, add_generation_prompt=add_generation_prompt)


def drops_lists(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write no message whose content is a list."""
    shown = [one for one in messages if not isinstance(one.get("content"), list)]
    return example.tokenize(shown, add_generation_prompt=add_generation_prompt)


@pytest.mark.parametrize("tokenize", [example.tokenize, writes_strings])
@pytest.mark.parametrize("content", ["", [], None])
def test_an_empty_result_that_the_template_writes_is_not_called_dropped(tokenize: Any, content: Any) -> None:
    """MCP's tools return an empty list of blocks where they found nothing."""
    empty = {**RESULT, "content": content}
    for environment in ([empty], [empty, example.user("more")]):
        found = proved(turn((example.CLOSE,), message=CALLING), environment, tokenize)
        assert isinstance(found, Proof), found
        assert found.ids == (example.CLOSE, *tokenize(environment, add_generation_prompt=True))


def test_an_empty_result_that_the_template_leaves_out_is_called_dropped() -> None:
    environment = [{**RESULT, "content": []}, example.user("more")]
    found = proved(turn((example.CLOSE,), message=CALLING), environment, drops_lists)
    assert found == Refusal(Reason.SWALLOWED, "a tool message leaves no trace after the turn")
    said = [{**RESULT, "content": [part("7")]}, example.user("more")]
    lost = proved(turn((example.CLOSE,), message=CALLING), said, writes_strings)
    assert lost == Refusal(Reason.SWALLOWED, "a tool message leaves no trace after the turn")


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_switch_in_an_earlier_question_is_seen_before_a_system_text(role: str) -> None:
    """The question before that text is the last one, and says nothing of it."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        known = [{**one, "role": "system"} if one["role"] == role else one for one in messages]
        ids = example.tokenize(known, add_generation_prompt=add_generation_prompt)
        off = any("/no_think" in str(one.get("content")) for one in messages if one["role"] == "user")
        return [*ids, 60] if off and add_generation_prompt else ids

    past = [
        example.user("hi /no_think"),
        example.assistant("b"),
        example.user("c"),
        {"role": role, "content": "Be kind."},
    ]
    step = example.step(past, "hello", prompt_ids=tokenize(past, add_generation_prompt=True))
    asked = stitch_questions([step], [*step.messages, example.user("more")], (example.CLOSE,))
    assert isinstance(answer(asked, tokenize), Refusal)
