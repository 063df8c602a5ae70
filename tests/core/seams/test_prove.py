"""Where a turn's own text is over: the arithmetic on tails, and the questions behind it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import attrs
import pytest

from tests.core import example
from tito_core import Message, Reason, Refusal, Stitched, TemplateRefused, answer, stitch, stitch_questions
from tito_core.bridge import ANYWHERE
from tito_core.media.ranges import Placeholders
from tito_core.message import Messages, texts_in
from tito_core.seams.close import Cut
from tito_core.seams.prove import Proof, prove_questions
from tito_core.seams.seam import SHORT, Seam
from tito_core.seams.stand_in import (
    NO_KEY,
    OFF,
    ON,
    SWITCHED,
    TurnForm,
    akin_histories,
    contexts,
    in_loop,
)
from tito_core.seams.turn import LocatedTurn, SampledTurn
from tito_core.testing.toys import LOCAL_TOYS

CHATML = next(toy for toy in LOCAL_TOYS if toy.name == "chatml")
SUFFIX = (2, 3)


def turn(suffix: tuple[int, ...] = SUFFIX, stop: int | None = None, **more: Any) -> SampledTurn:
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


def found(environment: tuple[dict[str, Any], ...] = (RESULT,)) -> LocatedTurn:
    context, form = (example.user("Hello."),), TurnForm(CALLING, -1)
    ids = example.tokenize([*context, form.write(SHORT), *environment], add_generation_prompt=True)
    rest = example.tokenize(environment, add_generation_prompt=True)
    seam = Seam(tuple(ids), len(ids) - len(rest) - 3)
    return LocatedTurn(context=context, form=form, environment=environment, seam=seam)


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
    assert unknown.reason is Reason.CLOSE_MISMATCH


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
    """All three together add as much as three messages of which each is written once."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        said = [str(message.get("content")) for message in messages]
        shown = [
            messages[i - 1] if i and said[i - 1].startswith("again") else message
            for i, message in enumerate(messages)
        ]
        return example.tokenize(shown, add_generation_prompt=add_generation_prompt)

    environment = [example.user("a"), example.user("again"), {"role": "system", "content": "c"}]
    refusal = Refusal(Reason.SWALLOWED, "a system message leaves no trace after the turn")
    assert proved(turn((example.CLOSE,)), environment[1:], tokenize) == refusal
    assert proved(turn((example.CLOSE,)), environment, tokenize) == refusal


@pytest.mark.parametrize(("count", "questions"), [(1, 1), (2, 2), (3, 2), (5, 2)])
def test_several_messages_that_leave_a_trace_take_two_questions(count: int, questions: int) -> None:
    """All are lengthened at once, and the first alone: its share tells that of the others."""
    recorder = Recorder()
    assert isinstance(proved(turn((example.CLOSE,)), [example.user("a")] * count, recorder), Proof)
    longer = [m for m, _ in recorder.asked if any(one["content"].endswith(" more") for one in m[-count:])]
    assert len([m for m in longer if m[-count - 1]["content"] == SHORT]) == questions


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
    ("history_known", "words", "proven"),
    [
        (True, "Now: Hello.", False),  # no unlike history is taken
        (True, "Be kind", False),  # the real history's words are not
        (False, "no_think", True),  # of an unknown history one of several is enough
        (False, "think", False),  # none is
    ],
)
def test_a_history_that_the_template_does_not_take_shows_nothing(
    history_known: bool, words: str, proven: bool
) -> None:
    system = {"role": "system", "content": "Be kind."}
    asked = turn(
        (example.CLOSE,),
        history_known=history_known,
        switched=frozenset[str]() if history_known else ANYWHERE,
    )
    asked = attrs.evolve(asked, history=(system, example.user()) if history_known else ())
    found = proved(asked, [example.user("more")], refusing(words))
    if proven:
        assert isinstance(found, Proof)
    else:
        assert found == Refusal(Reason.UNPROVEN_TAIL, "the tail depends on the history before it")


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


def one(*histories: Any) -> tuple[bool, list[Any]]:
    """Return a group of which one member must be taken."""
    return True, list(histories)


def groups(asked: SampledTurn, *given: Any) -> list[tuple[bool, list[Any]]]:
    return [(needed, list(group)) for needed, group in asked.histories(*given)]


NAMED, EACH = (("c", "x"),), (("c",), ("x",))


def test_a_turn_whose_history_is_known_stands_in_an_unlike_one_and_in_one_akin_to_it() -> None:
    assert groups(turn(message=CALLING)) == [
        one(contexts("user").unlike),
        one(akin_histories("user", (example.user(),))),
    ]


def test_ids_that_earlier_calls_may_have_are_called_in_one_turn_or_in_one_each() -> None:
    asked = turn(message=CALLING, reused=("c",))
    calls = [*contexts("user", NAMED).calling, *contexts("user", EACH).calling]
    assert groups(asked, ["x"])[1:-1] == [one(calls)]


def test_a_missing_id_is_none_or_has_no_key_and_a_tool_may_have_been_called_by_another_id() -> None:
    forms = [[*contexts("user", ((missing,),)).calling] for missing in (None, NO_KEY)]
    assert groups(turn(message=CALLING, reused=(None,)))[1:-1] == [one(*forms)]
    assert groups(turn(message=CALLING), [], ["f"])[1:-1] == [one(contexts("user", name="f").calling)]


SYSTEM_TEXT = {"role": "system", "content": "s"}


@pytest.mark.parametrize(
    ("between", "loop"),
    [
        ([], ()),
        ([SYSTEM_TEXT], ("system",)),
        ([example.user(), example.user()], ("user",)),
        ([example.assistant()], ("assistant",)),
        ([example.user(), SYSTEM_TEXT, example.assistant()], ("user", "system", "assistant")),
        ([example.assistant(), example.user()], ()),  # an answer, and a new question
        ([CALLING, example.user()], ()),
    ],
)
def test_what_follows_a_result_is_asked_about_in_a_loop(
    between: list[Message], loop: tuple[str, ...]
) -> None:
    prompt = [example.user(), CALLING, RESULT, *between]
    last = str(prompt[-1]["role"])
    for given in (prompt, Messages.of(prompt)):
        asked = attrs.evolve(turn(message=CALLING, prompt=given, place=len(prompt)), after=last)
        assert asked.loop == loop
        assert groups(asked)[1:-1] == [one(in_loop(loop))] * bool(loop)
        reused = attrs.evolve(asked, reused=("c",))
        loops = [in_loop(loop, (("c",),))] * 2 * bool(loop)
        called = contexts(last, (("c",),)).calling
        assert groups(reused)[-2] == one([*called, *called], *loops)


def test_a_loop_is_looked_for_in_the_last_messages() -> None:
    texts = [SYSTEM_TEXT, example.user()] * 40
    for many, loop in ((31, ("system", "user")), (32, ())):
        prompt = [example.user(), CALLING, RESULT, *texts[: 2 * many]]
        asked = turn(message=CALLING, prompt=prompt, place=len(prompt))
        assert set(asked.loop) == set(loop)


def test_a_turn_whose_history_is_unknown_stands_in_every_kind_that_templates_tell_apart() -> None:
    asked = turn(message=CALLING, reused=("c",), history_known=False)
    members = [[*contexts(role, NAMED).calling, *contexts(role, EACH).calling] for role in ("user", "tool")]
    assert groups(asked, ["x"]) == [
        *((False, [contexts(role).unlike]) for role in ("user", "tool", "system", "developer")),
        one(*members),
        *((False, [(history,)]) for history in SWITCHED),
    ]


@pytest.mark.parametrize("shown", [0, 3])
def test_every_history_without_the_real_texts_has_its_switches_and_its_last_role(shown: int) -> None:
    """So has each with media: one for each kind, and one with as many as there are, where there are any."""
    media = Placeholders.of({"image": [7]})
    asked = turn(
        message=CALLING, reused=("c",), switched=frozenset({"user"}), placeholders=media, shown=shown
    )
    *unlike, akin = groups(asked, ["x"])
    assert len(unlike) == 4 + (shown > 0)
    assert akin == one(akin_histories("user", (example.user(),)))
    for history in chain.from_iterable(chain.from_iterable(group for _, group in unlike)):
        assert history[-1]["role"] == "user"
        assert any(word in text for m in history for text in texts_in(m) for word in (OFF, ON))


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


@pytest.mark.parametrize(("shown", "most"), [(0, 1), (1, 1), (5, 5), (64, 64), (65, 64)])
def test_a_stand_in_history_shows_as_many_images_as_the_real_one_and_64_at_most(
    shown: int, most: int
) -> None:
    asked = turn(placeholders=Placeholders.of({"image": [7]}), shown=shown)
    for histories in ([asked.unlike], [one for _, group in asked.histories() for one in group]):
        contents = [message["content"] for group in histories for one in group for message in one]
        images = [sum(part["type"] == "image" for part in one) for one in contents if isinstance(one, list)]
        assert max(images) == most


@pytest.mark.parametrize(
    ("history", "roles"),
    [
        ((), ["user"]),
        ((example.user(),), ["user"]),
        (({"role": "system", "content": "s"}, example.user()), ["system", "user"]),
        (({"role": "developer", "content": "d"},), ["system", "user"]),
    ],
)
def test_the_likely_history_is_opened_by_a_system_text_if_the_real_one_is(
    history: tuple[dict[str, Any], ...], roles: list[str]
) -> None:
    (likely,) = attrs.evolve(turn(), history=history).likely
    assert [message["role"] for message in likely] == roles


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
        assert found == Refusal(Reason.UNPROVEN_TAIL, "the tail depends on the history before it")


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
    assert refusal == Refusal(Reason.UNPROVEN_TAIL, "the tail depends on the history before it")
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
    assert refusal == Refusal(Reason.UNPROVEN_TAIL, "the tail depends on the history before it")


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


def two_closes(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Close a turn that calls with 5, any other message with CLOSE."""
    ids: list[int] = []
    for message in messages:
        ids += example.tokenize([message], add_generation_prompt=False)
        ids[-1] = 5 if message.get("tool_calls") else example.CLOSE
    return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


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
