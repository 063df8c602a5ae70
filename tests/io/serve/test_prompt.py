"""What is read at the cost of what is new is what is read from the beginning, whatever a client restates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.serve.gateway import HELLO, Naming, Scripted, Talk, named, talking, user
from tito_core import Forgiveness, Messages, Step, Trajectory
from tito_core.locate import find as find_match
from tito_core.normalization.receipts import OPTIONAL
from tito_core.samples import StoredCall
from tito_io.serve.client_noise import NoiseFilter
from tito_io.serve.commit import Commit, TurnOrigin
from tito_io.serve.gateway import GatewayOptions
from tito_io.serve.prompt import AnsweredPrompt, PromptMatcher, read_prompt

KEY = "[[],{}]"
ORIGIN = TurnOrigin(dialect="chat", route="TITO", requested=0.0)


def commit(name: str, messages: Any, answer: Any, key: str = KEY) -> Commit:
    step = Step(prompt=messages, completion=[answer], prompt_ids=[1], completion_ids=[2], key=key)
    return Commit(call=StoredCall(name=name, step=step), parent=None, response=name, at=0.0, origin=ORIGIN)


CONTENTS = st.sampled_from(
    ["a", "b", "", None, 1, True, [{"type": "text", "text": "a"}], [{"type": "text", "text": "a", "n": 1}]]
)
WORLD = st.builds(
    lambda role, content, more: {"role": role, "content": content, **more},
    st.sampled_from(["user", "tool", "system", "developer"]),
    CONTENTS,
    st.sampled_from([{}, {"x": 1}, {"x": True}, {"cache_control": {}}, {"tool_call_id": "a"}]),
)
SPOKEN = st.builds(
    lambda content, more: {"role": "assistant", "content": content, **more},
    st.sampled_from(["a", "a ", "\na", " ", "b", "a|", "b |", None]),
    st.sampled_from([{}, {"reasoning": "hm"}, {"refusal": None}]),
)
TALKS = st.lists(WORLD | SPOKEN, min_size=1, max_size=4)
FORGIVE = st.frozensets(st.sampled_from(sorted(OPTIONAL, key=str)))


@st.composite
def restated(draw: st.DrawFn, messages: list[Any]) -> list[Any]:
    """Draw a restatement: the same, or with one message changed, left out or put in."""
    found = [dict(message) for message in messages]
    if draw(st.booleans()):
        return found
    place = draw(st.integers(0, len(found) - 1))
    found[place : place + draw(st.integers(0, 1))] = draw(st.lists(WORLD | SPOKEN, max_size=1))
    return found


@given(st.data())
def test_a_prompt_is_read_the_same_with_and_without_the_one_before(data: st.DataObject) -> None:
    door, forgive = NoiseFilter(), data.draw(FORGIVE)
    first = read_prompt(door, data.draw(TALKS), [], None)
    if not first.messages:
        return
    answers = data.draw(st.lists(SPOKEN, min_size=1, max_size=2))
    commits: Mapping[str, Commit] = {
        f"r{place}": commit(f"r{place}", first.messages, answer, data.draw(st.sampled_from([KEY, "other"])))
        for place, answer in enumerate(answers)
    }
    heard = AnsweredPrompt(first, list(commits)[-1], ())
    again = data.draw(restated([*first.received, data.draw(st.sampled_from(answers))]))
    said = [*again, *data.draw(st.lists(WORLD | SPOKEN, max_size=2))]
    quick, slow = read_prompt(door, said, [], heard), read_prompt(door, said, [], None)
    for name in ("messages", "turns", "only_texts"):
        assert getattr(quick, name) == getattr(slow, name)
    steps = Trajectory(one.step for one in commits.values())
    kept = {name: attrs.evolve(one, call=attrs.evolve(one.call, step=step))
            for (name, one), step in zip(commits.items(), steps, strict=True)}  # fmt: skip
    stops = data.draw(st.sampled_from([(), ("|",)]))
    one, other = (PromptMatcher(steps, kept, KEY, forgive, stops).match(prompt) for prompt in (quick, slow))
    assert list(one.messages) == list(other.messages)
    assert base(one.messages) is base(other.messages)


def base(prompt: Any) -> Any:
    """Return the messages that a prompt shares."""
    return prompt.parent if isinstance(prompt, Messages) else None


def test_truth_is_not_one() -> None:
    """Python says that they are equal; what a template prints differs."""
    first = read_prompt(NoiseFilter(), [{"role": "user", "content": "a", "n": 1}], [], None)
    heard = AnsweredPrompt(first, "r", ())
    said: list[Any] = [
        {"role": "user", "content": "a", "n": True},
        {"role": "assistant", "content": "x"},
        user(),
    ]
    assert read_prompt(NoiseFilter(), said, [], heard).previous is None


def test_a_retry_is_read_from_its_beginning() -> None:
    """What was removed from it counts as often as it was sent."""
    said: list[Any] = [{"role": "user", "content": "a", "cache_control": {}}]
    first = read_prompt(NoiseFilter(), said, [], None)
    again = read_prompt(NoiseFilter(), said, [], AnsweredPrompt(first, "r", ()))
    assert again == first
    assert again.removed == {"cache-control": 1}


@pytest.mark.anyio
async def test_a_loop_compares_its_history_once_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    find = find_match

    def watched(steps: Any, messages: Any, *rest: Any) -> Any:
        searched.append(len(messages))
        return find(steps, messages, *rest)

    monkeypatch.setattr("tito_io.serve.prompt.find", watched)
    async with talking(Scripted(each="answer {}".format), choices=GatewayOptions()) as talk:
        await talk.chat((await talk.turns(8))[:5])
        session = await talk.session()
    routes = [one.origin.route for one in session.commits.values()]
    assert len(session.forest.leaves) == 2
    assert searched == [1, 5]  # the first turn, and the one that went back
    assert routes == ["MITO", *["TITO"] * 8]
    assert session.newest is not None
    assert len(session.path(session.newest)) == 3


def test_a_longer_turn_is_met_although_a_shorter_one_was_the_last() -> None:
    """The first turn was retried after the second, and said the same again."""
    a, b = {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}
    second = [*HELLO, a, user("two")]
    made = [commit("r0", HELLO, a), commit("r1", second, b), commit("r2", HELLO, a)]
    steps = Trajectory(one.step for one in made)
    heard = AnsweredPrompt(read_prompt(NoiseFilter(), HELLO, [], None), "r2", ())
    prompt = read_prompt(NoiseFilter(), [*second, b, user("three")], [], heard)
    assert prompt.previous is not None
    found = PromptMatcher(steps, {one.name: one for one in made}, KEY, frozenset()).match(prompt)
    assert base(found.messages) is steps[1].messages


def test_a_turn_that_was_rendered_otherwise_is_not_met_where_another_was_rendered_alike() -> None:
    a = {"role": "assistant", "content": "a"}
    made = [commit("r0", HELLO, a), commit("r1", HELLO, a, "other tools")]
    steps = Trajectory(one.step for one in made)
    heard = AnsweredPrompt(read_prompt(NoiseFilter(), HELLO, [], None), "r1", ())
    prompt = read_prompt(NoiseFilter(), [*HELLO, a, user()], [], heard)
    found = PromptMatcher(steps, {one.name: one for one in made}, KEY, frozenset()).match(prompt)
    assert base(found.messages) is steps[0].messages


def test_an_answer_that_was_taken_back_is_not_continued() -> None:
    said = [*HELLO, {"role": "assistant", "content": "a"}, user()]
    heard = AnsweredPrompt(read_prompt(NoiseFilter(), HELLO, [], None), "gone", ())
    prompt = read_prompt(NoiseFilter(), said, [], heard)
    assert PromptMatcher(Trajectory(), {}, KEY, frozenset()).match(prompt).messages == said


def calling(name: str) -> dict[str, Any]:
    function = {"name": "f", "arguments": "{}"}
    return {"role": "assistant", "content": "", "tool_calls": [{"id": name, "function": function}]}


def test_a_renaming_is_followed_through_the_whole_history() -> None:
    """What is one id in the session are two in the prompt, the second of them in the last answer."""
    renamed = frozenset((Forgiveness.RENAMED_TOOL_IDS,))
    result = {"role": "tool", "content": "x", "tool_call_id": "ours"}
    theirs = {**result, "tool_call_id": "theirs"}
    one = commit("r0", [*HELLO, calling("ours"), result], calling("ours"))
    said = [*HELLO, calling("theirs"), theirs]
    heard = AnsweredPrompt(read_prompt(NoiseFilter(), said, [], None), "r0", ("RENAMED_TOOL_IDS",))
    steps = Trajectory([one.step])
    for name, fits in (("theirs", True), ("another", False)):
        prompt = read_prompt(NoiseFilter(), [*said, calling(name), user()], [], heard)
        assert prompt.previous is not None
        found = PromptMatcher(steps, {"r0": one}, KEY, renamed).match(prompt)
        assert (base(found.messages) is not None) is fits


def test_results_name_the_calls_as_the_session_has_them() -> None:
    one = commit("r0", HELLO, calling("ours"))
    steps = Trajectory([one.step])
    theirs = {"role": "tool", "content": "x", "tool_call_id": "theirs"}
    prompt = read_prompt(NoiseFilter(), [*HELLO, calling("theirs"), theirs], [], None)
    found = PromptMatcher(steps, {"r0": one}, KEY, frozenset((Forgiveness.RENAMED_TOOL_IDS,))).match(prompt)
    assert base(found.messages) is steps[0].messages
    assert list(found.messages)[-1] == {**theirs, "tool_call_id": "ours"}
    assert found.forgiven == ("RENAMED_TOOL_IDS",)


def test_an_echo_behind_another_turn_is_looked_for() -> None:
    """What was found as it came ends just before the echo."""
    first, second = ({"role": "assistant", "content": text} for text in ("a", "b"))
    made = [commit("r0", HELLO, first), commit("r1", [*HELLO, first], second)]
    steps = Trajectory(one.step for one in made)
    said = [*HELLO, first, {**second, "content": "b|"}, user()]
    prompt = read_prompt(NoiseFilter(), said, [], None)
    found = PromptMatcher(steps, {one.name: one for one in made}, KEY, frozenset(), ("|",)).match(prompt)
    assert (base(found.messages) is steps[1].messages, found.forgiven) == (True, ("TEXT_ECHO",))


def test_only_what_helped_to_find_a_history_counts_as_ignored() -> None:
    """A later turn that looks like an echo, and is found by nothing, adds no name."""
    said, other = ({"role": "assistant", "content": text} for text in ("yes", "<think>hm</think>no"))
    first = commit("a", HELLO, said)
    steps = Trajectory([first.step])
    prompt = read_prompt(NoiseFilter(), [*HELLO, said, user(), other, user()], [], None)
    for forgive in (frozenset[Forgiveness](), OPTIONAL):
        found = PromptMatcher(steps, {"a": first}, KEY, forgive, ()).match(prompt)
        assert (len(base(found.messages)), found.forgiven) == (2, ())


async def talked(talk: Talk, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[int]:
    """Take four turns that come back changed; return how many prompts were rendered for each."""
    prompt, counts = list(HELLO), list[int]()
    for _ in range(4):
        before = talk.engine.rendered
        said = await talk.said(prompt)
        counts.append(talk.engine.rendered - before)
        prompt += [change({"role": "assistant", "content": said["content"]}), user()]
    return counts


@pytest.mark.anyio
@pytest.mark.parametrize("reads", [False, True])
async def test_an_added_name_is_ignored_where_the_template_does_not_read_it(reads: bool) -> None:
    engine = Naming() if reads else Scripted()
    async with talking(engine, choices=GatewayOptions()) as talk:
        counts = await talked(talk, named)
        session = await talk.session()
    origins = [one.origin for one in session.commits.values()]
    if not reads:
        assert [(one.route, one.forgiven) for one in origins[1:]] == [("TITO", ("OTHER_KEYS",))] * 3
        assert len(session.forest.leaves) == 1
        assert counts[2:] == [2, 2]  # as many as without a name: what was learned is kept
        return
    assert [(one.route, one.refusal) for one in origins[1:]] == [("MITO", "KEY_DIFFERS")] * 3
    asked = [messages for kind, messages, _ in engine.asked if kind == "messages"]
    assert [[m.get("name") for m in one if m["role"] == "assistant"] for one in asked] == [
        ["model"] * count for count in range(4)
    ]


@pytest.mark.anyio
async def test_a_repeated_request_with_a_name_that_the_template_reads_gets_its_turn() -> None:
    async with talking(Naming(), choices=GatewayOptions()) as talk:
        said = await talk.said(HELLO)
        body = {"messages": [*HELLO, named({"role": "assistant", "content": said["content"]}), user()]}
        one, other = [(await talk.post(body, headers={"idempotency-key": "a"})).json() for _ in range(2)]
    assert one["id"] == other["id"]
