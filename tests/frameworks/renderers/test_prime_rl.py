"""The configuration of the page reaches prime-rl's renderer, and the client of `verifiers`."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.docs.page import blocks
from tests.frameworks.renderers.models import NEXT, OWN, QUESTION, case_of, model
from tests.frameworks.renderers.prime_rl import FinetuningConfig, OrchestratorConfig, set_up
from tito_io.integrations.renderers import StitchedRenderer

PAGE = Path(__file__).parents[3] / "docs" / "integrations" / "renderers.md"


def of_page() -> dict[str, Any]:
    """Return the table for prime-rl that the page shows."""
    tables = [tomllib.loads(one.text) for one in blocks(PAGE.read_text()) if one.language == "toml"]
    (found,) = [table["orchestrator"]["renderer"] for table in tables if "orchestrator" in table]
    assert isinstance(found, dict)
    return found


def test_the_orchestrator_builds_the_renderer() -> None:
    one = model(OWN)
    config = OrchestratorConfig.model_validate({"model": str(one.folder), "renderer": of_page()})
    renderer, client = set_up(config, one.tokenizer)
    assert isinstance(renderer, StitchedRenderer)
    assert renderer.config.thinking_retention == "all"
    prompt, sampled = one.sampled([QUESTION], case_of("user", OWN))
    bridged = renderer.bridge_to_next_turn(prompt, sampled, [NEXT])
    assert bridged is not None
    assert bridged.token_ids[: len(prompt) + len(sampled)] == [*prompt, *sampled]
    sent = type(client).model_validate_json(client.model_dump_json())
    assert sent.renderer == client.renderer == config.renderer


def test_fine_tuning_takes_it_too() -> None:
    found = FinetuningConfig.model_validate({"model": "own", "renderer": of_page()})
    assert found.renderer.model_extra["tool_parser"] == "qwen3"


@pytest.mark.parametrize("kind", [OrchestratorConfig, FinetuningConfig])
def test_without_it_a_model_of_ones_own_has_no_renderer(kind: Any) -> None:
    with pytest.raises(ValidationError, match="renderer"):
        kind.model_validate({"model": "own"})
