"""Conversations written in a format that tito writes come back as they were, and make the same rows."""

from __future__ import annotations

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
from tests.io.samples.sample_files import put, read
from tests.io.serve.test_rows import committed, talks
from tests.profiles import tries
from tito_core import InputError, Ledger, Step
from tito_core.samples import Forest, StoredCall, make_rows
from tito_core.testing.strategies.stored_call import CALLS, masked
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
    """Return the forest of a file of one conversation, whose format is recognized."""
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


@pytest.mark.parametrize(("form", "expand"), WRITTEN)
def test_sampling_masks_come_back(form: str, *, expand: bool) -> None:
    calls = [masked(place, call(f"c{place}", [1, *range(2, 2 + place)], [7, 8, 9])) for place in range(2)]
    found = again(form, written(form, calls, expand=expand))
    assert [one.step.sampling_mask for one in found.calls] == [one.step.sampling_mask for one in calls]
    assert None not in [one.step.sampling_mask for one in calls]


@given(CALLS, st.booleans(), st.sampled_from(WRITTEN))
@tries(4)
def test_what_is_written_comes_back(calls: list[StoredCall], masks: bool, how: tuple[str, bool]) -> None:
    if masks:
        calls = [masked(number, one) for number, one in enumerate(calls)]
    forest = Forest.of(calls)
    if not len(forest):
        return
    found = again(how[0], written(how[0], calls, expand=how[1]))
    assert found.calls == forest.calls
    assert make_rows(found) == make_rows(forest)


@pytest.mark.whole
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


def test_a_trajectory_may_begin_with_the_agent() -> None:
    (line,) = written("atif", [call("a", [1], [2], words="hello")]).splitlines()
    steps = orjson.loads(line)["steps"]
    assert [step["source"] for step in steps] == ["agent"]
    (found,) = again("atif", line + b"\n").calls
    assert (list(found.step.prompt), found.step.completion[0]["content"]) == ([], "hello")
