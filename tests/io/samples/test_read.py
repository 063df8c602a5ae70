"""Lines become conversations, one at a time; what cannot be read is said, and the rest is read."""

from __future__ import annotations

import errno
import gzip
import io
import os
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import orjson
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.io.samples.sample_files import chat, dumped, own, own_forest, put, read
from tests.io.samples.test_exchange import DYNAMO, EXPERTS, GENERATED, LEGACY
from tests.io.samples.test_verifiers import RESULT, TRACES
from tests.io.samples.test_written_forms import written
from tests.profiles import tries
from tito_core import InputError, Ledger, Origin, Step
from tito_core.samples import Forest, StoredCall
from tito_core.testing.strategies.stored_call import CALLS
from tito_io.samples import lines as reading_lines
from tito_io.samples.conversation import OpenConversation, Problem
from tito_io.samples.forms import FORMS
from tito_io.samples.forms.tito import CallFile, line
from tito_io.samples.line_groups import PATIENCE, Group, LineGroup, NoIdError, ReadOptions, id_at
from tito_io.samples.lines import lines, require_plain_file
from tito_io.samples.read import StoredConversation, conversations, conversations_in

TALK = [
    StoredCall(
        name="a",
        step=Step(
            prompt=[{"role": "user", "content": "hi"}],
            completion=[{"role": "assistant", "content": "hello"}],
            prompt_ids=[1, 2],
            completion_ids=[3, 4],
            logprobs=[-0.5, None],
        ),
        metadata={"nested": {"a": [1, None]}},
    ),
]
TALK += [
    StoredCall(
        name="b",
        order=1,
        step=Step(
            prompt=[*TALK[0].step.messages, {"role": "user", "content": "and?"}],
            completion=[{"role": "assistant", "content": "so"}],
            prompt_ids=[1, 2, 3, 4, 5, 6],
            completion_ids=[7],
            prompt_ledger=TALK[0].step.ledger.then(*TALK[0].step.prompt_ledger.runs),
        ),
    )
]


# Our own form.


@given(CALLS, st.booleans())
@tries(2)
def test_calls_come_back_as_they_were_written(calls: list[StoredCall], along: bool) -> None:
    with TemporaryDirectory() as folder:
        forest = Forest.of(calls)
        content = own("c", calls) if along else own_forest("c", forest)
        (stored,), problems = read(put(Path(folder), content))
        assert problems == []
        assert stored.name == "c"
        assert stored.forest == forest
        assert (stored.first, stored.last) == (1, len(calls))


def test_a_call_that_goes_on_is_written_in_what_is_new(tmp_path: Path) -> None:
    first, second = own("c", TALK).splitlines()
    assert b'"after":null' in first
    assert b'"after":"a"' in second
    assert b'"prompt_ids":[5,6]' in second
    assert b"hello" not in second
    (stored,), _ = read(put(tmp_path, own("c", TALK)))
    again = stored.forest.calls
    assert again[1].ids.extends(again[0].ids)
    assert again[1].step.prompt.extends(again[0].step.messages)


def test_a_long_conversation_costs_what_is_new_in_each_turn(tmp_path: Path) -> None:
    calls, ids = list[StoredCall](), list[int]()
    for turn in range(60):
        step = Step(prompt=[], completion=[], prompt_ids=[*ids, *range(100)], completion_ids=range(100))
        calls.append(StoredCall(name=str(turn), order=turn, step=step))
        ids = [*ids, *range(100), *range(100)]
    content = own("c", calls)
    assert len(content) < 60 * 2500
    (stored,), _ = read(put(tmp_path, content))
    assert stored.forest == Forest.of(calls)


def test_the_ledger_that_two_turns_share_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = Ledger.of([(Origin.PROMPT, 1)] * 50)
    first = attrs.evolve(TALK[0].step, prompt_ids=range(50), prompt_ledger=shared)
    ledger = shared.then((Origin.SAMPLED, 2), (Origin.PROMPT, 2))
    second = attrs.evolve(TALK[1].step, prompt_ids=[*first.ids, 5, 6], prompt_ledger=ledger)
    calls = [attrs.evolve(call, step=step) for call, step in zip(TALK, (first, second), strict=True)]
    sizes = list[int]()

    def counted(one: Ledger) -> list[tuple[Origin, int]]:
        sizes.append(len(one.part) // 2)
        return one.since(0)

    monkeypatch.setattr(Ledger, "runs", property(counted))
    assert b'"after":"a"' in line("c", calls[1], calls[0])
    assert max(sizes) == 1


@pytest.mark.parametrize("runs", [[(Origin.PROMPT, 6)], [(Origin.PROMPT, 2), (Origin.SAMPLED, 4)]])
def test_a_ledger_that_differs_is_written_whole(runs: list[tuple[Origin, int]], tmp_path: Path) -> None:
    for ledger in (Ledger.of(runs), TALK[0].step.prompt_ledger.then((Origin.PROMPT, 4))):
        second = attrs.evolve(TALK[1], step=attrs.evolve(TALK[1].step, prompt_ledger=ledger))
        (stored,), problems = read(put(tmp_path, own("c", [TALK[0], second])))
        assert (problems, stored.forest.calls[1].step.prompt_ledger) == ([], ledger)


def test_calls_of_two_conversations_under_one_name_are_not_grafted(tmp_path: Path) -> None:
    """A file may have been put together from others."""
    first, second = own("c", TALK).splitlines(keepends=True)
    other = attrs.evolve(TALK[0].step, completion_ids=[*list(TALK[0].step.completion_ids)[:-1], 77])
    (stranger,) = own("c", [attrs.evolve(TALK[0], step=other)]).splitlines(keepends=True)
    assert read(put(tmp_path, first + second))[1] == []
    (stored,), problems = read(put(tmp_path, stranger + second))
    assert [call.name for call in stored.forest.calls] == ["a"]
    assert "follows another call named 'a' than the one before it" in str(problems[0])


def test_a_call_after_one_that_cannot_be_read_is_a_problem_too(tmp_path: Path) -> None:
    _, second = own("c", TALK).splitlines(keepends=True)
    third = own("d", TALK[:1])
    stored, problems = read(put(tmp_path, b'{"call": \n' + second + third))
    assert [one.name for one in stored] == ["d"]
    assert [problem.line for problem in problems] == [1, 2]
    assert "'b' follows 'a', which is in no readable line before it" in problems[1].reason


def test_what_is_no_json_cannot_be_written() -> None:
    with pytest.raises(InputError, match="call 'a' cannot be written"):
        line("c", attrs.evolve(TALK[0], metadata={"x": object()}))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"order": "1"}, "order is '1'"),
        ({"reward": True}, "reward is True"),
        ({"more": 1}, r"the keys \['more'\] are unknown"),
        ({"step": 5}, "Call.step"),
        ({"routed_experts": {"data": "AAAA", "dtype": "uint8", "shape": [9]}}, "needs 9"),
        ({"routed_experts": 7}, "RoutedExperts"),
        ({"weight_versions": [{"version": "v", "start": 0, "stop": 9}]}, "covers 0 to 9 of 2"),
    ],
)
def test_a_wrong_call_is_a_problem_that_names_the_place(
    tmp_path: Path, change: dict[str, Any], told: str
) -> None:
    record = orjson.loads(own("c", TALK[:1]))
    record["call"].update(change)
    stored, (problem,) = read(put(tmp_path, dumped(record) + own("d", TALK)))
    assert [one.name for one in stored] == ["d"]
    assert problem.line == 1
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(problem.reason)


def test_a_log_probability_above_zero_is_a_problem_that_names_the_place(tmp_path: Path) -> None:
    """A wrong sign poisons every ratio of a trainer."""
    record = orjson.loads(own("c", TALK[:1]))
    record["call"]["step"]["logprobs"][0] = 7.5
    stored, (problem,) = read(put(tmp_path, dumped(record) + own("d", TALK)))
    assert [one.name for one in stored] == ["d"]
    assert (problem.line, "logprobs[0] is 7.5, above 0" in problem.reason) == (1, True)


def test_a_reward_beside_a_call_is_not_lost_in_silence(tmp_path: Path) -> None:
    record = orjson.loads(own("c", TALK[:1])) | {"reward": 1.0}
    stored, (problem,) = read(put(tmp_path, dumped(record)))
    assert stored == []
    assert "the keys ['reward'] are unknown: what a call has, as its reward, is in 'call'" in problem.reason


# Which lines are one conversation.


def test_lines_with_one_id_are_one_conversation(tmp_path: Path) -> None:
    path = put(tmp_path, own("x", TALK) + own("y", TALK[:1]))
    stored, problems = read(path)
    assert [(one.name, len(one.forest), one.first, one.last) for one in stored] == [
        ("x", 2, 1, 2),
        ("y", 1, 3, 3),
    ]
    assert problems == []


def test_lines_that_come_late_are_problems_and_no_conversation_of_their_own(tmp_path: Path) -> None:
    x, x2 = own("x", TALK).splitlines(keepends=True)
    path = put(tmp_path, x + own("y", TALK[:1]) + x2 + x2 + own("z", TALK[:1]))
    stored, problems = read(path)
    assert [(one.name, len(one.forest)) for one in stored] == [("x", 1), ("y", 1), ("z", 1)]
    assert [problem.line for problem in problems] == [3, 4]
    assert "conversation 'x' also has earlier lines, and lines of another stand between" in problems[0].reason


def test_a_file_may_be_one_conversation(tmp_path: Path) -> None:
    records = [
        chat("a", [1], [2], session_id="x"),
        chat("b", [1, 2, 3], [4], session_id="y"),
        chat("c", [9], [9], session_id="x"),
    ]
    (stored,), _ = read(put(tmp_path, dumped(*records), "run.7.jsonl"), group=Group.FILE)
    assert (stored.name, stored.forest.path("b")) == ("run", ("a", "b"))


def test_a_line_may_be_one_conversation(tmp_path: Path) -> None:
    path = put(tmp_path, dumped(chat("a", [1], [2]), chat("a", [1], [2], session_id="x")))
    stored, _ = read(path, group=Group.LINE)
    assert [one.name for one in stored] == ["log:1", "x:2"]


def test_without_ids_the_file_names_the_conversation(tmp_path: Path) -> None:
    stored, _ = read(put(tmp_path, dumped(chat("a", [1], [2]), chat("b", [1, 2], [3]))))
    assert [(one.name, len(one.forest)) for one in stored] == [("log", 2)]


@pytest.mark.parametrize("field", ["conversation", "conversation_id", "session_id", "trajectory_id"])
def test_an_id_stands_in_one_of_some_fields(tmp_path: Path, field: str) -> None:
    more: dict[str, Any] = {field: 7}
    stored, _ = read(put(tmp_path, dumped(chat("a", [1], [2], **more))))
    assert [one.name for one in stored] == ["7"]


def test_an_id_may_be_named(tmp_path: Path) -> None:
    records = [chat(str(n), [n], [2], meta={"s": one}) for n, one in enumerate(["x", "x", None, "y"])]
    stored, (problem,) = read(put(tmp_path, dumped(*records)), id_field="meta.s")
    assert [(one.name, len(one.forest)) for one in stored] == [("x", 2), ("y", 1)]
    assert str(problem) == "line 3: has no id at `meta.s`: give the name of a field that every line has"


def test_a_name_that_comes_twice_is_a_problem_and_the_first_stays(tmp_path: Path) -> None:
    path = put(tmp_path, dumped(chat("a", [1], [2]), chat("a", [1], [3]), chat("b", [1], [4])))
    (stored,), (problem,) = read(path)
    assert [call.ids.tolist() for call in stored.forest.calls] == [[1, 2], [1, 4]]
    assert str(problem) == "line 2: the conversation already has a call named 'a'"


# Which form it is.


def test_a_line_of_another_form_is_a_problem(tmp_path: Path) -> None:
    path = put(tmp_path, own("x", TALK) + dumped(chat("a", [1], [2])) + dumped({"odd": 1}))
    (stored,), problems = read(path)
    assert len(stored.forest) == 2
    assert (
        "is not in the format `tito` (calls that tito wrote): it looks like `exchange`" in problems[0].reason
    )
    assert "its keys are `odd`" in problems[1].reason


@pytest.mark.parametrize(
    ("content", "form", "told"),
    [
        (
            dumped({"a": 1, "b": 2}),
            None,
            r"line 1: is not in a recognised format \(tito, atif.*keys are `a`, `b`",
        ),
        (dumped({}), None, "it has no keys"),
        (
            dumped(chat("a", [1], [2])),
            "tito",
            "line 1: is not in the format `tito` .* it looks like `exchange`",
        ),
        (b"[1]\n" + dumped({"a": 1}), None, "line 2: is not in a recognised format"),
        (
            b"[1]\n{\n",
            None,
            "line 1: is a list: give one JSON object per line; 1 more line cannot be read either",
        ),
        (
            b"x\n" * PATIENCE * 9,
            None,
            f"line 1: is not valid JSON.*{PATIENCE - 1} more lines cannot be read either",
        ),
        (b"", None, "is empty"),
        (b" \n\n", None, "is empty"),
        (b"PK\x03\x04\x00\x00", None, "is not a text file"),
    ],
)
def test_a_file_of_no_known_form_is_refused(
    tmp_path: Path, content: bytes, form: str | None, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        read(put(tmp_path, content), form=form)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(
        InputError, match="there is no format 'xml': give one of tito, atif, harbor, nemo-gym"
    ):
        ReadOptions(form="xml")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder"):
        read(tmp_path)
    with pytest.raises(InputError, match=r"cannot read .*No such file"):
        read(tmp_path / "no.jsonl")


def test_broken_lines_are_said_and_the_rest_is_read(tmp_path: Path) -> None:
    good = own("x", TALK[:1]), own("y", TALK[:1])
    path = put(tmp_path, b'{"call"\n' + good[0] + b"\n[]\n\xff\xfe\n" + good[1] + b'{"call": 1')
    stored, problems = read(path)
    assert [one.name for one in stored] == ["x", "y"]
    assert [problem.line for problem in problems] == [1, 4, 5, 7]


# Compression.


@pytest.mark.parametrize("name", ["log.jsonl.gz", "log.jsonl.zst"])
def test_compressed_files_are_read(tmp_path: Path, name: str) -> None:
    press = gzip.compress if name.endswith(".gz") else zstandard.compress
    content = own("x", TALK) + dumped(chat("a", [1], [2]))
    (stored,), (problem,) = read(put(tmp_path, press(content), name))
    assert (len(stored.forest), problem.line) == (2, 3)
    for broken in (press(content)[:-9], b"no compression at all"):
        with pytest.raises(InputError, match="cannot be decompressed"):
            read(put(tmp_path, broken, name))


def test_lines_know_where_they_are(tmp_path: Path) -> None:
    content = own("x", TALK) + b"\n" + own("y", TALK)
    path, told = put(tmp_path, content), list[int]()
    found = list(lines(path, told.append))
    assert [one.number for one in found] == [1, 2, 4, 5]
    assert all(content.startswith(one.raw, one.start) for one in found)
    assert told[-1] == len(content)


# Memory.


def many(count: int) -> Iterator[bytes]:
    step = Step(prompt=[], completion=[], prompt_ids=range(2000), completion_ids=range(2000))
    for number in range(count):
        yield line(f"conversation-{number}", StoredCall(name="a", step=step))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as file:
        file.writelines(many(300))
    size = path.stat().st_size
    assert size > 5_000_000
    tracemalloc.start()
    count = sum(isinstance(one, StoredConversation) for one in conversations(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 300
    assert peak < 2_500_000


# Whatever stands in a file.

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**33) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
"""What may stand in a place of a record."""


def changed(data: Any, path: list[Any], value: Any) -> Any:
    """Return data with another value at the end of a path."""
    if not path:
        return value
    if isinstance(data, dict):
        return {**data, path[0]: changed(data[path[0]], path[1:], value)}
    return [changed(one, path[1:], value) if at == path[0] else one for at, one in enumerate(data)]


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, inner in items:
        yield from places(inner, (*path, name))


def spoiled(draw: Any, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record with something else in one or two places."""
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from([path for path in places(record) if path]))
        record = changed(record, list(path), draw(VALUES))
    return record


def _records() -> list[dict[str, Any]]:
    mine = [orjson.loads(one) for one in own("c", TALK).splitlines()]
    session = {"session_id": "s", "records": [chat("a", [1], [2]), GENERATED], "metadata": {}}
    return [*mine, chat("a", [1], [2]), GENERATED, LEGACY, DYNAMO, EXPERTS, RESULT, TRACES, session]


@given(st.data())
@tries(10)
def test_whatever_a_line_holds_is_read_or_a_problem(data: Any) -> None:
    record = spoiled(data.draw, data.draw(st.sampled_from(_records())))
    with TemporaryDirectory() as folder:
        path = put(Path(folder), dumped(record))
        try:
            found = list(conversations(path, ReadOptions(group=data.draw(st.sampled_from(Group)))))
        except InputError:
            return
        assert all(isinstance(one, StoredConversation | Problem) for one in found)


@contextmanager
def piped(path: Path, content: bytes) -> Iterator[Path]:
    """Lend a pipe of that name, and write into it while it is read."""
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(content,))
    writer.start()
    try:
        yield path
    finally:
        writer.join()


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.zst"])
def test_a_pipe_is_read_like_a_file(tmp_path: Path, name: str) -> None:
    text = own("c", TALK) * 3_000  # more than a pipe holds, and than is looked at
    packed = {"log.jsonl": text, "log.jsonl.gz": gzip.compress(text)}.get(name) or zstandard.compress(text)
    ticks: list[int] = []
    with piped(tmp_path / name, packed) as path:
        found = [line.raw for line in lines(path, ticks.append)]
    assert b"".join(found) == text
    assert ticks == sorted(ticks)


def test_what_is_no_text_is_no_text_in_a_pipe_either(tmp_path: Path) -> None:
    with (
        piped(tmp_path / "log.jsonl", b"\0\1") as path,
        pytest.raises(InputError, match=r"log\.jsonl is not a text file"),
    ):
        list(lines(path))


class Broken(io.RawIOBase):
    """A file on a disk that fails after so many bytes."""

    def __init__(self, good: bytes) -> None:
        self.good, self.size = good, len(good)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self.good:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        size = min(len(buffer), len(self.good))
        buffer[:size], self.good = self.good[:size], self.good[size:]
        return size


@pytest.mark.parametrize("good", [b"", own("c", TALK), own("c", TALK) * 3_000])
@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz"])
def test_a_disk_that_fails_is_told_with_the_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, good: bytes, name: str
) -> None:
    packed = gzip.compress(good)[:-8] if name.endswith(".gz") and good else good
    monkeypatch.setattr(reading_lines, "_open", lambda *_: io.BufferedReader(Broken(packed)))
    with pytest.raises(InputError, match=rf"cannot read .*{name}: Input/output error"):
        list(lines(tmp_path / name))


def test_machines_are_given_no_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(InputError, match=r"log\.jsonl is a pipe or a device, .*write a file first"):
        require_plain_file(tmp_path / "log.jsonl")
    (tmp_path / "log.jsonl").unlink()
    require_plain_file(put(tmp_path, own("c", TALK)))
    require_plain_file(tmp_path / "nowhere.jsonl")  # which is an error when it is opened


@pytest.mark.parametrize(
    ("text", "noun"), [(b"9", "a number"), (b'"x"', "a string"), (b"null", "null"), (b"true", "a boolean")]
)
def test_a_line_that_is_no_object_is_named_in_the_words_of_json(
    tmp_path: Path, text: bytes, noun: str
) -> None:
    told, _ = conversations(put(tmp_path, own("c", TALK) + text + b"\n"))
    assert isinstance(told, Problem)
    assert told.reason == f"is {noun}: give one JSON object per line"


def test_formats_have_these_names() -> None:
    """Scripts give them with --format and --to."""
    assert sorted(FORMS) == [
        "atif",
        "exchange",
        "harbor",
        "miles",
        "nemo-gym",
        "nemo-gym-rollouts",
        "tito",
        "traces",
        "verifiers",
    ]


GYM = {"generation_token_ids": [3], "prompt_token_ids": [1], "generation_log_probs": [-0.5]}
SAME: dict[str, tuple[bytes, bool]] = {
    "atif": (written("atif", TALK[:1], name="s"), False),
    "exchange": (dumped(chat("a", [1], [2], conversation="s")), False),
    "harbor": (written("harbor", TALK[:1], name="s"), True),
    "miles": (dumped({"session_id": "s", "records": [chat("a", [1], [2])], "metadata": {}}), True),
    "nemo-gym": (dumped({**GYM, "model_call_id": "a", "rollout_id": "s"}), False),
    "nemo-gym-rollouts": (
        dumped({"responses_create_params": {}, "response": {"id": "s", "output": [GYM]}}),
        True,
    ),
    "tito": (written("tito", TALK[:1], name="s"), False),
    "traces": (dumped({**TRACES, "traces": [{**TRACES["traces"][0], "id": "s"}]}), True),
    "verifiers": (
        dumped({**RESULT, "trajectory": [{**RESULT["trajectory"][0], "trajectory_id": "s"}]}),
        True,
    ),
}
"""A line of each format, and whether it holds all of its conversation."""


@pytest.mark.parametrize("name", FORMS)
def test_a_second_line_of_a_session_is_another_conversation_where_a_line_is_whole(
    tmp_path: Path, name: str
) -> None:
    line, whole = SAME[name]
    stored, problems = read(put(tmp_path, line * 2))
    assert [one.name for one in stored] == ["s"]
    said = "also has earlier lines" if whole else "already has a call named"
    assert said in str(problems[0])


ODD: list[tuple[dict[str, Any], str]] = [
    ({"trajectory": 7}, "the rollout: the answer's `trajectory` is int"),
    ({"trajectory": [7]}, "step line-1.0: the answer's `step` is int"),
    ({"traces": 7}, "the episode: the answer's `traces` is int"),
    ({"traces": [7]}, "the episode: the answer's `trace` is int"),
    ({"step_results": 7}, "the trial: the answer's `step_results` is int"),
    ({"step_results": [7]}, "trial line-1: the answer's `step_results` is int"),
    ({"trial_name": "t", "rollout_details": 7}, "trial t: it has no rollout_details"),
    (
        {"trial_name": "t", "rollout_details": [7]},
        "trial t, rollout_details[0]: the answer's `rollout_details` is int",
    ),
    ({"steps": [7], "schema_version": "ATIF-v1.8"}, "trajectory line-1: the answer's `steps[0]` is int"),
    ({"steps": [], "schema_version": 7}, "the trajectory: the answer's `schema_version` is int"),
    (
        {"steps": [], "schema_version": f"ATIF-v1.{'9' * 5_000}"},
        "the trajectory: schema_version is",
    ),
    ({"records": 7}, "the session: the answer's `records` is int"),
    ({"records": [7]}, "the session: the answer's `record` is int"),
    ({"response": 7}, "the reply: the answer's `choices` is null or missing"),
    ({"response": {}, "request": 7}, "the reply: its request is not an object"),
]


@pytest.mark.parametrize(("record", "said"), ODD, ids=[said for _, said in ODD])
def test_an_odd_line_is_named_by_what_is_odd_in_it(tmp_path: Path, record: dict[str, Any], said: str) -> None:
    found = list(conversations(put(tmp_path, dumped(record)), ReadOptions(form=form_of(record))))
    problems = [one for one in found if isinstance(one, Problem)]
    assert [one.line for one in problems] == [1]
    assert problems[0].reason.startswith(said)


def form_of(record: dict[str, Any]) -> str:
    return next(name for name, form in FORMS.items() if form.matches(record))


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.zst"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, b"", name)
    with pytest.raises(InputError, match="is empty: give a file with one JSON object per line"):
        list(conversations(path))


def test_a_problem_that_conversations_of_a_line_share_is_said_once() -> None:
    shared, own_one = Problem(1, "shared"), Problem(1, "own")
    found = {
        "a": OpenConversation("a", 1, problems=[shared, shared]),
        "b": OpenConversation("b", 1, problems=[own_one, shared]),
    }
    group = LineGroup(form=FORMS["tito"], lines=(), conversations=found)
    assert list(conversations_in(group)) == [shared, own_one]


def test_a_file_of_calls_is_open_in_its_block_alone(tmp_path: Path) -> None:
    file = CallFile(tmp_path / "calls.jsonl", "c")
    turn: Any = None
    with pytest.raises(ValueError, match="the file is not open: use it in a with statement"):
        file.add(turn)
    with file:
        assert (tmp_path / "calls.jsonl").read_bytes() == b""
    assert CallFile(tmp_path / "x").conversation != CallFile(tmp_path / "x").conversation


@pytest.mark.parametrize("record", [{}, {"meta": 7}, {"meta": {"x": None}}, {"meta": {"x": ""}}])
def test_a_line_without_an_id_names_the_field(record: dict[str, Any]) -> None:
    with pytest.raises(NoIdError, match=r"has no id at `meta\.x`: give the name of a field"):
        id_at(record, "meta.x")


def test_what_is_wrong_in_a_compressed_file_is_said(tmp_path: Path) -> None:
    broken = bytearray(zstandard.compress(own("c", TALK)))
    broken[12:20] = b"\xff" * 8
    path = put(tmp_path, bytes(broken), "log.jsonl.zst")
    with pytest.raises(
        InputError, match=r"log\.jsonl\.zst cannot be decompressed: zstd decompress"
    ) as caught:
        list(conversations(path))
    assert "None" not in str(caught.value)
