"""The same rows from a cluster as from one process, also where a worker dies.

Asked for with TITO_ENGINES=ray. Ray is heavy, and warns as it likes; so it runs in processes of its own.
"""

from __future__ import annotations

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import attrs
import orjson
import pytest
from click.testing import CliRunner

import tito_io
from tests.core.samples.calls import call
from tests.io.samples.sample_files import own, put
from tito_core import InputError
from tito_core.samples import SampleOptions
from tito_io.samples import distributed as spreading
from tito_io.samples import ray as cluster
from tito_io.samples.command import samples
from tito_io.samples.conversation import Problem
from tito_io.samples.distributed import GroupPlace, group_places, rows_at, spread_over
from tito_io.samples.line_groups import Group, ReadOptions
from tito_io.samples.progress import RunProgress
from tito_io.samples.read import conversations
from tito_io.samples.rows import ConversationRows, to_rows

ROOT = Path(tito_io.__file__).parents[1]
ASKED = "ray" in os.environ.get("TITO_ENGINES", "").split(",")
RAY = pytest.mark.skipif(not ASKED, reason="needs a Ray cluster: TITO_ENGINES=ray")


def log(folder: Path, count: int = 40) -> Path:
    """Return a file of conversations that branch, with a line between that is none."""
    found = []
    for number in range(count):
        first = call("a", [number], [2, 3], reward=number / 8, metadata={"number": number})
        calls = [first, call("b", [number, 2, 3, 4], [5]), call("c", [number, 2, 3, 6], [7, number])]
        found.append(own(f"c{number}", [attrs.evolve(one, order=at) for at, one in enumerate(calls)]))
    return put(folder, b"{\n".join([b"".join(found[:7]), b"".join(found[7:])]))


def run(*command: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    return subprocess.run(
        [sys.executable, *command],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


def survived(fate: str, folder: Path, *command: str) -> tuple[subprocess.CompletedProcess[str], int]:
    """Run a command on a cluster that loses somebody; return what it printed, and its status."""
    done = run("-m", "tests.io.samples.ray_rows", fate, str(folder), *command)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads((folder / "told.json").read_text())
    second_half = len(told["nodes"]) // 2
    assert told["lost"] not in told[{"node": "nodes", "worker": "processes"}[fate]][second_half:]
    if fate == "worker":
        assert len(set(told["nodes"])) == 2
    return done, told["status"]


@RAY
@pytest.mark.parametrize("fate", ["worker", "node"])
def test_rows_of_a_cluster_are_those_of_one_process_whoever_is_lost(tmp_path: Path, fate: str) -> None:
    path = log(tmp_path)
    done, status = survived(fate, tmp_path, "samples", str(path), "--json")
    alone = CliRunner().invoke(samples, [str(path), "--json"])
    assert (done.stdout, status) == (alone.stdout, alone.exit_code)
    assert alone.stderr.splitlines()[-1] in done.stderr.splitlines()


@RAY
def test_the_command_makes_the_same_rows_on_a_cluster(tmp_path: Path) -> None:
    path = log(tmp_path)
    script = "from tito_io.samples.command import samples; samples()"
    done = run("-c", script, str(path), "--ray", "local", "--json", "--group", "line", "--rows", "call")
    alone = CliRunner().invoke(samples, [str(path), "--json", "--group", "line", "--rows", "call"])
    assert done.stdout == alone.stdout
    assert done.returncode == alone.exit_code == 1
    assert sorted(done.stderr.splitlines()) == sorted(alone.stderr.splitlines())


# What needs no cluster.


@pytest.mark.parametrize("group", Group)
def test_lines_read_where_they_lie_are_those_read_in_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, group: Group
) -> None:
    path, reading = log(tmp_path), ReadOptions(group=group)
    alone = list(to_rows(conversations(path, reading), SampleOptions()))
    monkeypatch.setattr(spreading, "spread", lambda function, items, _: map(function, items))
    apart = list(spread_over("anywhere", path, reading, SampleOptions()))

    def sorted_out(found: list[ConversationRows | Problem]) -> tuple[list[ConversationRows], list[str]]:
        return [one for one in found if isinstance(one, ConversationRows)], sorted(
            str(one) for one in found if isinstance(one, Problem)
        )

    assert sorted_out(apart) == sorted_out(alone)
    assert len(sorted_out(alone)[0]) == {Group.ID: 40, Group.FILE: 1, Group.LINE: 80}[group]


def test_a_file_that_changed_is_a_problem(tmp_path: Path) -> None:
    path = log(tmp_path, 8)
    place = next(one for one in group_places(path, ReadOptions()) if isinstance(one, GroupPlace))
    content = path.read_bytes()
    lines = content.split(b"\n")
    for other, said in (
        (b"{}\n" + content, "line 1: is not in the format `tito`"),
        (b"{\n" + content, "line 1: is not valid JSON"),
        (own("other", [call("a", [1], [2])]) + content, "line 2: is not valid JSON"),
        (b"\n".join([lines[0], lines[1].replace(b'"c0"', b'"d0"'), *lines[2:]]), "line 2: it begins a"),
        (b"", ""),
    ):
        path.write_bytes(other)
        (problem,) = rows_at(place, ReadOptions(), SampleOptions())
        assert str(problem).startswith(f"line 1: the file has changed: {said}")
    path.unlink()
    (problem,) = rows_at(place, ReadOptions(), SampleOptions())
    assert str(problem) == "line 1: the file cannot be read again: No such file or directory"


def test_where_nobody_listens_there_is_no_cluster_and_the_file_is_not_read(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        for begin in ("", "ray://"):
            address = f"{begin}127.0.0.1:{free.getsockname()[1]}"  # bound, and nobody listens
            result = CliRunner().invoke(samples, [str(tmp_path / "no.jsonl"), "--ray", address])
            told = f"tito: no Ray cluster at '{address}': cannot connect: Connection refused\n"
            assert (result.exit_code, result.stderr) == (2, told)


def test_an_address_is_only_knocked_at_where_it_has_a_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        cluster.check_address(f"127.0.0.1:{listener.getsockname()[1]}")
        listener.settimeout(5)
        listener.accept()[0].close()
    for address in ("auto", "local", "ray://head", "session/7"):
        cluster.check_address(address)
    with pytest.raises(InputError, match=r"no Ray cluster at '\[::1\]:99999'"):
        cluster.check_address("[::1]:99999")


def test_what_a_cluster_prints_is_not_among_the_rows(capsys: pytest.CaptureFixture[str]) -> None:
    for address, place in (("auto", "err"), (None, "out")):
        with cluster.rows_stdout(address) as own:
            print("of Ray")  # noqa: T201  # on purpose
            own.write("a row")
        found = capsys.readouterr()
        assert "of Ray" in getattr(found, place)
        assert found.out.endswith("a row")
        assert ("of Ray" in found.out) == (address is None)


def test_whatever_keeps_a_cluster_from_starting_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ray:
        def is_initialized(self) -> bool:
            return False

        def init(self, **_: object) -> None:
            raise Exception("The node timed out.\nMore.")  # noqa: TRY002  # as Ray does

    monkeypatch.setattr(cluster, "library", Ray)
    with pytest.raises(InputError, match=r"^no Ray cluster at 'local': The node timed out\.$"):
        cluster.connect("local")


def test_nothing_needs_no_cluster() -> None:
    assert list(cluster.spread(len, [], "nowhere")) == []


def test_a_library_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray.data", None)
    with pytest.raises(InputError, match=r"tito-kernel\[ray\]"):
        cluster.library()


def test_a_function_is_applied_to_what_travels() -> None:
    applied = cluster.Applied(len)
    assert pickle.loads(applied({"item": pickle.dumps([1, 2])})["result"]) == 2  # noqa: S301  # pickled here


def test_an_indented_object_is_one_line_that_is_read_again(tmp_path: Path) -> None:
    record = orjson.loads(own("c", [call("a", [1], [2])]))
    path = put(tmp_path, orjson.dumps(record, option=orjson.OPT_INDENT_2))
    (place,) = group_places(path, ReadOptions())
    assert isinstance(place, GroupPlace)
    (rows,) = rows_at(place, ReadOptions(), SampleOptions())
    assert isinstance(rows, ConversationRows)
    assert [entry.row.ids.tolist() for entry in rows.entries] == [[1, 2]]


def test_the_steps_of_a_run_count_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    progress = RunProgress(show=lambda state, _: steps.append(state.step))
    monkeypatch.setattr(spreading, "spread", lambda function, items, _: map(function, items))
    list(spread_over("anywhere", log(tmp_path, 9), ReadOptions(), SampleOptions(), progress))
    said = list(dict.fromkeys(filter(None, steps)))
    assert said == [f"{number} of 9 conversations made into rows" for number in range(1, 10)]
