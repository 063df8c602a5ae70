"""The same audit from a cluster as from one process, also where a whole node is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.io.audit.audited import KEEPING, family_folder, replace, store
from tests.io.samples.test_distributed import RAY, run, survived
from tito_io.audit.command import DRIFT, audit
from tito_io.families.family import Family


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Return the arguments that audit conversations with breaks."""
    folder = replace(family_folder(tmp_path / "family"), chat_template__jinja=KEEPING)
    path = store(tmp_path / "wild.jsonl", Family.load(folder), wild=True, conversations=24)
    path.write_bytes(path.read_bytes() + b"{no\n")
    return [str(path), "--family", str(folder), "--json"]


@RAY
@pytest.mark.parametrize("fate", ["worker", "node"])
def test_a_cluster_reports_what_one_process_does_whoever_is_lost(
    command: list[str], tmp_path: Path, fate: str
) -> None:
    done, status = survived(fate, tmp_path, "audit", *command)
    alone = CliRunner().invoke(audit, command)
    assert (done.stdout, status) == (alone.stdout, alone.exit_code)
    assert (status, len(alone.stdout.splitlines()) > 24) == (DRIFT, True)


@RAY
def test_a_cluster_of_this_machine_reports_what_one_process_does(command: list[str]) -> None:
    done = run("-c", "from tito_io.audit.command import audit; audit()", *command, "--ray", "local")
    alone = CliRunner().invoke(audit, command)
    assert (done.stdout, done.returncode) == (alone.stdout, alone.exit_code), done.stderr[-2000:]
