"""Real tokenizers meet real templates: the bridge is the true tail, or there is none.

Needs `TITO_FAMILIES`, a folder of model folders (tokenizer.json, chat_template.jinja, meta.json with the
family's stop tokens). `python -m tests.families.table` prints the same cells, and those of more renderings.
"""

from __future__ import annotations

from statistics import median

import attrs
import pytest

from tests.families.bridged import EXACT, REFUSED, WRONG
from tests.families.cells import RENDERINGS, UNRENDERABLE, Cell, Subject, cells
from tests.families.table import Loader, sources
from tests.families.tail import presented
from tests.model_folders import FAMILIES, needs_families
from tito_core import Message, Reason, TemplateRefused

SOURCES = sources(FAMILIES)
pytestmark = needs_families
WITH_TOOLS = tuple(rendering for rendering in RENDERINGS if rendering == {"tools": rendering["tools"]})[-1:]
"""One rendering stands for all: with tools and nothing else."""
ASKED_IN_PARTS = ("SmolVLM-Instruct",)
"""Templates that take only lists of parts, and a folder with them: a profile knows no case of theirs."""
ONCE_AND_IN_ANOTHER_HISTORY = 2
FEWEST_CELLS = {"gemma3": 4, "phi3": 8, "phi4": 8}
"""Cells that each template can render, where templates know no tools; 10 elsewhere."""


@attrs.frozen
class Examined:
    """A folder's templates, and the cells of them."""

    name: str
    subjects: list[Subject]
    cells: list[Cell]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(one, id=one[0], marks=pytest.mark.xdist_group(f"family {one[0]}")) for one in SOURCES
    ],
)
def examined(request: pytest.FixtureRequest) -> Examined:
    """Load a folder and judge its cells. All its tests run in one worker, one after the other."""
    name: str
    load: Loader
    name, load = request.param
    subjects = list(load())
    found = [cell for subject in subjects for cell in cells(subject, WITH_TOOLS, timed=False)]
    return Examined(name, subjects, found)


def test_no_bridge_differs_from_the_tail_of_the_real_conversation(examined: Examined) -> None:
    assert [cell for cell in examined.cells if WRONG in (cell.verdict, cell.bare)] == []


def test_a_bridge_is_right_or_refuses_and_more_knowledge_refuses_no_more(examined: Examined) -> None:
    for cell in examined.cells:
        for bridges, stitched in ((cell.bridges, cell.bare), (cell.profiled, cell.verdict)):
            verdicts = [one.verdict for one in bridges]
            assert WRONG not in verdicts, (cell, bridges)
            assert verdicts == sorted(verdicts, key=(REFUSED, EXACT).index), (cell, bridges)
            assert EXACT in verdicts or stitched != EXACT, (cell, bridges)


def test_a_profile_loses_no_cell_and_asks_few_questions(examined: Examined) -> None:
    """One by one, as without a profile, only where ids merge at a message's end."""
    found = examined.cells
    assert [cell for cell in found if cell.bare == EXACT and cell.verdict != EXACT] == []
    both = [cell for cell in found if cell.bare == cell.verdict == EXACT]
    assert sum(cell.renders for cell in both) <= sum(cell.bare_renders for cell in both)
    if not any(cell.template in ASKED_IN_PARTS for cell in found):
        assert median(cell.renders for cell in both) == ONCE_AND_IN_ANOTHER_HISTORY


def test_a_cut_render_has_the_ids_that_it_has_in_one_piece(examined: Examined) -> None:
    for subject in examined.subjects:
        tokenize = subject.family.tokenize_fn()
        for words in ("s", " s", "\ns", "\u0301", "9"):
            messages: list[Message] = [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "Zephyr"},
            ]
            messages.append({"role": "user", "content": words})
            messages = list(presented(subject.family, messages, {}))
            try:
                text = tokenize.text(messages, add_generation_prompt=True)
            except TemplateRefused:
                continue
            cut = subject.family.encode(text[text.index("Zephyr") :])
            assert tokenize.rendered(messages, "Zephyr", add_generation_prompt=True, ids=True).ids == cut


def test_no_more_than_one_cell_in_a_hundred_is_refused(examined: Examined) -> None:
    """Cells whose model stops with another id than the template closes with are the policy's to decide.

    Apriel's templates write a call's id once something follows it: where one that was cut ends is not shown.
    """
    found = [cell for cell in examined.cells if cell.verdict != UNRENDERABLE]
    found = [cell for cell in found if "Apriel" not in cell.template or "cut" not in cell.shape]
    refused = [
        cell for cell in found if cell.verdict == REFUSED and not cell.reason.startswith(Reason.ODD_STOP.name)
    ]
    assert len(found) >= FEWEST_CELLS.get(examined.name, 10) * len(examined.subjects)
    assert len(refused) <= 0.01 * len(found)
