"""Every planted fault still has a place in the source, so that the list does not go stale."""

from __future__ import annotations

import pytest

from tests.faults import drift, forests, llamacpp, seams, serving, stitching
from tests.faults.fault import ROOT, Fault

FAULTS = (*stitching.FAULTS, *seams.FAULTS, *forests.FAULTS, *llamacpp.FAULTS, *serving.FAULTS, *drift.FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_text_of_a_fault_occurs_once(fault: Fault) -> None:
    assert (ROOT / fault.package / fault.file).read_text().count(fault.right) == 1
