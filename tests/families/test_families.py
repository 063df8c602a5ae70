"""Real tokenizers meet real templates: the bridge is the true tail, or there is none.

Needs `TITO_FAMILIES`, a folder of model folders (tokenizer.json, chat_template.jinja, meta.json with the
family's stop tokens). `python -m tests.families.table` prints the same cells.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.families.cells import EXACT, REFUSED, UNRENDERABLE, WRONG, Cell, cells, template_files
from tests.families.table import folders

ROOT = os.environ.get("TITO_FAMILIES")
FOLDERS = folders(Path(ROOT)) if ROOT else []
needs_families = pytest.mark.skipif(not FOLDERS, reason="TITO_FAMILIES names no folder of model folders")

RIGHTLY_REFUSED = {
    "deepseek-v3": "UNPROVEN_TAIL",  # its templates remember earlier tool turns
    "gpt-oss": "ODD_STOP",  # <|return|> where the history has <|end|>
    "mistral-tekken": "UNPROVEN_TAIL",  # Nemo's moves the system text into the last user's message
    "nemotron3": "ODD_STOP",  # nano-v2's close is not the stop of the family's other models
    "phi3": "SWALLOWED",  # it has no tool role
    "phi4": "SWALLOWED",  # likewise
}


def _of(folder: Path) -> list[Cell]:
    return [cell for template in template_files(folder) for cell in cells(folder, template)]


@needs_families
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_no_bridge_differs_from_the_tail_of_the_real_conversation(folder: Path) -> None:
    found = _of(folder)
    assert [cell for cell in found if cell.verdict == WRONG] == []
    refused = {cell.reason.split(":")[0] for cell in found if cell.verdict == REFUSED}
    assert refused <= {RIGHTLY_REFUSED.get(folder.name)}
    rendered = [cell for cell in found if cell.verdict != UNRENDERABLE]
    assert sum(cell.verdict == EXACT for cell in rendered) >= len(rendered) / 2


@needs_families
def test_most_cells_of_all_families_are_exact() -> None:
    found = [cell for folder in FOLDERS for cell in cells(folder, folder / "chat_template.jinja")]
    rendered = [cell for cell in found if cell.verdict != UNRENDERABLE]
    assert len(rendered) >= 15 * len(FOLDERS)
    assert sum(cell.verdict == EXACT for cell in rendered) >= 0.85 * len(rendered)
