"""The engines' parsers still read what was recorded."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.engines.conftest import asked_for
from tests.model_folders import needs_families

from .recorded import ENGINES, answers, recorded

pytestmark = pytest.mark.engine


@needs_families
@pytest.mark.parametrize("engine", ENGINES)
def test_the_recorded_answers_are_the_engines(engine: str, say: Callable[[str], None]) -> None:
    asked_for(engine)
    assert answers(engine, say) == recorded()[engine]
