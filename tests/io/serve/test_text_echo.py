r"""Turns that come back as text: the agent added the stop string again, or wrote the calls in words."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core import Forgiveness
from tito_core.normalization.compare import same
from tito_io.embedded import TIDY
from tito_io.serve.client_noise import parse_rules
from tito_io.serve.gateway import GatewayOptions
from tito_io.serve.text_echo import LONGEST, undone

from .gateway import HELLO, Scripted, embedded_gateway, scripted_gateway, talking, user

STOPS = ("Observation:", "Calling tools:", "</code>")
WHITE = frozenset((Forgiveness.OUTER_WHITESPACE,))


def assistant(content: Any, calls: list[Any] | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})


def call(arguments: Any, name: str = "f", identity: str = "c1") -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def echoed(turn: dict[str, Any], stop: str) -> dict[str, Any]:
    """Return a turn as smolagents sends it back: the stop added, both ends trimmed, calls as a line more."""
    text, calls = (turn["content"] or "").strip(), turn.get("tool_calls")
    if stop and not text.endswith(stop):
        text += stop
    lines = [text, *(["Calling tools:\n" + str(calls)] if calls else [])]
    return assistant("\n".join(lines))


TEXTS = st.text(st.sampled_from("ab \n'\"[]{}"), max_size=6)
ARGUMENTS = st.dictionaries(
    TEXTS, st.integers() | TEXTS | st.booleans() | st.none() | st.lists(TEXTS), max_size=3
)
CALLS = st.lists(
    st.builds(call, ARGUMENTS, st.sampled_from(["f", "g"]), st.sampled_from(["c1", "c2"])), max_size=2
)
TURNS = st.builds(assistant, TEXTS, CALLS)


@given(TURNS, st.sampled_from(("", *STOPS)))
def test_an_echo_is_the_turn_again(turn: dict[str, Any], stop: str) -> None:
    stop = "" if turn.get("tool_calls") else stop
    assert same(turn, undone(echoed(turn, stop), STOPS), WHITE) is not None


@given(TURNS, TURNS, st.sampled_from(("", *STOPS)))
def test_an_echo_is_no_other_turn(ours: dict[str, Any], theirs: dict[str, Any], stop: str) -> None:
    found = same(ours, undone(echoed(theirs, stop), STOPS), WHITE)
    assert found is None or same(ours, theirs, WHITE) is not None


@given(TURNS)
def test_a_message_without_a_stop_string_is_unchanged(turn: dict[str, Any]) -> None:
    assert undone(turn, STOPS) is turn
    assert undone(echoed(turn, ""), ()) == echoed(turn, "")


def gptme_echo(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn as gptme 0.35 sends it back: reasoning between tags, before the content."""
    rest = {name: value for name, value in turn.items() if name != "reasoning"}
    thought = turn.get("reasoning")
    return {**rest, "content": f"<think>\n{thought}\n</think>\n\n{turn['content']}\n"} if thought else rest


def copilot_echo(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn as GitHub's Copilot CLI 1.0 sends it back: reasoning as a content that was empty."""
    bare = turn.get("tool_calls") and not turn["content"]
    return {**turn, "content": turn["reasoning"]} if bare and turn.get("reasoning") else turn


THOUGHTS = st.text(st.sampled_from("ab \n<>"), min_size=1, max_size=6)
THOUGHTFUL = st.builds(lambda turn, thought: {**turn, "reasoning": thought}, TURNS, THOUGHTS)
ECHOES = st.sampled_from((gptme_echo, copilot_echo))


def called_alike(turn: dict[str, Any]) -> bool:
    """Return whether a turn that calls says in words what it thought; of such a turn the ids tell."""
    return bool(turn.get("tool_calls")) and turn["content"].strip() == turn["reasoning"].strip()


@given(THOUGHTFUL, ECHOES)
def test_reasoning_as_text_is_the_turn_again(turn: dict[str, Any], echo: Any) -> None:
    assert same(turn, undone(echo(turn), ()), WHITE) is not None or called_alike(turn)


@given(THOUGHTFUL | TURNS, THOUGHTFUL | TURNS, ECHOES)
def test_reasoning_as_text_is_no_other_turn(ours: dict[str, Any], theirs: dict[str, Any], echo: Any) -> None:
    found = same(ours, undone(echo(theirs), ()), WHITE)
    alike = "reasoning" in theirs and called_alike(theirs)
    assert found is None or alike or same(ours, theirs, WHITE) is not None


@pytest.mark.parametrize("content", ["hm</think>So", "So<think>hm</think>", "<think>hm", "<think>hm</thin>"])
def test_what_is_no_thought_before_the_content_stays(content: str) -> None:
    message = assistant(content)
    assert undone(message, ()) is message
    mine = {**message, "reasoning": content}
    assert undone(mine, ()) is mine  # without calls it is an answer


def test_the_thought_ends_at_the_first_mark_that_closes_it() -> None:
    quoting = assistant("\n<think>hm</think>The tag is </think>.")
    assert undone(quoting, ()) == {**assistant("The tag is </think>."), "reasoning": "hm"}


CODE = "print(1)"
REPEATED = f"<code>\n{CODE}\n</code>\nCalling tools:\n" + str([call(CODE, "python_interpreter")])


def test_code_that_the_text_holds_is_repeated_and_no_call() -> None:
    assert undone(assistant(REPEATED), STOPS) == assistant(f"<code>\n{CODE}\n")


@pytest.mark.parametrize("arguments", ["print(2)", {"code": CODE}, " "])
def test_code_that_the_text_does_not_hold_is_a_call(arguments: Any) -> None:
    called = call(arguments, "python_interpreter")
    text = f"<code>\n{CODE}\nCalling tools:\n{[called]}"
    assert undone(assistant(text), STOPS) == assistant(f"<code>\n{CODE}", [called])


def test_the_last_list_of_calls_is_read_where_the_text_has_one_too() -> None:
    """A turn that quotes an earlier one."""
    quoted = "Calling tools:\n[]\nso"
    text = f"{quoted}\nCalling tools:\n{[call('x')]}"
    assert undone(assistant(text), STOPS) == assistant(quoted, [call("x")])


@pytest.mark.parametrize(
    "content",
    [
        "thought\nObservation: 7",  # new text after a stop string
        "Calling tools:\n[1, 2]",
        "Calling tools:\n[]",
        "Calling tools:\n[{'id': 'c1', 'function': {}}]",
        "Calling tools:\n[{'id': 'c1', 'type': 'function', 'function': 'f'}]",
        "Calling tools:\n[{'id': 'c1', 'type': 'function', 'function': {'name': 'f'}}]",
        f"Calling tools:\n[{'(' * 5000}",
        "Calling tools:\n__import__('os')",
        f"Calling tools:\n[{call('x' * LONGEST)}]",
        REPEATED + " and more",
        "</code> edited",
    ],
)
def test_what_says_anything_new_stays(content: str) -> None:
    message = assistant(content)
    assert undone(message, STOPS) is message


def test_only_an_assistant_repeats_its_turn() -> None:
    for message in (user("a</code>"), assistant([{"type": "text", "text": "a</code>"}])):
        assert undone(message, STOPS) is message


async def routes(gateway: Any, *echoes: str) -> list[tuple[str, ...]]:
    """Return how each turn was sent, after a history that repeats each answer as one of these texts."""
    async with talking(gateway) as talk:
        messages: list[Any] = list(HELLO)
        for echo in (*echoes, ""):
            await talk.chat(messages, stop=list(STOPS))
            messages = [*messages, assistant(echo), user("Observation:\n7")]
        return [(one.origin.route, *one.origin.forgiven) for one in await talk.commits()]


pytestmark = pytest.mark.anyio


async def test_an_agent_that_adds_the_stop_goes_on_by_ids() -> None:
    gateway = scripted_gateway(Scripted(text=f"\n<code>\n{CODE}\n", stop_reason="</code>"))
    assert await routes(gateway, REPEATED, REPEATED) == [
        ("MITO",),
        ("TITO", "OUTER_WHITESPACE", "TEXT_ECHO"),
        ("TITO", "OUTER_WHITESPACE", "TEXT_ECHO"),
    ]
    assert b'tito_forgiven_total{name="text-echo"} 2.0' in gateway.metrics.text()


async def test_a_history_is_found_although_another_request_came_between() -> None:
    async with talking(Scripted(text="a", stop_reason="</code>")) as talk:
        await talk.chat(HELLO, stop=list(STOPS))
        await talk.chat([user("another")], stop=list(STOPS))
        await talk.chat([*HELLO, assistant("a</code>"), user()], stop=list(STOPS))
        session = await talk.session()
        newest = (await talk.commits())[-1]
        assert len(session.path(newest)) == 2
    assert newest.step.messages[1] == assistant("a")


async def test_without_the_rule_an_echo_starts_a_branch() -> None:
    options = GatewayOptions(forgive=parse_rules(["outer-whitespace"]))
    gateway = scripted_gateway(Scripted(text="a", stop_reason="</code>"), choices=options)
    assert await routes(gateway, "a</code>") == [("MITO",), ("MITO",)]


async def test_an_edit_after_the_stop_starts_a_branch() -> None:
    gateway = scripted_gateway(Scripted(text="a", stop_reason="Observation:"))
    assert await routes(gateway, "aObservation: 7") == [("MITO",), ("MITO",)]


WEATHER = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
THINKS = attrs.evolve(TIDY, reasoning=1.0, tool_calls=1.0, drifts=1.0)


@pytest.mark.parametrize("echo", [gptme_echo, copilot_echo])
async def test_an_agent_that_writes_reasoning_as_text_goes_on_by_ids(echo: Any) -> None:
    async with talking(embedded_gateway(fault_rates=THINKS, seed=0)) as talk:
        messages: list[Any] = list(HELLO)
        for _ in range(3):
            answer = await talk.said(messages, tools=[WEATHER], max_tokens=900)
            turn = {"content": "", **answer}
            turn.pop("reasoning_content")
            assert turn["reasoning"]
            calls = turn.get("tool_calls") or ()
            results = [{"role": "tool", "tool_call_id": one["id"], "content": "7"} for one in calls]
            messages += [echo({**turn, "content": turn["content"] or ""}), *(results or [user()])]
        found = [(one.origin.route, "TEXT_ECHO" in one.origin.forgiven) for one in await talk.commits()]
    assert found == [("MITO", False), ("TITO", True), ("TITO", True)]
