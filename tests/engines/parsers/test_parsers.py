"""The engines' parsers still read what was recorded; the profile `soak` asks about all formats."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engines.conftest import asked_for
from tests.model_folders import needs_families
from tests.profiles import EVERYTHING

from .outputs import FORMATS
from .recorded import ENGINES, answers, recorded

pytestmark = pytest.mark.engine

FEW = ("qwen3", "glm4.5", "kimi-k2")


@needs_families
@pytest.mark.parametrize("engine", ENGINES)
def test_the_recorded_answers_are_the_engines(engine: str, say: Callable[[str], None]) -> None:
    asked_for(engine)
    names = FORMATS if EVERYTHING else FEW
    known = {(name, case): read for (name, case), read in recorded()[engine].items() if name in names}
    assert answers(engine, say, names) == known
