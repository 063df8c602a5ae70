"""Where the renderer goes into torchtitan: its configuration, its token environment, and its controller."""

from __future__ import annotations

from importlib.metadata import version
from inspect import getsource, signature
from pathlib import Path

import pytest
import torchtitan
from torchtitan.experiments.rl.environment import TokenEnv
from torchtitan.experiments.rl.renderer import RendererConfig

from tests.frameworks.renderers.models import OWN, model
from tests.frameworks.torchtitan.rollout import StitchedRendererConfig
from tito_io.integrations.renderers import StitchedRenderer

MOVED = f"torchtitan {version('torchtitan')}: {{}} is not what the renderer was tested with"


def test_the_version_is_a_tested_one() -> None:
    assert version("torchtitan") == "0.3.0", MOVED.format("the package")


def test_a_configuration_builds_the_renderer() -> None:
    assert list(signature(RendererConfig.build).parameters) == ["self", "tokenizer_path"], MOVED.format(
        "RendererConfig.build"
    )
    built = StitchedRendererConfig(name="qwen3").build(tokenizer_path=str(model(OWN).folder))
    assert isinstance(built, StitchedRenderer)


def test_torchtitans_own_configuration_takes_no_import_path() -> None:
    names = ("custom", "tito_io.integrations.renderers.StitchedRenderer")
    for name in names:
        with pytest.raises(ValueError, match=r"No renderer config registered|import_path"):
            RendererConfig(name=name).build(tokenizer_path=str(model(OWN).folder))


def test_the_environment_asks_the_renderer_for_the_next_prompt() -> None:
    moved = MOVED.format("TokenEnv")
    first, step = getsource(TokenEnv.init), getsource(TokenEnv.step)
    assert first.count("self._renderer.") == 1, moved
    assert "self._renderer.render_ids," in first, moved
    assert step.count("self._renderer.") == 3, moved
    for name in ("parse_response", "bridge_to_next_turn", "render_ids"):
        assert f"self._renderer.{name}," in step, moved
    passed = ("previous_prompt_ids", "previous_completion_ids", "new_messages", "tools")
    assert all(f"            {name}=" in step for name in passed), moved
    assert set(passed) <= set(signature(StitchedRenderer.bridge_to_next_turn).parameters)


def test_the_controller_builds_it_from_the_configuration() -> None:
    """Its module imports vLLM, so that only its text can be read here."""
    (folder,) = torchtitan.__path__
    text = (Path(folder) / "experiments" / "rl" / "controller.py").read_text()
    moved = MOVED.format("controller.py")
    assert "self.renderer = config.renderer.build(tokenizer_path=config.hf_assets_path)" in text, moved
    assert "self.renderer.get_stop_token_ids()" in text, moved
    assert "self.renderer._tokenizer.eos_token_id" in text, moved
    renderer = model(OWN).renderer()
    assert renderer._tokenizer.eos_token_id == model(OWN).tokenizer.eos_token_id
