"""The tail after a turn: what of a template proves it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.example import (
    CALL,
    CALLING,
    RESULT,
    Recorder,
    each,
    only_parts,
    part,
    refusing,
    shown,
    speaking,
    user,
)
from tito_core import Message, Reason, Refusal, TokenizeFn, answer, stitch_questions
from tito_core.bridge import ANYWHERE
from tito_core.seams.close import Cut
from tito_core.seams.experiments import REAL_TEXTS
from tito_core.seams.prove import MOST, MOST_UNKNOWN, TOO_MANY, Proof, prove_questions
from tito_core.seams.seam import SHORT, Seam
from tito_core.seams.turn import LocatedTurn, SampledTurn
from tito_core.seams.turn_form import TurnForm

Plain = dict[str, Any]
MORE = [user("more")]
SYSTEM: Plain = {"role": "system", "content": "c"}
CRITIC: Plain = {"role": "critic", "content": "x"}
THINKING: Plain = {**example.assistant(), "reasoning": "Why?"}
TWO_CALLS: Plain = {**CALLING, "tool_calls": [CALL, CALL]}
STRANGERS = [{**RESULT, "tool_call_id": name} for name in ("x", "y")]
EMPTY_CONTENTS: tuple[Any, ...] = ("", [], None)
EMPTY: tuple[Plain, ...] = ({"content": ""}, {"content": None}, {})


def turn(suffix: tuple[int, ...] = (example.CLOSE,), stop: int | None = None, **more: Any) -> SampledTurn:
    usual = {"message": {"role": "assistant", "content": "x"}, "after": "user", "history": (user(),)}
    return SampledTurn(**(usual | {"suffix": suffix, "stop": stop} | more))


def proved(asked: SampledTurn, environment: Any, tokenize: Any = example.tokenize) -> Proof | Refusal:
    return answer(prove_questions(asked, tuple(environment)), tokenize)


def written(environment: Sequence[Plain], *more: int, close: Sequence[int] = (example.CLOSE,)) -> list[int]:
    """Return the tail that these messages have."""
    return [*close, *example.tokenize(environment, add_generation_prompt=True), *more]


def unproven(words: str) -> Refusal:
    return Refusal(Reason.UNPROVEN_TAIL, words)


def dropped(role: str) -> Refusal:
    return Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")


def differs(words: str) -> Refusal:
    return unproven(f"the tail differs where {words}")


NOT_ONCE = unproven("a new user message is not written once after the turn")
OTHERS = differs("the texts before the turn are others")
SILENT = differs("the turn says nothing")


def without(*lost: int) -> TokenizeFn:
    """Return a template that drops some of the last three messages."""
    return shown(lambda messages: [m for i, m in enumerate(messages) if i - len(messages) + 3 not in lost])


def of_role(change: Callable[[Message], Plain], *roles: str) -> TokenizeFn:
    """Return a template that changes the messages of some roles."""
    return shown(lambda messages: [change(m) if m["role"] in roles else m for m in messages])


def before_turn(messages: Sequence[Message]) -> str:
    """Return the role before the last assistant's message."""
    roles = [str(message["role"]) for message in messages]
    return roles[len(roles) - roles[::-1].index("assistant") - 2]


def switched(role: str, first: int | None = None) -> Callable[[Sequence[Message]], list[int]]:
    """Open a thought for the model if no message of a role says `/no_think`."""
    return lambda messages: (
        [60]
        * all("/no_think" not in str(one.get("content")) for one in messages[:first] if one["role"] == role)
    )


def summing(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write at the end how long all user messages are together."""
    asked = sum(len(message["content"]) for message in messages if message["role"] == "user")
    ids = example.tokenize(messages, add_generation_prompt=False)
    return [*ids, 500 + asked, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids


def name_of(result: Message, past: Sequence[Message]) -> str:
    """Return the name of the first call that has a result's id."""
    ours = (call for call in example.calls(past) if call["id"] == result["tool_call_id"])
    return str(next(ours)["function"]["name"])


def is_strange(messages: Sequence[Message]) -> bool:
    """Return whether a result answers an unknown call, where calls were made."""
    called = {call.get("id") for call in example.calls(messages)}
    return any(called and m["role"] == "tool" and m["tool_call_id"] not in called for m in messages)


again = shown(
    lambda messages: [
        messages[i - 1] if i and str(messages[i - 1].get("content")).startswith("again") else message
        for i, message in enumerate(messages)
    ]
)
"""Writes a message that begins with `again` in place of the next one, too."""
quoting = each(
    lambda _, ids, past: [
        *example.text(past[-1]["content"] if past and past[-1]["role"] == "user" else ""),
        *ids,
    ]
)
doubling = of_role(lambda m: {**m, "content": f"{m['content']}-{m['content']}"}, "user")
measuring = each(lambda m, ids, _: [*ids[:-1], *[500 + len(ids)] * (m["role"] == "user"), ids[-1]])
"""Ends a user's message with an id for its length: then each is asked about alone."""
naming = each(lambda m, ids, past: [*example.text(name_of(m, past) if m["role"] == "tool" else ""), *ids])
one_call = refusing(lambda messages: any(len(m.get("tool_calls") or ()) > 1 for m in messages))
after_thoughts = refusing(
    lambda messages: any(len(m.get("tool_calls") or ()) > 1 for m in messages),
    template=each(lambda m, ids, _: [*ids, *[50] * bool(m.get("reasoning") and m["content"])]),
)
"""Writes something after a turn with reasoning; refuses a turn with two calls."""
marks_empty_calls = each(
    lambda m, ids, _: [*ids, *[50] * (bool(m.get("tool_calls")) and m.get("content") == "")]
)
leaves_out_silence = shown(
    lambda messages: [m for m in messages if m["role"] != "assistant" or m.get("content")]
)
closes_silence = each(
    lambda m, ids, _: [*ids[:-1], 5 if m["role"] == "assistant" and not m.get("content") else ids[-1]]
)
writes_strings = shown(
    lambda messages: [{**m, "content": ""} if isinstance(m.get("content"), list) else m for m in messages]
)
drops_lists = shown(lambda messages: [m for m in messages if not isinstance(m.get("content"), list)])
silent_about_texts = shown(
    lambda messages: [{**m, "content": []} if isinstance(m.get("content"), str) else m for m in messages],
    example.by_parts,
)
hoists = shown(lambda messages: sorted(messages, key=lambda m: m["role"] != "system"))
hoists_developers = shown(
    lambda messages: sorted(
        ({**m, "role": "system"} if m["role"] == "developer" else m for m in messages),
        key=lambda m: m["role"] != "system",
    )
)


def refuses_text(words: str) -> TokenizeFn:
    return refusing(lambda messages: words in repr(messages))


def typed(content: Any) -> list[Plain]:
    return [{"role": "user", "content": content}]


def no_texts(kind: str) -> Refusal:
    return unproven(f"the content of a user message is of type {kind}, and has no texts")


as_text = shown(lambda messages: [{**m, "content": str(m.get("content", ""))} for m in messages])
DROPS = [user("a"), {"role": "tool", "content": "b"}, SYSTEM]
KIND = attrs.evolve(turn(), history=({"role": "system", "content": "Be kind."}, user()))
KIND_OFF = attrs.evolve(turn(), history=({"role": "system", "content": "Be kind. /no_think"}, user()))
UNKNOWN = attrs.evolve(turn(), history=(), history_known=False)
CALLED = turn(message=CALLING)
DEVELOPER: Plain = {"role": "developer", "content": "d"}
ROWS: dict[str, tuple[Any, SampledTurn, Sequence[Plain], Any]] = {
    # a template, a turn, what follows it, and the tail or the refusal
    "drops the second": (without(1), turn(), DROPS, dropped("tool")),
    "drops the first": (without(0), turn(), DROPS, dropped("user")),
    "drops two": (without(0, 1), turn(), DROPS, dropped("user")),
    "drops the last": (without(2), turn(), DROPS, dropped("system")),
    "a number as content": (as_text, turn(), typed(7), no_texts("int")),
    "an object as content": (as_text, turn(), typed({"a": "b"}), no_texts("dict")),
    "a flag as content": (as_text, turn(), typed(True), no_texts("bool")),  # noqa: FBT003  # a content
    "one in place of the next": (again, turn(), [user("again"), SYSTEM], NOT_ONCE),
    "one in place of the next, of three": (again, turn(), [user("a"), user("again"), SYSTEM], NOT_ONCE),
    # A template may check what a message says.
    "no longer text": (
        refuses_text("b more"),
        turn(),
        [user("a"), user("b")],
        written([user("a"), user("b")]),
    ),
    "no other texts": (
        refuses_text("Now: Hello."),
        KIND,
        MORE,
        unproven("the template takes no history where the texts before the turn are others"),
    ),
    "not the real texts": (
        refuses_text("Be kind"),
        KIND,
        MORE,
        unproven(f"the template takes no history where {REAL_TEXTS}"),
    ),
    "one of several histories": (
        refuses_text("no_think"),
        attrs.evolve(UNKNOWN, switched=ANYWHERE),
        MORE,
        written(MORE),
    ),
    "no history that is unlike": (
        refusing(lambda messages: len(messages) > 3),
        UNKNOWN,
        MORE,
        unproven("the template takes no other history"),
    ),
    "a length": (measuring, turn(), [user("a")] * 40, TOO_MANY),
    "a quote": (quoting, turn(), [user("ab"), user("c")], NOT_ONCE),
    "a text twice": (doubling, turn(), [user("ab"), user("c")], NOT_ONCE),
    "a sum": (summing, turn(), [user("ab"), user("c")], NOT_ONCE),
    # The turn's text cannot be located in a short history, which has no calls to answer.
    "results of unknown calls": (
        refusing(is_strange, "a result answers no call"),
        CALLED,
        STRANGERS,
        Refusal(Reason.TEMPLATE_REFUSED, "a result answers no call"),
    ),
    "a stranger alone": (example.tokenize, CALLED, STRANGERS[:1], written(STRANGERS[:1])),
    "a stranger too": (example.tokenize, CALLED, [RESULT, STRANGERS[0]], written([RESULT, STRANGERS[0]])),
    "no such role": (example.tokenize, turn(), [CRITIC], Refusal(Reason.TEMPLATE_REFUSED, "no role critic")),
    # vLLM moves what developers say to the beginning, others to nowhere: no other role is tried.
    "a developer moved": (hoists_developers, turn(), [DEVELOPER], dropped("developer")),
    **{
        f"a system text moved, {content!r}": (
            hoists,
            turn(),
            [{"role": "system", "content": content}],
            dropped("system"),
        )
        for content in ("Be kind.", "")
    },
    "a developer lost": (
        shown(lambda messages: [m for m in messages if m["role"] != "developer"]),
        turn(),
        [DEVELOPER],
        dropped("developer"),
    ),
    **{
        f"a tail after a {role}": (
            speaking(lambda messages: [50] * (before_turn(messages) == "tool")),
            attrs.evolve(turn(), after=role),
            MORE,
            written(MORE, *more),
        )
        for role, more in (("tool", [50]), ("user", list[int]()))
    },
    **{
        f"results without ids after a {after}, {reused}": (
            one_call,
            turn(
                stop=example.CLOSE,
                message={**CALLING, "tool_calls": [{"function": CALL["function"]}]},
                reused=reused,
                after=after,
                history=(),
            ),
            [{"role": "tool", "content": "7"}],
            written([{"role": "tool", "content": "7"}]),
        )
        for after in ("user", "tool")
        for reused in ((), (None,))
    },
    "a name": (naming, CALLED, [RESULT], [example.CLOSE, *example.text("f"), *written([RESULT], close=())]),
    "a name that may be another's": (
        naming,
        attrs.evolve(CALLED, reused=("c",)),
        [RESULT],
        differs("an earlier call has the id of a later one"),
    ),
    "a switch in the system text": (speaking(switched("system", 1)), KIND, MORE, written(MORE, 60)),
    "a switch that is off": (speaking(switched("system", 1)), KIND_OFF, MORE, differs(REAL_TEXTS)),
    "a switch somewhere": (
        speaking(switched("system", 1)),
        UNKNOWN,
        MORE,
        differs("an earlier message switches reasoning on or off"),
    ),
    "parts that are refused too": (
        only_parts,
        turn((40, example.CLOSE)),
        [CRITIC],
        Refusal(Reason.TEMPLATE_REFUSED, "a content is a list of parts"),
    ),
    "an empty list left out": (drops_lists, CALLED, [{**RESULT, "content": []}, *MORE], dropped("tool")),
    "parts left out": (
        writes_strings,
        CALLED,
        [{**RESULT, "content": [part("7")]}, *MORE],
        dropped("tool"),
    ),
    # MCP's tools return an empty list of blocks where they found nothing.
    **{
        f"an empty result {content!r}, {len(more)} more, {number}": (
            template,
            CALLED,
            [{**RESULT, "content": content}, *more],
            [example.CLOSE, *template([{**RESULT, "content": content}, *more], add_generation_prompt=True)],
        )
        for number, template in enumerate((example.tokenize, writes_strings))
        for content in EMPTY_CONTENTS
        for more in ([], MORE)
    },
    **{
        f"a silent turn {said}, {number}": (
            template,
            turn(message={"role": "assistant", **said}),
            MORE,
            found,
        )
        for said in EMPTY
        for number, (template, found) in enumerate(
            ((example.tokenize, written(MORE)), (leaves_out_silence, SILENT), (closes_silence, SILENT))
        )
    },
    "a turn beside silence that is left out": (
        leaves_out_silence,
        turn(),
        MORE,
        written(MORE),
    ),
    "a turn beside silence that is closed": (closes_silence, turn(), MORE, written(MORE)),
    # An engine may be sent an empty content or none.
    **{
        f"a call with no content {said}, written otherwise": (
            marks_empty_calls,
            turn(message={"role": "assistant", "tool_calls": [CALL], **said}),
            [RESULT],
            differs("a call has an empty content in place of none"),
        )
        for said in EMPTY[1:]
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_a_tail_is_proven_or_refused_with_a_reason(name: str) -> None:
    tokenize, asked, environment, expected = ROWS[name]
    found = proved(asked, environment, tokenize)
    assert (list(found.ids) if isinstance(found, Proof) else found) == expected


@pytest.mark.parametrize("kept", [0, 1])
def test_a_generation_prompt_that_changes_the_close_is_unknown(kept: int) -> None:
    """Whatever follows the turn then counts as environment: nothing shows where the prompt begins."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
        closes = [place for place, index in enumerate(ids) if index == example.CLOSE][kept:]
        changed = [9 if place in closes else index for place, index in enumerate(ids)]
        return ids if add_generation_prompt else changed

    proof = proved(turn(), MORE, tokenize)
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


@pytest.mark.parametrize(("history_known", "most"), [(True, MOST), (False, MOST_UNKNOWN)])
@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_a_proof_takes_few_questions_however_many_messages_follow(
    count: int, most: int, *, history_known: bool
) -> None:
    recorder = Recorder()
    asked = attrs.evolve(turn(), history_known=history_known)
    assert isinstance(proved(asked, [user("a")] * count, recorder), Proof)
    assert len(recorder.asked) <= most
    assert isinstance(proved(turn(), [user("a")] * 2, measuring), Proof)


def test_results_of_several_earlier_calls_are_called_in_an_unlike_history() -> None:
    recorder = Recorder()
    assert isinstance(proved(CALLED, STRANGERS, recorder), Proof)
    histories = [messages[:-3] for messages in recorder.asked if messages[-2:] == tuple(STRANGERS)]
    called = [[call["id"] for call in example.calls(past)] for past in histories]
    assert ["x", "y"] in called


def test_a_form_that_rendered_outranks_one_that_the_template_rejected() -> None:
    """The first form loses the text, the second is rejected: the reason is that the text is lost."""

    def silent(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return [1, 2, 3][: 2 + (add_generation_prompt and bool(messages))]

    asked = turn((2,), message={**CALLING, "content": None})
    refusal = proved(asked, [RESULT], example.takes_arguments(str, silent))
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.UNPROVEN_TAIL


@pytest.mark.parametrize("role", ["function", "ipython"])
def test_the_stand_in_history_ends_with_the_role_that_the_real_one_ends_with(role: str) -> None:
    """A template may write results under another name, and remember that it is inside a tool loop."""
    seen: set[str] = set()

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        seen.add(before_turn(messages))
        known = [{**m, "role": "tool"} if m["role"] == role else m for m in messages]
        return example.tokenize(known, add_generation_prompt=add_generation_prompt)

    assert isinstance(proved(attrs.evolve(turn(), after=role), MORE, tokenize), Proof)
    assert seen == {role}


@pytest.mark.parametrize("history_known", [False, True])
@pytest.mark.parametrize(
    ("message", "others", "agrees"),
    [
        (example.assistant(), (), True),
        (example.assistant(), (example.assistant("x"),), True),
        (example.assistant(), (THINKING,), False),
        (THINKING, (example.assistant(),), False),
        (THINKING, (), True),
        (CALLING, (TWO_CALLS,), True),  # the template takes no such turn: it cannot be the real one
        (CALLING, (TWO_CALLS, {**CALLING, "reasoning": "Why?"}), True),
        (CALLING, (TWO_CALLS, {**CALLING, "reasoning": "Why?", "content": "Look."}), False),
    ],
)
def test_a_tail_is_that_of_every_turn_that_the_template_takes(
    message: Plain, others: tuple[Plain, ...], agrees: bool, history_known: bool
) -> None:
    asked = turn(message=message, others=others, history_known=history_known)
    found = proved(asked, [RESULT] if message is CALLING else MORE, after_thoughts)
    assert isinstance(found, Proof) if agrees else found == OTHERS


@pytest.mark.parametrize("role", ["user", "system"])
def test_a_switch_in_an_earlier_message_is_seen(role: str) -> None:
    """Only the real history's opening and last user message are asked about."""
    tokenize = speaking(switched(role))
    for switches in (frozenset[str](), ANYWHERE - {role}):
        assert isinstance(proved(attrs.evolve(turn(), switched=switches), MORE, tokenize), Proof)
    assert proved(attrs.evolve(turn(), switched=frozenset((role,))), MORE, tokenize) == OTHERS


@pytest.mark.parametrize("role", ["system", "developer"])
def test_a_switch_in_an_earlier_question_is_seen_before_a_system_text(role: str) -> None:
    """The question before that text is the last one, and says nothing of it."""
    tokenize = speaking(switched("user"))
    past = [user("hi /no_think"), example.assistant("b"), user("c"), {"role": role, "content": "Be kind."}]
    step = example.step(past, "hello", prompt_ids=tokenize(past, add_generation_prompt=True))
    asked = stitch_questions([step], [*step.messages, *MORE], (example.CLOSE,))
    assert isinstance(answer(asked, tokenize), Refusal)


def test_a_content_in_two_text_parts_is_asked_about_in_two() -> None:
    """The second ends where the turn ends; a template may join the two in its own way."""
    recorder = Recorder(example.by_parts)
    message = {"role": "assistant", "content": [part("a"), part("b")]}
    proof = proved(turn((40, example.CLOSE), message=message), MORE, recorder)
    assert isinstance(proof, Proof)
    assert proof.ids == (40, example.CLOSE, *example.by_parts(MORE, add_generation_prompt=True))
    turns = [
        one["content"] for messages in recorder.asked for one in messages[-2:] if one["role"] == "assistant"
    ]
    assert [[sorted(text) for text in content] for content in turns] == [[["text", "type"]] * 2] * len(turns)
    assert turns[0] == [part("So."), part(SHORT)]
    assert turns[1][0] == turns[0][0]


@pytest.mark.parametrize("tokenize", [only_parts, silent_about_texts])
@pytest.mark.parametrize("content", ["hello", [part("x")]])
def test_a_template_that_takes_only_lists_of_parts_is_asked_in_parts(tokenize: Any, content: Any) -> None:
    asked = turn((40, example.CLOSE), message={"role": "assistant", "content": content})
    proof, texts = (proved(asked, MORE, one) for one in (tokenize, example.by_parts))
    assert isinstance(proof, Proof)
    assert isinstance(texts, Proof)
    assert (proof.parts, texts.parts) == (True, False)
    assert proof.ids == texts.ids == (40, example.CLOSE, *example.by_parts(MORE, add_generation_prompt=True))


def test_a_template_that_takes_texts_is_not_asked_in_parts() -> None:
    """It refuses, or loses the turn, for another reason: that is seen with two short questions."""
    recorder = Recorder()
    assert isinstance(proved(turn(), [CRITIC], recorder), Refusal)
    assert all(isinstance(message["content"], str) for messages in recorder.asked for message in messages)
    assert [[m["role"] for m in messages] for messages in recorder.asked[-2:]] == [["user", "assistant"]] * 2


@pytest.mark.parametrize("given", EMPTY[1:])
@pytest.mark.parametrize("most", range(5))
def test_a_call_without_a_content_is_asked_about_with_an_empty_one_where_the_template_takes_no_other(
    given: Plain, most: int
) -> None:
    """DeepSeek-V3.1 and QwQ-32B read a text there, always or after an earlier call; clients send none."""
    calling = {"role": "assistant", "tool_calls": [CALL], **given}
    tokenize = refusing(lambda messages: any(m.get("content") is None for m in messages[most:]))
    found, expected = (
        proved(turn(message=one), [RESULT], tokenize) for one in (calling, {**calling, "content": ""})
    )
    assert isinstance(found, Proof), found
    assert isinstance(expected, Proof)
    assert (found.ids, found.cut) == (expected.ids, expected.cut)
