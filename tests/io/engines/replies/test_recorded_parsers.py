"""tito reads a sampled turn as the engine's own parsers do, or a table names the difference and its reason.

What the parsers of vLLM and SGLang read was recorded: `python -m tests.engines.parsers vllm sglang`.
"""

from __future__ import annotations

import pytest

from tests.engines.parsers.compared import differences, table
from tests.engines.parsers.models import Model
from tests.engines.parsers.outputs import FORMATS
from tests.engines.parsers.recorded import recorded
from tests.model_folders import needs_families

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # nothing waits


@needs_families
async def test_each_difference_has_a_reason() -> None:
    """Each row of the table has a difference, too."""
    rows, used, unnamed = table(), set[str](), list[str]()
    for name in FORMATS:
        ours = await Model.load(name).read()
        for engine, theirs in recorded().items():
            for one in differences(engine, theirs, name, ours):
                naming = {row for row, found in rows.items() if found.names(one)}
                used |= naming
                if not naming:
                    unnamed.append(f"{one.format}: {one.engine}: {one.case}: {one.kind}")
    assert not unnamed, "\n".join(unnamed)
    assert used == set(rows), "rows without a difference"


async def test_nothing_was_recorded_for_other_outputs() -> None:
    expected = {(name, case) for name, one in FORMATS.items() for case in one.outputs()}
    for answers in recorded().values():
        assert set(answers) == expected
