"""Every planted fault still has a place in the source, so that the list does not go stale."""

from __future__ import annotations

import os
from signal import SIGKILL

import pytest

from tests.faults.children import Children
from tests.faults.command import FAULTS
from tests.faults.fault import ROOT, Fault, copied, run


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_text_of_a_fault_occurs_once(fault: Fault) -> None:
    assert (ROOT / fault.package / fault.file).read_text().count(fault.right) == 1


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_async_tests_of_a_fault_have_their_plugin(fault: Fault) -> None:
    """Without it they are not run, or fail with every fault and without one."""
    files = [ROOT / suite.partition("::")[0] for suite in fault.suites if ".py" in suite]
    if any("mark.anyio" in file.read_text(encoding="utf-8") for file in files):
        assert "anyio.pytest_plugin" in fault.plugins


@pytest.mark.parametrize(("wrong", "failed"), [(True, ["tests/core/test_it.py::test_it"]), (False, [])])
def test_a_test_that_fails_is_named(*, wrong: bool, failed: list[str]) -> None:
    """One that fails without any fault shows none."""
    with copied() as home, Children() as children:
        (home / "tests/core/test_it.py").write_text(f"def test_it() -> None:\n    assert {not wrong}\n")
        assert run(["tests/core/test_it.py"], home, children, ()) == failed


def test_what_never_ends_is_ended() -> None:
    """A fault may make a server of a test serve for ever."""
    with Children(limit=0.1) as children:
        assert children.run(["sleep", "600"], ROOT, os.environ) == -SIGKILL
