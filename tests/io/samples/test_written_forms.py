"""Conversations written in a format that tito writes come back as they were, and make the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import attrs
import orjson
import pytest
from atif import Trajectory
from hypothesis import given
from hypothesis import strategies as st

from tests.core.pictures import first_step, showing
from tests.core.samples.calls import call
from tests.io.samples.sample_files import dumped, put, read
from tests.io.serve.test_rows import committed, talks
from tests.profiles import tries
from tito_core import InputError, Ledger, Step
from tito_core.samples import Forest, Rewards, SampleOptions, StoredCall, make_rows
from tito_core.testing.strategies.stored_call import CALLS
from tito_io.samples.convert import converted
from tito_io.samples.forms import FORMS
from tito_io.samples.read import StoredConversation
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session, SessionHead
from tito_io.serve.stores import MemoryStore

WRITTEN = [("tito", False), ("atif", False), ("atif", True), ("harbor", False)]


def written(form: str, calls: list[StoredCall], *, expand: bool = False, name: str = "talk") -> bytes:
    write = FORMS[form].write
    assert write is not None
    return b"".join(write(name, Forest.of(calls), expand))


def again(form: str, content: bytes) -> Forest:
    """Return the forest of a file of one conversation, whose format is recognised."""
    with TemporaryDirectory() as folder:
        stored, problems = read(put(Path(folder), content))
    assert not problems, problems
    (one,) = stored
    first = content.splitlines()[0]
    record = orjson.loads(content if first == b"{" else first)
    assert next(name for name, one in FORMS.items() if one.matches(record)) == form
    return one.forest


@pytest.mark.parametrize(("form", "expand"), WRITTEN)
def test_images_come_back(form: str, *, expand: bool) -> None:
    cat, dog = (first_step(showing("What?", key), keys=[key]) for key in ("cat", "dog"))
    more = first_step(*cat.messages, showing("And?", "cow"), keys=["cat", "cow"])
    after = attrs.evolve(
        more,
        prompt_ids=[*cat.ids, *more.prompt_ids[-20:]],
        media=[*cat.media, attrs.evolve(more.media[1], offset=len(cat.ids) + 1)],
        prompt_ledger=Ledger.prompt(len(cat.ids) + 20),
    )
    calls = [StoredCall(name=str(i), step=step, order=i) for i, step in enumerate((cat, dog, after))]
    found = again(form, written(form, calls, expand=expand))
    assert [one.step.media for one in found.calls] == [one.step.media for one in calls]
    assert [node.parent for node in found.nodes] == [None, None, "0"]


@given(CALLS, st.sampled_from(WRITTEN))
@tries(4)
def test_what_is_written_comes_back(calls: list[StoredCall], how: tuple[str, bool]) -> None:
    forest = Forest.of(calls)
    if not len(forest):
        return
    found = again(how[0], written(how[0], calls, expand=how[1]))
    assert found.calls == forest.calls
    assert make_rows(found) == make_rows(forest)


@given(talks(), st.sampled_from(WRITTEN))
@tries(2)
def test_rows_of_a_stored_session_are_those_of_what_is_written(
    steps: list[Step], how: tuple[str, bool]
) -> None:
    async def stored() -> Forest:
        store, head = MemoryStore(), SessionHead(created=1.0)
        await store.create("a", head.encoded())
        epoch = (await store.claim("a")).epoch
        session = Session("a", head, store, GatewayLimits(), epoch)
        for place, step in enumerate(steps):
            await session.commit([committed(step, place)])
        return Session.restored("a", await store.load("a"), store, GatewayLimits(), epoch).forest

    forest = anyio.run(stored)
    found = again(how[0], b"".join(FORMS[how[0]].write("a", forest, how[1])))  # type: ignore[misc]  # it is written
    assert make_rows(found).rows == make_rows(forest).rows


def test_a_trajectory_counts_the_ids_of_all_of_its_turns() -> None:
    calls = [call("a", [1], [2]), call("b", [1, 2, 3], [4, 5]), call("c", [1, 2, 3, 4, 5, 6], [7])]
    (line,) = written("atif", calls).splitlines()
    found = orjson.loads(line)
    totals = {"total_prompt_tokens": 1 + 3 + 6, "total_completion_tokens": 1 + 2 + 1}
    assert found["final_metrics"] == {**totals, "total_steps": len(found["steps"])}


@given(CALLS, st.booleans())
@tries(2)
def test_trajectories_are_valid(calls: list[StoredCall], expand: bool) -> None:
    for line in written("atif", calls, expand=expand).splitlines():
        Trajectory.model_validate_json(line)


def texts() -> st.SearchStrategy[str]:
    return st.text(alphabet='ab \n{}"1é', max_size=6)


ARGUMENTS = st.one_of(
    texts(), st.sampled_from(['{"a": 1}', '{"a":1}', "{}", "[1]", '{"a": NaN}', '{"a":1,"a":2}'])
)
TOOL_CALLS = st.builds(
    lambda identity, arguments, more: {
        "id": identity,
        "type": "function",
        "function": {"name": "f", "arguments": arguments},
        **more,
    },
    st.sampled_from(["1", "2"]),
    st.one_of(ARGUMENTS, st.just({"a": 1})),
    st.sampled_from([{}, {"index": 0}]),
)
CONTENT = st.one_of(
    texts(),
    st.none(),
    st.lists(st.builds(lambda text: {"type": "text", "text": text}, texts()), max_size=2),
    st.just([{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "a"}]),
    st.just([{"type": "text", "text": "a", "cache_control": {}}]),
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool", "text"])},
    optional={
        "content": CONTENT,
        "reasoning_content": st.one_of(texts(), st.none()),
        "reasoning": texts(),
        "tool_calls": st.one_of(st.none(), st.just([]), st.lists(TOOL_CALLS, max_size=2), st.just(["x"])),
        "tool_call_id": st.sampled_from(["1", "2", None, 3]),
        "name": st.sampled_from(["n", True, 1]),
        "refusal": st.none(),
    },
)


@given(st.lists(MESSAGES, min_size=1, max_size=6), st.lists(MESSAGES, max_size=2))
@tries(6)
def test_every_message_comes_back(prompt: list[dict[str, Any]], completion: list[dict[str, Any]]) -> None:
    step = Step(prompt=prompt, completion=completion, prompt_ids=[1], completion_ids=[2])
    calls = [StoredCall(name="a", step=step)]
    content = written("atif", calls)
    Trajectory.model_validate_json(content)
    (found,) = again("atif", content).calls
    assert [orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in found.step.messages] == [
        orjson.dumps(one, option=orjson.OPT_SORT_KEYS) for one in step.messages
    ]
    assert len(found.step.completion) == len(completion)


def conversation(turns: int, new: int = 30) -> list[StoredCall]:
    """Return the calls of a conversation whose prompts grow by `new` ids and two messages a turn."""
    calls, messages, ids = list[StoredCall](), list[Any](), list[int]()
    for turn in range(turns):
        messages = [*messages, {"role": "user", "content": f"question {turn}"}]
        step = Step(
            prompt=messages,
            completion=[{"role": "assistant", "content": "x" * 20}],
            prompt_ids=[*ids, *range(new)],
            completion_ids=[turn + 1] * new,
            logprobs=[-0.5] * new,
        )
        calls.append(StoredCall(name=f"{turn}", step=step, order=turn, metadata={"model": "m"}))
        messages, ids = list(step.messages), step.ids.tolist()
    return calls


def test_a_trajectory_grows_with_its_new_ids_and_expanded_with_its_prompts() -> None:
    sizes = {turns: len(written("atif", conversation(turns))) for turns in (20, 40, 80)}
    assert sizes[80] - sizes[40] < 2.2 * (sizes[40] - sizes[20])
    (line,) = written("atif", conversation(3), expand=True).splitlines()
    steps = [step for step in orjson.loads(line)["steps"] if step["source"] == "agent"]
    for step, made in zip(steps, conversation(3), strict=True):
        assert step["metrics"]["prompt_token_ids"] == made.step.prompt_ids.tolist()
        assert step["metrics"]["completion_token_ids"] == made.step.completion_ids.tolist()
        assert step["metrics"]["logprobs"] == [-0.5] * 30
        assert (step["model_name"], step["llm_call_count"]) == ("m", 1)


def test_a_shared_turn_is_a_copy_without_ids_in_the_second_trajectory() -> None:
    calls = [call("a", [1], [2]), call("b", [1, 2, 3], [4], order=1), call("c", [1, 2, 5], [6], order=2)]
    first, second = map(orjson.loads, written("atif", calls).splitlines())
    assert [first["trajectory_id"], second["trajectory_id"]] == ["talk/b", "talk/c"]
    copied, own = second["steps"]
    assert copied["is_copied_context"]
    assert "metrics" not in copied
    assert own["extra"]["tito"]["continues"] == 1
    assert own["extra"]["tito"]["prompt_token_ids"] == [5]


def test_a_turn_of_two_leaves_is_in_one_rollout_detail() -> None:
    calls = [call("a", [1], [2]), call("b", [1, 2, 3], [4], order=1), call("c", [1, 2, 5], [6], order=2)]
    first, second = orjson.loads(written("harbor", calls))["rollout_details"]
    assert first["prompt_token_ids"] == [[1], [1, 2, 3]]
    assert second["prompt_token_ids"] == [[1, 2, 5]]


def foreign() -> dict[str, Any]:
    """Return a trajectory as Harbor's agents write it: each prompt whole, and nothing of tito."""
    ids = {"prompt_token_ids": [1, 2], "completion_token_ids": [3], "logprobs": [-0.5]}
    more = {"prompt_token_ids": [1, 2, 3, 4], "completion_token_ids": [5], "prompt_tokens": 4}
    tool = {"tool_call_id": "1", "function_name": "f", "arguments": {"a": 1}}
    seen = {"results": [{"source_call_id": "1", "content": "ok"}]}
    return {
        "schema_version": "ATIF-v1.4",
        "session_id": "s",
        "agent": {"name": "terminus-2", "version": "2.0.0"},
        "steps": [
            {"step_id": 1, "source": "user", "message": "go"},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "tool_calls": [tool],
                "observation": seen,
                "metrics": ids,
            },
            {"step_id": 3, "source": "agent", "message": "done", "metrics": more},
            {"step_id": 4, "source": "agent", "message": "copied", "is_copied_context": True},
            {"step_id": 5, "source": "agent", "message": "run", "llm_call_count": 0},
        ],
    }


def test_trajectories_of_other_agents_are_read() -> None:
    Trajectory.model_validate(foreign())
    forest = again("atif", orjson.dumps(foreign(), option=orjson.OPT_INDENT_2))
    assert [node.kind.name for node in forest.nodes] == ["UNRELATED", "CONTINUES"]
    last = forest.calls[-1]
    assert [message["role"] for message in last.step.messages] == ["user", "assistant", "tool", "assistant"]
    assert last.step.prompt[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert forest.calls[0].step.logprobs == (-0.5,)
    scored = again("atif", dumped({**foreign(), "extra": {"reward": 0.5}}))
    assert [one.reward for one in scored.calls] == [0.5, 0.5]


def test_subagents_are_calls_of_the_same_conversation() -> None:
    sub = {**foreign(), "trajectory_id": "sub", "session_id": None}
    forest = again("atif", dumped({**foreign(), "trajectory_id": "main", "subagent_trajectories": [sub]}))
    assert [one.name for one in forest.calls] == ["main.2", "main.3", "sub.2", "sub.3"]


BAD_STEPS: list[tuple[dict[str, Any], str]] = [
    ({"metrics": None}, "steps[2]: metrics has no completion_token_ids"),
    ({"metrics": {"completion_token_ids": [5]}}, "steps[2]: metrics has no prompt_token_ids"),
    ({"llm_call_count": 2}, "steps[2]: llm_call_count is 2"),
    (
        {"metrics": {"prompt_token_ids": [1], "completion_token_ids": [5], "prompt_tokens": 2}},
        "steps[2]: 1 prompt ids for 2 counted ones",
    ),
    (
        {"metrics": {"prompt_token_ids": [1], "completion_token_ids": [5], "logprobs": []}},
        "steps[2]: 0 log-probabilities for 1 sampled ids",
    ),
    ({"extra": {"tito": {"continues": 3}}}, "steps[2]: extra.tito.continues is 3"),
    ({"extra": {"tito": {"continues": 1}}}, "steps[2]: it continues steps[0], which could not be read"),
    ({"extra": {"tito": {"continues": 2, "joins": [3, 0]}}}, "`joins` is not that of the call"),
    (
        {
            "extra": {"tito": {"continues": 2}},
            "metrics": {"prompt_token_ids": [1], "completion_token_ids": [5]},
        },
        "steps[2]: metrics.prompt_token_ids do not continue",
    ),
    ({"extra": {"tito": {"continues": 2, "restated": {"kept": 9}}}}, "restated is {'kept': 9}"),
    ({"extra": {"tito": {"weight_versions": 1}}}, "weight_versions is no list"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_STEPS)
def test_a_bad_step_is_named_and_the_others_are_read(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    record = foreign()
    record["steps"][2] |= change
    stored, problems = read(put(tmp_path, dumped(record)))
    assert [len(one.forest) for one in stored] == [1]
    (problem,) = problems
    assert problem.line == 1
    assert reason in problem.reason


BAD_TRAJECTORIES: list[tuple[dict[str, Any], str]] = [
    ({"schema_version": "ATIF-v2.0"}, "schema_version is 'ATIF-v2.0': ATIF-v1.0 to ATIF-v1.8 are known"),
    ({"schema_version": "ATIF-v1.9"}, "schema_version is 'ATIF-v1.9'"),
    ({"steps": [1]}, "`steps[0]` is int"),
    ({"extra": {"reward": "high"}}, "extra.reward is 'high': expected a number"),
    ({"steps": [{"source": "user"}]}, "`step_id` is null or missing"),
    ({"steps": [{"step_id": "1", "source": "user"}]}, "`step_id` is str"),
    ({"steps": [{"step_id": 1}]}, "`source` is null or missing"),
    (
        {"steps": [{"step_id": 1, "source": "tool"}]},
        "steps[0].source is 'tool': expected system, user, agent",
    ),
    ({"steps": [{"step_id": 1, "source": "user", "tool_calls": [1]}]}, "steps[0].tool_calls"),
    ({"steps": [{"step_id": 1, "source": "user", "tool_calls": 1}]}, "`tool_calls` is int"),
    ({"steps": [{"step_id": 1, "source": "user", "observation": 1}]}, "`observation` is int"),
    ({"steps": [{"step_id": 1, "source": "user", "observation": {"results": [1]}}]}, "steps[0].results"),
    ({"subagent_trajectories": [{"schema_version": 1}]}, "`schema_version` is int"),
]


@pytest.mark.parametrize(("change", "reason"), BAD_TRAJECTORIES)
def test_a_bad_trajectory_is_named(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    stored, (problem,) = read(put(tmp_path, dumped({**foreign(), **change})))
    assert not stored
    assert reason in problem.reason


def test_a_trajectory_without_any_ids_is_one_problem(tmp_path: Path) -> None:
    record = foreign()
    for step in record["steps"]:
        step.pop("metrics", None)
    stored, (problem,) = read(put(tmp_path, dumped(record)))
    assert not stored
    assert "steps[1]: no step has metrics.completion_token_ids" in problem.reason


def trial(**changes: Any) -> dict[str, Any]:
    detail = {
        "prompt_token_ids": [[1], [1, 2, 3]],
        "completion_token_ids": [[2], [4]],
        "logprobs": [[-0.5], [-0.25]],
        "extra": {"latency": [1, 2]},
        **changes,
    }
    return {
        "trial_name": "t",
        "agent_result": {"rollout_details": [detail]},
        "verifier_result": {"rewards": {"reward": 1.0, "style": 0.5}},
    }


def test_trials_of_harbor_are_read() -> None:
    forest = again("harbor", orjson.dumps(trial(), option=orjson.OPT_INDENT_2))
    (row,) = make_rows(forest).rows
    assert (row.ids.tolist(), list(row.loss_mask), row.reward) == ([1, 2, 3, 4], [0, 1, 0, 1], 1.0)
    assert row.metadata == {"latency": 2, "rewards": {"reward": 1.0, "style": 0.5}}
    assert row.logprobs == (None, -0.5, None, -0.25)


def test_every_step_of_a_trial_is_read_and_has_its_own_reward() -> None:
    two = trial()
    steps = [{"step_name": "s", **{name: two[name] for name in ("agent_result", "verifier_result")}}]
    steps += [{**steps[0], "verifier_result": {"rewards": {"only": 2}}}]
    forest = again("harbor", dumped({"trial_name": "t", "step_results": steps}))
    assert [(one.name, one.reward) for one in forest.calls] == [
        ("t.step-1.0.0", 1.0),
        ("t.step-1.0.1", 1.0),
        ("t.step-2.0.0", 2),
        ("t.step-2.0.1", 2),
    ]


BAD_TRIALS: list[tuple[dict[str, Any], str]] = [
    (trial(completion_token_ids=[[2]]), "rollout_details[0]: 1 turns in completion_token_ids for 2 in"),
    (trial(logprobs=[[-0.5]]), "1 turns in logprobs for 2"),
    (trial(extra={"latency": [1]}), "1 turns in extra.latency for 2"),
    (trial(prompt_token_ids=None), "`prompt_token_ids` is null or missing"),
    ({"agent_result": {"rollout_details": None}}, "has no rollout_details"),
    ({"trial_name": "t", "agent_result": None}, "`agent_result` is null or missing"),
]


@pytest.mark.parametrize(("record", "reason"), BAD_TRIALS)
def test_a_bad_trial_is_named(record: dict[str, Any], reason: str, tmp_path: Path) -> None:
    stored, (problem,) = read(put(tmp_path, dumped(record)))
    assert not stored
    assert reason in problem.reason


def test_a_bad_turn_of_a_trial_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    stored, (problem,) = read(put(tmp_path, dumped(trial(logprobs=[[-0.5], [1.0]]))))
    assert len(stored[0].forest) == 1
    assert "trial t, rollout_details[0], turn 1: the log-probability at position 0 is 1.0" in problem.reason


@pytest.mark.parametrize("form", ["atif", "harbor"])
def test_ids_that_do_not_continue_are_named(form: str, tmp_path: Path) -> None:
    calls = [call("a", [1], [2]), call("b", [1, 2, 3], [4], order=1)]
    content = written(form, calls)
    changed = content.replace(b'"completion_token_ids":[2]', b'"completion_token_ids":[9]')
    changed = changed.replace(b'"completion_token_ids":[[2]', b'"completion_token_ids":[[9]')
    assert changed != content
    stored, (problem,) = read(put(tmp_path, changed))
    assert len(stored[0].forest) == 1
    assert "continue" in problem.reason


@pytest.mark.parametrize(("form", "expand"), [("atif", True), ("harbor", False)])
@pytest.mark.parametrize("ids", [b"[9,2,3]", b"[1,9,3]", b"[1]", b"[]"])
def test_a_whole_prompt_begins_with_the_ids_that_it_continues(
    form: str, expand: bool, ids: bytes, tmp_path: Path
) -> None:
    content = written(form, [call("a", [1], [2]), call("b", [1, 2, 3], [4], order=1)], expand=expand)
    assert content.count(b"[1,2,3]") == 1
    changed = content.replace(b"[1,2,3]", ids).replace(b'"prompt_tokens":3,', b"")
    stored, (problem,) = read(put(tmp_path, changed))
    assert len(stored[0].forest) == 1
    assert "do not continue the ids of the " in problem.reason


@pytest.mark.parametrize("form", [name for name, form in FORMS.items() if form.write is not None])
def test_what_json_has_no_word_for_is_not_written(form: str) -> None:
    for made in (
        attrs.evolve(call("a", [1], [2]), reward=float("inf")),
        StoredCall(
            name="a",
            step=Step(prompt=[], completion=[], prompt_ids=[], completion_ids=[1], logprobs=[-1e999]),
        ),
    ):
        with pytest.raises(InputError, match="not finite"):
            written(form, [made])
    with pytest.raises(InputError, match="cannot be written"):
        written(form, [attrs.evolve(call("a", [1], [2]), metadata={"a": {1}})])


def test_a_conversation_that_cannot_be_written_is_a_problem_and_the_others_are_written() -> None:
    bad = Forest.of([attrs.evolve(call("a", [1], [2]), reward=float("inf"))])
    good = Forest.of([call("a", [1], [2])])
    stored = [StoredConversation(name="c", forest=one, first=7, last=7) for one in (bad, good)]
    problem, (found, lines) = converted(stored, FORMS["atif"], expand=False)  # type: ignore[misc]  # in their order
    assert str(problem) == "line 7: conversation 'c': call 'a' has a number that is not finite"
    assert found is stored[1]
    assert len(lines) == 1


def test_a_format_that_is_only_read_says_which_are_written() -> None:
    with pytest.raises(InputError, match="`miles` is only read: choose one of tito, atif, harbor"):
        list(converted([], FORMS["miles"], expand=False))


JUNK = st.one_of(
    st.sampled_from([None, True, False, "", "x", -1, 0, 2**70, 0.5, [], {}, [[]], [{}]]),
    st.sampled_from([{"tito": 1}, {"tito": {"fields": 1}}, {"tito": {"reasoning": []}}]),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in JSON data, as its holder and its key there."""
    keys: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [place for key, item in keys for place in ((value, key), *places(item))]


def gym_lines() -> bytes:
    ids = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.5]}
    first = {"model_call_id": "a", "rollout_id": "r", **ids}
    second = {**first, "model_call_id": "b", "parent_call_id": "a", "prompt_is_delta": True}
    return dumped(first, second)


@given(CALLS, st.sampled_from(["atif", "harbor", "foreign", "trial", "gym"]), st.data())
@tries(6)
def test_whatever_is_wrong_in_a_line_is_a_problem_and_no_crash(
    calls: list[StoredCall], form: str, data: st.DataObject
) -> None:
    known = {"foreign": dumped(foreign()), "trial": dumped(trial()), "gym": gym_lines()}
    content = known.get(form) or written(form, calls or [call("a", [1], [2])])
    records = [orjson.loads(line) for line in content.splitlines()]
    holder, key = data.draw(st.sampled_from(places(records)))
    if isinstance(holder, dict) and data.draw(st.booleans()):
        del holder[key]
    else:
        holder[key] = data.draw(JUNK)
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in records)
    with TemporaryDirectory() as folder:
        try:
            stored, problems = read(put(Path(folder), lines))
        except InputError:
            return
    assert stored or problems
    for one in stored:
        make_rows(one.forest, SampleOptions(rewards=Rewards.PER_LEAF))


def test_a_trajectory_may_begin_with_the_agent() -> None:
    (line,) = written("atif", [call("a", [1], [2], words="hello")]).splitlines()
    steps = orjson.loads(line)["steps"]
    assert [step["source"] for step in steps] == ["agent"]
    (found,) = again("atif", line + b"\n").calls
    assert (list(found.step.prompt), found.step.completion[0]["content"]) == ([], "hello")


@pytest.mark.parametrize("reward", [True, "high", [1.0]])
def test_a_reward_of_a_trial_is_a_number(tmp_path: Path, reward: Any) -> None:
    record = trial() | {"verifier_result": {"rewards": {"reward": reward, "other": 1.0}}}
    _, problems = read(put(tmp_path, dumped(record)))
    assert f"the reward is {reward!r}: expected a number" in str(problems[0])


@pytest.mark.parametrize(("left_out", "name"), [([], "talk"), (["session_id"], "talk/a")])
def test_a_trajectory_names_its_conversation(tmp_path: Path, left_out: list[str], name: str) -> None:
    record = orjson.loads(written("atif", [call("a", [1], [2], words="hello")]))
    for field in left_out:
        del record[field]
    (stored,), problems = read(put(tmp_path, dumped(record)))
    assert (problems, stored.name) == ([], name)
