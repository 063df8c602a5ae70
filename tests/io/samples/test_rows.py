"""Rows go into files and come back, in every kind of file, to the last digit."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import attrs
import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from tests.core.samples.calls import call
from tests.io.samples.row_files import READERS, entry_of, from_parquet, from_tensors
from tests.profiles import tries
from tito_core import InputError
from tito_core.samples import Forest, Row, RowPer, SampleOptions, StoredCall, WeightVersion
from tito_core.samples.experts import MissingRow, RoutedExperts
from tito_core.testing.strategies.stored_call import CALLS, OPTIONS
from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import samples as miles_samples
from tito_io.samples import parquet
from tito_io.samples.entry import Entry, entries, to_columns
from tito_io.samples.read import StoredConversation
from tito_io.samples.sink import SUFFIXES, kind_of, open_sink
from tito_io.samples.trainer_columns import trl_columns

pa: Any = import_module("pyarrow")
pj: Any = import_module("pyarrow.json")
pq: Any = import_module("pyarrow.parquet")


def rows(calls: list[StoredCall], options: SampleOptions | None = None) -> list[Entry]:
    stored = StoredConversation(name="c", forest=Forest.of(calls), first=3, last=5)
    return entries(stored, options or SampleOptions())[0]


def write(path: Path, found: list[Entry]) -> None:
    with open_sink(path, sys.stdout.buffer) as sink:
        for entry in found:
            sink.write(entry)


SMALL = [
    call("a", [1], [2, 3], reward=1, metadata={"number": 1, "é": [None]}),
    call("b", [1, 2, 3, 4], [5]),
    call("c", [1, 2, 3, 6], [7, 8]),
]


def test_every_kind_of_file_is_tested() -> None:
    assert READERS.keys() == set(SUFFIXES)


@pytest.mark.parametrize("kind", READERS)
@given(calls=CALLS, options=OPTIONS)
@tries(1)
def test_rows_come_back_as_they_were(kind: str, calls: list[StoredCall], options: SampleOptions) -> None:
    options = attrs.evolve(options, rewards=type(options.rewards).PER_LEAF)
    found = rows(calls, options)
    with TemporaryDirectory() as folder:
        path = Path(folder) / f"rows{kind}"
        write(path, found)
        assert list(READERS[kind](path)) == found


@given(CALLS)
def test_columns_come_back_as_they_were(calls: list[StoredCall]) -> None:
    for entry in rows(calls, SampleOptions(rows=RowPer.CALL)):
        assert entry_of(to_columns(entry)) == entry


def test_a_row_says_where_it_comes_from() -> None:
    assert [(one.conversation, one.line, one.place, one.row.name) for one in rows(SMALL)] == [
        ("c", 3, 0, "b"),
        ("c", 3, 1, "c"),
    ]


@pytest.mark.parametrize(
    ("metadata", "group"),
    [
        ({}, None),
        ({"group": "g", "example_id": 7}, "g"),
        ({"example_id": 7, "task": "math"}, "7"),
        ({"task": "math"}, "math"),
    ],
)
def test_the_group_of_a_rollout_is_named_by_any_call(metadata: dict[str, Any], group: str | None) -> None:
    calls = [SMALL[0], attrs.evolve(SMALL[1], metadata=metadata), SMALL[2]]
    assert [one.group for one in rows(calls)] == [group, group]
    assert [trl_columns(one)["group"] for one in rows(calls)] == [group, group]


def test_a_rollout_of_two_groups_is_refused() -> None:
    calls = [attrs.evolve(one, metadata={"group": one.name}) for one in SMALL]
    with pytest.raises(InputError, match=r"the groups 'a' and 'b' in metadata\.group: give one to all"):
        rows(calls)


def test_columns_are_what_they_say() -> None:
    assert to_columns(rows(SMALL)[0]) == {
        "conversation": "c",
        "group": None,
        "line": 3,
        "place": 0,
        "name": "b",
        "ids": [1, 2, 3, 4, 5],
        "loss_mask": [0, 1, 1, 0, 1],
        "logprobs": [None] * 5,
        "processed_logprobs": False,
        "sampling_mask": None,
        "spans": [
            {"origin": "prompt", "start": 0, "stop": 1, "call": "a", "weights": None, "trained": False},
            {"origin": "sampled", "start": 1, "stop": 3, "call": "a", "weights": None, "trained": True},
            {"origin": "prompt", "start": 3, "stop": 4, "call": "b", "weights": None, "trained": False},
            {"origin": "sampled", "start": 4, "stop": 5, "call": "b", "weights": None, "trained": True},
        ],
        "turns": [
            {
                "call": name,
                "start": start,
                "stop": stop,
                "finish_reason": None,
                "ending": "whole",
                "trained": True,
                "reward": 1.0 if name == "a" else None,
                "reward_to_go": 1.0,
                "weight": 0.4 if name == "a" else 0.2,
            }
            for name, start, stop in (("a", 1, 3), ("b", 4, 5))
        ],
        "media": [],
        "experts": None,
        "left_out": 0,
        "reward": 1.0,
        "weight": 0.6,
        "tree": "a",
        "follows": None,
        "agent": "main",
        "auxiliary": False,
        "metadata": "{}",
    }


# Parquet, and what Hugging Face datasets make of it.


def test_a_parquet_file_has_columns_of_plain_types(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write(path, rows(SMALL))
    found = pq.read_schema(path)
    assert found.field("ids").type == pa.list_(pa.int32())
    assert found.field("loss_mask").type == pa.list_(pa.int8())
    assert found.field("logprobs").type == pa.list_(pa.float64())
    assert pa.types.is_struct(found.field("spans").type.value_type)
    assert found.field("metadata").type == pa.string()
    assert found.equals(parquet.schema())
    assert found.metadata is None  # nothing that a reader would have to know


def test_json_lines_have_the_same_columns(tmp_path: Path) -> None:
    step = attrs.evolve(SMALL[0].step, logprobs=[-0.5, None])
    found = rows([attrs.evolve(SMALL[0], step=step), *SMALL[1:]]) * 20
    lines_, table = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    write(lines_, found)
    write(table, found)
    held = pj.read_json(
        lines_,
        parse_options=pj.ParseOptions(explicit_schema=parquet.schema()),
        read_options=pj.ReadOptions(block_size=4096),
    )
    assert held.column("logprobs").num_chunks > 1
    assert held.to_pylist() == pq.read_table(table).to_pylist() == list(map(to_columns, found))


def test_a_file_without_rows_has_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    write(path, [])
    assert pq.read_schema(path).names == parquet.schema().names
    assert list(from_parquet(path)) == []


def test_rows_are_written_some_ids_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "TOGETHER", 10)
    path = tmp_path / "rows.parquet"
    write(path, rows(SMALL) * 3)
    with pq.ParquetFile(path) as file:
        assert file.num_row_groups == 3
    assert len(list(from_parquet(path))) == 6


# Miles' container.


def taken(tmp_path: Path, found: list[Entry]) -> Any:
    path = tmp_path / "rows.safetensors"
    write(path, found)
    return miles_samples(Check("the file", EngineAnswer(200, None)), path.read_bytes())


def test_a_container_is_read_like_a_reply_of_miles(tmp_path: Path) -> None:
    step = attrs.evolve(SMALL[0].step, logprobs=[-0.5, -0.25])
    other = attrs.evolve(SMALL[1].step, logprobs=[-2.0])
    calls = [
        attrs.evolve(SMALL[0], step=step),
        attrs.evolve(SMALL[1], step=other, metadata={"number": 1}),
        SMALL[2],
    ]
    found = taken(tmp_path, rows(calls))
    first, second = found.samples
    assert (first.tokens, first.response_length, first.loss_mask) == ((1, 2, 3, 4, 5), 4, (1, 1, 0, 1))
    assert first.rollout_log_probs == (-0.5, -0.25, 0.0, -2.0)
    assert (first.status, first.metadata, first.reward) == ("completed", {"number": 1}, 1.0)
    assert (second.loss_mask, second.rollout_log_probs) == ((0, 0, 0, 1, 1), None)
    assert "rollout_log_probs" in second.nulls
    assert found.empty_reason is None
    assert taken(tmp_path, []).empty_reason == "no_records"


@pytest.mark.parametrize("kind", [("length", "truncated"), ("abort", "aborted")])
def test_a_cut_turn_is_said_in_miles_words(tmp_path: Path, kind: tuple[str, str]) -> None:
    cut = call("a", [1], [2], truncated=True, finish_reason=kind[0])
    assert taken(tmp_path, rows([cut])).samples[0].status == kind[1]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "int32", "int64"])
def test_routed_experts_are_32_bits_in_a_container_and_come_back(tmp_path: Path, dtype: str) -> None:
    numbers = np.arange(8, dtype=dtype).reshape(2, 2, 2)
    experts = RoutedExperts(data=numbers.tobytes(), dtype=dtype, shape=numbers.shape)
    made = rows([call("a", [1], [2, 3], routed_experts=experts)], SampleOptions(missing_row=MissingRow.PAD))
    (sample,) = taken(tmp_path, made).samples
    assert sample.rollout_routed_experts.dtype == "int32"
    assert sample.rollout_routed_experts.shape == (3, 2, 2)
    held = np.frombuffer(sample.rollout_routed_experts.data, np.int32)
    assert held.tolist() == [*range(8), 0, 0, 0, 0]
    assert list(from_tensors(tmp_path / "rows.safetensors")) == made


def test_a_container_is_one_for_the_library_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.safetensors"
    write(path, rows(SMALL))
    held = load_file(path)
    assert held["tokens.1"].tolist() == [1, 2, 3, 6, 7, 8]
    assert held["loss_mask.1"].dtype == np.uint8
    length = int.from_bytes(path.read_bytes()[:8], "little")
    header = orjson.loads(path.read_bytes()[8 : 8 + length])
    assert length % 8 == 0
    for name, place in header.items():
        assert place["data_offsets"][0] % held[name].dtype.itemsize == 0


# What cannot be written.


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (call("a", [1], [2**31]), "row 'a' has the id 2147483648: the highest that files hold is 2147483647"),
        (call("a", [1], [2], metadata={"x": object()}), "row 'a': its metadata cannot be written"),
    ],
)
@pytest.mark.parametrize("kind", READERS)
def test_what_no_column_takes_is_refused_and_no_file_is_left(
    tmp_path: Path, kind: str, changed: StoredCall, told: str
) -> None:
    path = tmp_path / f"rows{kind}"
    path.write_bytes(b"before")
    with pytest.raises(InputError, match=told):
        write(path, rows([changed]))
    assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


INF = float("inf")


@pytest.mark.parametrize(
    ("kind", "logprobs", "reward", "refused"),
    [
        (".jsonl", [-INF, -1.0], None, True),
        (".parquet", [-INF, -1.0], None, False),
        (".safetensors", [-INF, -1.0], None, False),
        (".safetensors", [-INF, None], None, True),  # a trained id without one makes the others JSON
        (".jsonl", None, INF, True),
        (".parquet", None, INF, False),
        (".safetensors", None, INF, True),
    ],
)
def test_what_json_has_no_word_for_is_refused_there(
    tmp_path: Path, kind: str, logprobs: list[float | None] | None, reward: float | None, refused: bool
) -> None:
    step = attrs.evolve(SMALL[0].step, logprobs=logprobs)
    made, path = rows([attrs.evolve(SMALL[0], step=step, reward=reward)]), tmp_path / f"rows{kind}"
    told = r"row 'a' has a number that is not finite: write \.parquet"
    with pytest.raises(InputError, match=told) if refused else nullcontext():
        write(path, made)
    assert refused or repr(list(READERS[kind](path))) == repr(made)


def test_a_file_must_say_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"name a file that ends in .jsonl, .parquet, .safetensors"):
        kind_of(Path("rows.csv"))
    with pytest.raises(InputError, match="cannot write"):
        write(tmp_path / "no" / "rows.jsonl", [])


@pytest.mark.parametrize(
    ("missing", "module", "told"),
    [
        ("pyarrow.parquet", parquet, r"tito-kernel\[parquet\]"),
        ("zstandard", import_module("tito_io.samples.lines"), "needs the package zstandard"),
    ],
)
def test_a_library_that_is_missing_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, module: ModuleType, told: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=told):
        module.library() if hasattr(module, "library") else module.ZstdFrames(tmp_path)


@pytest.mark.whole
@given(st.integers(0, 2**31 - 1), st.lists(st.none() | st.floats(max_value=0, allow_nan=False), min_size=1))
def test_parquet_keeps_every_digit(first: int, logprobs: list[float | None]) -> None:
    step = attrs.evolve(SMALL[0].step, completion_ids=[first] * len(logprobs), logprobs=logprobs)
    made = rows([attrs.evolve(SMALL[0], step=step)])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, made)
        (entry,) = from_parquet(path)
    row: Row = entry.row
    assert row.logprobs[1:] == tuple(logprobs)
    assert row.ids[1:] == [first] * len(logprobs)


def test_what_is_in_tensors_is_not_written_again_as_json(tmp_path: Path) -> None:
    write(tmp_path / "rows.safetensors", rows(SMALL))
    meta = load_file(tmp_path / "rows.safetensors")["_samples_meta"]
    for sample in orjson.loads(meta.tobytes())["samples"]:
        assert not {"ids", "loss_mask"} & sample["tito"].keys()
        assert sample["tito"]["logprobs"] is None or "rollout_log_probs" in sample["nulls"]
        assert sample["tito"]["experts"] is None or sample["tito"]["experts"]["data"] is None


def test_a_sample_has_the_fields_that_miles_reads(tmp_path: Path) -> None:
    """What only a server knows, such as the prefix cache of its engine, counts nothing."""
    versions = [WeightVersion(version=name, start=place, stop=place + 1) for place, name in enumerate("ab")]
    sampled = call("a", [1], [2, 3], reward=0.5, metadata={"k": [1]}, weight_versions=versions)
    write(tmp_path / "rows.safetensors", rows([sampled]))
    meta = orjson.loads(load_file(tmp_path / "rows.safetensors")["_samples_meta"].tobytes())
    (sample,) = meta.pop("samples")
    assert meta == {"session_metadata": {}, "empty_reason": None}
    assert sample.pop("tito")["name"] == "a"
    assert sample == {
        "response": "",
        "response_length": 2,
        "status": "completed",
        "weight_versions": [[{"version": "a"}], [{"version": "b"}]],
        "prefix_cache_info": {"cached_tokens": 0, "total_prompt_tokens": 0},
        "metadata": {"k": [1]},
        "nulls": ["rollout_indexer_topk", "rollout_log_probs", "rollout_routed_experts"],
        "reward": 0.5,
    }
