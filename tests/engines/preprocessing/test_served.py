"""Prompts that are rendered here against those of running engines; what is recorded is what they render."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engines.conftest import asked_for
from tests.model_folders import FAMILIES, needs_families
from tests.profiles import EVERYTHING
from tito_io.embedded import write_family

from .compare import answers, differences, probes, real_templates, recorded_forms, unnamed
from .served import ENGINES, served

pytestmark = pytest.mark.engine

ASKED = {"dynamo": "dynamo-mocker"}
"""By what name an engine is asked for, where that is another one."""
FEW = (
    *("texts", "lists", "deepseek-v3/chat_template", "glm4.5/chat_template", "kimi-k2/chat_template"),
    *("llama3/chat_template", "mistral-tekken/chat_template", "qwen3/chat_template"),
)
"""The templates an engine is asked with; all with the profile `soak`, but for SGLang, which starts slowly."""


@needs_families
@pytest.mark.parametrize("engine", ENGINES)
def test_a_running_engine_renders_what_is_rendered_here(
    engine: str, say: Callable[[str], None], tmp_path: Path
) -> None:
    asked_for(ASKED.get(engine, engine))
    templates = [*probes(write_family(tmp_path / "family")), *real_templates(FAMILIES)]
    every = EVERYTHING and engine != "sglang"
    with served(engine, say) as ask:
        texts = {one.name: answers(ask, one) for one in templates if every or one.name in FEW}
    asked = [one for one in templates if one.name in texts]
    assert not unnamed(one for each in asked for one in differences(each, engine, texts[each.name]))
    for name, seen in texts.items():
        form, known = recorded_forms(engine, name)
        assert [None if text is None else form(text) for text in seen] == known, name
