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
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.io.samples.sample_files import chat, dumped, own, own_forest, put, read, recorded
from tests.profiles import tries
from tito_core import InputError, Ledger, Origin, Step
from tito_core.samples import Forest, StoredCall
from tito_core.testing.strategies.stored_call import CALLS
from tito_io.samples import lines as reading_lines
from tito_io.samples.forms.tito import CallFile, line
from tito_io.samples.line_groups import Group, NoIdError, ReadOptions, id_at
from tito_io.samples.lines import lines, require_plain_file
from tito_io.samples.read import StoredConversation, conversations

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


def test_what_is_no_json_cannot_be_written() -> None:
    with pytest.raises(InputError, match="call 'a' cannot be written"):
        line("c", attrs.evolve(TALK[0], metadata={"x": object()}))


# Which lines are one conversation.


def test_a_file_may_be_one_conversation(tmp_path: Path) -> None:
    records = [
        chat("a", [1], [2], session_id="x"),
        chat("b", [1, 2, 3], [4], session_id="y"),
        chat("c", [9], [9], session_id="x"),
    ]
    (stored,), _ = read(put(tmp_path, dumped(*records), "run.7.jsonl"), group=Group.FILE)
    assert (stored.name, stored.forest.path("b")) == ("run", ("a", "b"))


# Which form it is.


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(
        InputError, match="there is no format 'xml': give one of tito, atif, harbor, nemo-gym"
    ):
        ReadOptions(form="xml")


def test_training_rows_are_refused_by_name(tmp_path: Path) -> None:
    row = dumped({"conversation": "c", "ids": [1, 2], "loss_mask": [0, 1], "spans": []})
    with pytest.raises(InputError, match=r"line 1: these are training rows that `tito samples` wrote; give"):
        read(put(tmp_path, row))


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


@pytest.mark.whole
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


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.zst"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, name: str) -> None:
    path = put(tmp_path, b"", name)
    with pytest.raises(InputError, match="is empty: give a file with one JSON object per line"):
        list(conversations(path))


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


@pytest.mark.whole
def test_a_long_trace_needs_no_recursion(tmp_path: Path) -> None:
    (trace,) = recorded("A node that was not sampled may have no ids")
    asked, said = trace["nodes"]
    nodes = [{**asked, "token_ids": [1]}]
    nodes += [{**nodes[0], "parent": place} for place in range(3000)]
    (stored,), problems = read(put(tmp_path, dumped({**trace, "nodes": [*nodes, {**said, "parent": 3000}]})))
    assert problems == []
    assert len(stored.forest.calls[0].ids) == 3003


def test_a_rollout_that_lacks_a_call_is_not_read(tmp_path: Path) -> None:
    file = put(tmp_path, dumped(*recorded("Calls of a rollout are one conversation")))
    file.with_name("log.incomplete").touch()
    with pytest.raises(InputError, match="was not captured, so that it must not train"):
        read(file)
