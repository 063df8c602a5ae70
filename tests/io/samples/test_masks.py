"""Sampling masks in files of rows: tito's own columns, those of trainers, their size, and their figures."""

from __future__ import annotations

import base64
import random
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import orjson
import pytest
from safetensors.numpy import load_file

from tests.core.samples.calls import call
from tests.io.samples.row_files import READERS, from_tensors
from tests.io.samples.test_rows import rows
from tests.io.samples.test_tally import shown
from tito_core import InputError, SamplingMask
from tito_core.data import to_data
from tito_core.samples import Forest, SampleOptions, StoredCall, make_rows
from tito_io.samples.entry import Entry
from tito_io.samples.mask_sizes import MaskSizes
from tito_io.samples.rows import FileTally
from tito_io.samples.sink import SUFFIXES, open_sink
from tito_io.samples.trainer_columns import COLUMNS
from tito_io.serve.payload import SamplesPayload

pq: Any = import_module("pyarrow.parquet")


def masked(one: StoredCall, *kept: Sequence[int] | None) -> StoredCall:
    step = attrs.evolve(one.step, sampling_mask=SamplingMask.of(kept), logprobs=[-0.5] * len(kept))
    return attrs.evolve(one, step=step)


CALLS = [masked(call("a", [1], [2, 3]), [2, 8, 9], [3]), masked(call("b", [1, 2, 3, 4], [5]), [7, 5])]
"""One row: the ids 1 to 5, of which 1 and 4 are not sampled."""
HOLED = [CALLS[0], masked(call("b", [1, 2, 3, 4], [5, 6]), [7, 5], None)]


def write(path: Path, found: list[Entry], columns: str = "tito") -> Path:
    with open_sink(path, SimpleNamespace(), columns=COLUMNS[columns]) as sink:  # type: ignore[arg-type]  # not used
        for entry in found:
            sink.write(entry)
    return path


def read(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return list(pq.read_table(path).to_pylist())
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


# In each kind of file.


def test_parquet_has_flat_lists_of_32_bits(tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rows(CALLS))
    (row,) = read(path)
    assert row["processed_logprobs"] is True
    assert row["sampling_mask"] == {"ids": [2, 8, 9, 3, 7, 5], "counts": [0, 3, 1, 0, 2]}
    assert str(pq.read_schema(path).field("sampling_mask").type) == (
        "struct<ids: list<element: int32>, counts: list<element: int32>>"
    )


def test_json_lines_have_the_data_of_the_value(tmp_path: Path) -> None:
    found = rows(CALLS)
    (row,) = read(write(tmp_path / "r.jsonl", found))
    assert row["sampling_mask"] == to_data(found[0].row.sampling_mask)


def test_a_container_has_the_tensors_of_miles(tmp_path: Path) -> None:
    """What was not sampled has its own id alone: Miles refuses a position without any."""
    held = load_file(write(tmp_path / "r.safetensors", rows(CALLS)))
    ids, offsets = held["rollout_sampling_mask.ids.0"], held["rollout_sampling_mask.offsets.0"]
    assert (ids.dtype.name, offsets.dtype.name) == ("int32", "int64")
    assert [ids[start:stop].tolist() for start, stop in pairwise(offsets)] == [[2, 8, 9], [3], [4], [7, 5]]
    assert len(held["tokens.0"]) == 5


def test_a_trained_id_without_a_mask_gets_none_in_a_container(tmp_path: Path) -> None:
    path = write(tmp_path / "r.safetensors", rows(HOLED))
    held = load_file(path)
    assert not any("sampling_mask" in name for name in held)
    (sample,) = orjson.loads(held["_samples_meta"].tobytes())["samples"]
    assert sample["nulls"] == ["rollout_indexer_topk", "rollout_routed_experts", "rollout_sampling_mask"]
    assert sample["tito"]["sampling_mask"] == to_data(rows(HOLED)[0].row.sampling_mask)


def test_an_untrained_id_without_a_mask_has_none_when_it_is_read_back(tmp_path: Path) -> None:
    """In the second row the shared turn does not train: its id without a mask takes no mask from others."""
    calls = [
        masked(call("a", [1], [2, 3]), None, [3, 8]),
        masked(call("b", [1, 2, 3, 4], [5]), [5]),
        masked(call("c", [1, 2, 3, 6], [7]), [7, 9]),
    ]
    found = rows(calls)
    path = write(tmp_path / "r.safetensors", found)
    assert list(from_tensors(path)) == found
    held = load_file(path)
    assert held["rollout_sampling_mask.ids.1"].tolist() == [2, 3, 8, 6, 7, 9]
    assert "rollout_sampling_mask.ids.0" not in held


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_of_both_kinds_come_back_from_one_file(suffix: str, tmp_path: Path) -> None:
    found = [*rows(CALLS), *rows([call("z", [1], [2])]), *rows(HOLED)]
    path = write(tmp_path / f"r{suffix}", found)
    assert list(READERS[suffix](path)) == found


# Without masks.

OLD = (
    '{"conversation":"c","line":3,"place":0,"name":"a","ids":[1,2],"loss_mask":[0,1],"logprobs":[null,null],'
    '"spans":[{"origin":"prompt","start":0,"stop":1,"call":"a","weights":null,"trained":false},'
    '{"origin":"sampled","start":1,"stop":2,"call":"a","weights":null,"trained":true}],'
    '"media":[],"experts":null,"left_out":0,"reward":null,"weight":1.0,"tree":"a","follows":null,'
    '"auxiliary":false,"metadata":"{}"}'
)
"""A row as it was written before there were masks."""


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_row_without_masks_has_two_more_columns_and_else_what_it_had(suffix: str, tmp_path: Path) -> None:
    path, old = write(tmp_path / f"r{suffix}", rows([call("a", [1], [2])])), orjson.loads(OLD)
    if suffix == ".safetensors":
        held = load_file(path)
        assert held.keys() == {"tokens.0", "loss_mask.0", "_samples_meta"}
        (sample,) = orjson.loads(held["_samples_meta"].tobytes())["samples"]
        assert sample["nulls"] == ["rollout_indexer_topk", "rollout_log_probs", "rollout_routed_experts"]
        found = sample["tito"]
        old = {name: value for name, value in old.items() if name in found} | {"logprobs": [None]}
    else:
        (found,) = read(path)
    assert (found.pop("processed_logprobs"), found.pop("sampling_mask")) == (False, None)
    assert found.items() >= old.items()


# As trainers have them.


TRAINERS: Mapping[str, Mapping[str, Any]] = {
    "prime-rl": {
        "token_ids": [1, 2, 3, 4, 5],
        "mask": [False, True, True, False, True],
        "logprobs": [0.0, -0.5, -0.5, 0.0, -0.5],
        "sampling_mask": {"ids": [2, 8, 9, 3, 7, 5], "counts": [0, 3, 1, 0, 2]},
    },
    "skyrl": {
        "prompt_token_ids": [1],
        "response_ids": [2, 3, 4, 5],
        "loss_masks": [1, 1, 0, 1],
        "rollout_logprobs": [-0.5, -0.5, 0.0, -0.5],
        "rollout_sample_support": {"ids": [2, 8, 9, 3, 7, 5], "counts": [3, 1, 0, 2]},
    },
    "slime": {
        "tokens": [1, 2, 3, 4, 5],
        "response_length": 4,
        "loss_mask": [1, 1, 0, 1],
        "rollout_log_probs": [-0.5, -0.5, 0.0, -0.5],
        "rollout_top_p_token_ids": [2, 8, 9, 3, 7, 5],
        "rollout_top_p_token_offsets": [0, 3, 4, 4, 6],
    },
}


@pytest.mark.parametrize("columns", TRAINERS)
def test_masks_have_the_names_of_trainers(columns: str, tmp_path: Path) -> None:
    path = write(tmp_path / "r.parquet", rows(CALLS), columns)
    (found,) = read(path)
    common = {"conversation": "c", "name": "b", "reward": None, "weight": 1.0, "processed_logprobs": True}
    assert found.items() >= {**common, **TRAINERS[columns]}.items()
    assert pq.read_schema(path).names == [*found]


@pytest.mark.parametrize("columns", TRAINERS)
def test_json_lines_of_trainers_say_the_same(columns: str, tmp_path: Path) -> None:
    """Arrays of 32 bits are base64, as slime's own `decode_int32_meta_array` reads them."""

    def plain(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(name, one) for name, one in value.items()}
        flat = name == "ids" or name.startswith("rollout_top_p_token_")
        return np.frombuffer(base64.b64decode(value), "<i4").tolist() if flat and value else value

    found = [*rows(CALLS), *rows([call("z", [1], [2])])]
    lines, table = (read(write(tmp_path / f"r{suffix}", found, columns)) for suffix in (".jsonl", ".parquet"))
    assert [plain("", line) for line in lines] == table
    assert lines[1]["processed_logprobs"] is False


def test_a_gateway_sends_the_same_tensors_as_a_file(tmp_path: Path) -> None:
    """A session is stood in for by its forest: what else it has says nothing of masks."""
    commit = SimpleNamespace(origin=SimpleNamespace(cached=0, requested=0.0), at=0.0, response="r")
    for calls in (CALLS, HOLED, [call("z", [1], [2])]):
        commits = {one.name: SimpleNamespace(call=one, step=one.step, **vars(commit)) for one in calls}
        session = SimpleNamespace(forest=Forest.of(calls), commits=commits, newest=None, unreceived=())
        sent = SamplesPayload.of(session, None, {}, {}, None)  # type: ignore[arg-type]  # see above
        held = load_file(write(tmp_path / "r.safetensors", rows(calls)))
        for name in ("rollout_sampling_mask.ids.0", "rollout_sampling_mask.offsets.0"):
            tensor = sent.tensors.get(name)
            assert (tensor is None) == (name not in held)
            assert tensor is None or tensor["data"] == held[name].tobytes()
        assert ("rollout_sampling_mask" in sent.meta["samples"][0]["nulls"]) is (calls is HOLED)


# Sizes.

VOCABULARY = 150_000
KEPT = [1, 1, 1, 1, 2, 2, 3, 53]
"""How many ids are kept for sampled ids: 8 in the mean, and 1 for half of them."""


def sized(turns: int, environment: int) -> list[StoredCall]:
    """Return a conversation of random ids, with some of the environment after each turn."""
    chance = random.Random(0)  # noqa: S311  # no secret
    calls, ids = list[StoredCall](), [1]
    for turn in range(turns):
        kept = [chance.sample(range(VOCABULARY), size) for size in KEPT * 25]
        one = call(f"{turn}", list(ids), [each[0] for each in kept], order=turn)
        calls.append(masked(one, *kept))
        ids += [*one.step.completion_ids, *chance.choices(range(VOCABULARY), k=environment)]
    return calls


@pytest.mark.parametrize(
    ("columns", "suffix", "most"),
    [("tito", suffix, 6.0) for suffix in SUFFIXES]
    + [(name, ".parquet", 6.0) for name in TRAINERS]
    + [(name, ".jsonl", 6.0) for name in ("prime-rl", "skyrl")]
    + [("slime", ".jsonl", 6.1)],
)
def test_a_kept_id_takes_at_most_six_bytes(columns: str, suffix: str, most: float, tmp_path: Path) -> None:
    """An offset of slime has four bytes for each position, which base64 makes five and a third."""
    calls = sized(turns=5, environment=20)
    bare = [attrs.evolve(one, step=attrs.evolve(one.step, sampling_mask=None)) for one in calls]
    sizes = [write(tmp_path / f"r{suffix}", rows(each), columns).stat().st_size for each in (calls, bare)]
    kept = sum(len(one.step.sampling_mask.ids) for one in calls if one.step.sampling_mask)
    assert kept == 8 * sum(len(one.step.completion_ids) for one in calls)
    assert 4 <= (sizes[0] - sizes[1]) / kept <= most


def test_kept_ids_count_in_what_is_in_memory_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.samples.parquet.TOGETHER", 12)
    write(tmp_path / "r.parquet", rows(CALLS) * 6)  # 5 ids and 6 kept ones each
    with pq.ParquetFile(tmp_path / "r.parquet") as file:
        assert file.num_row_groups == 3


# What cannot be written.


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_kept_id_that_no_column_takes_is_refused_and_leaves_nothing(suffix: str, tmp_path: Path) -> None:
    """The file has the rows around it: of a row that is refused no tensor is left."""
    found = [*rows(CALLS), *rows([masked(call("x", [1], [2]), [2, 2**31])]), *rows(CALLS)]
    path = tmp_path / f"r{suffix}"
    with open_sink(path, SimpleNamespace()) as sink:  # type: ignore[arg-type]  # not used
        for entry in found:
            if entry.row.name == "x":
                with pytest.raises(InputError, match="row 'x' has the id 2147483648: the highest"):
                    sink.write(entry)
            else:
                sink.write(entry)
    assert list(READERS[suffix](path)) == [found[0], found[2]]


# Figures.


def test_the_summary_has_the_figures_of_masks() -> None:
    """Over the sampled ids of calls, each once, however many rows have it."""
    calls = [*HOLED, masked(call("c", [1, 2, 3, 6], [7]), [7]), call("z", [1], [2, 3])]
    forest = Forest.of(calls)
    tally = FileTally.of(forest, make_rows(forest, SampleOptions()))
    assert tally.to_json()["sampling_masks"] == {
        "masked_ids": 4,
        "mean": 1.75,
        "median": 1,
        "p99": 3,
        "singletons": 0.5,
        "without_mask": 3,
    }
    lines = shown(tally)
    assert lines[10:16] == [
        " sampling masks           4   of sampled ids",
        "   mean                 1.8   kept ids for a sampled one",
        "   median                 1",
        "   p99                    3",
        "   singletons         50.0%   only the sampled id was kept",
        "   without mask           3   sampled ids",
    ]


def test_percentiles_are_those_of_the_whole_file() -> None:
    whole = MaskSizes()
    for size in range(1, 101):
        whole += MaskSizes(Counter({size: 1}))
    found = whole.figures()
    assert (found["median"], found["p99"], found["mean"]) == (50, 99, 50.5)
    exact = MaskSizes(Counter({1: 198, 9: 2})).figures()
    assert (exact["median"], exact["p99"]) == (1, 1)
    assert MaskSizes(Counter({1: 197, 9: 3})).figures()["p99"] == 9


def test_without_masks_there_are_no_figures_of_them() -> None:
    forest = Forest.of([call("a", [1], [2])])
    tally = FileTally.of(forest, make_rows(forest, SampleOptions()))
    tally.join(tally)
    assert "sampling_masks" not in tally.to_json()
    assert not any("mask" in line for line in shown(tally))


def test_an_empty_mask_is_one(tmp_path: Path) -> None:
    """A call that sampled nothing may have one, and keeps the kind of its row."""
    (entry,) = rows([masked(call("a", [1], [2]), None)])
    assert entry.row.processed_logprobs
    (row,) = read(write(tmp_path / "r.parquet", [entry]))
    assert row["sampling_mask"] == {"ids": [], "counts": [0, 0]}
    assert COLUMNS["slime"].make(entry)["rollout_top_p_token_offsets"] == array("i", [0, 0])
