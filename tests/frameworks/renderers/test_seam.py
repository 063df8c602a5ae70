"""Where the renderer goes in: the protocol of renderers, its loader, and the client of verifiers."""

from __future__ import annotations

import dataclasses
import inspect
from importlib.metadata import version
from typing import Any

import pytest
from renderers import base, client, custom
from renderers.configs import BaseRendererConfig, CustomRendererConfig
from renderers.default import DefaultRenderer
from renderers.qwen3_vl import Qwen3VLRenderer
from verifiers.v1.clients import train
from verifiers.v1.configs.client import TrainClientConfig

from tests.frameworks.renderers.models import OWN, PATH, model
from tito_io.integrations.renderers import StitchedConfig, StitchedRenderer

METHODS = ("render", "render_ids", "parse_response", "get_stop_token_ids", "bridge_to_next_turn")


def test_the_version_of_verifiers_is_a_tested_one() -> None:
    assert version("verifiers").startswith("0.4.")


def test_the_protocol_is_kept() -> None:
    renderer = model(OWN).renderer()
    assert isinstance(renderer, base.Renderer)
    assert not base.is_multimodal(renderer)
    assert renderer.is_prefix_stable is False
    members = {name for name in vars(base.Renderer) if not name.startswith("_")}
    assert members == {*METHODS, "is_prefix_stable"}


def parameters(kind: type, name: str) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(getattr(kind, name)).parameters.values()
    return [(one.name, one.kind, one.default) for one in found]


BY_HAND = ("process_multimodal", inspect.Parameter.KEYWORD_ONLY, True)
"""What renderers written by hand take beside the protocol, and what the client of renderers passes."""


@pytest.mark.parametrize("name", METHODS)
def test_a_method_takes_what_the_protocol_passes(name: str) -> None:
    kind = base.MultimodalRenderer if name == "bridge_to_next_turn" else base.Renderer
    more = [BY_HAND] if name in ("bridge_to_next_turn", "render") else []
    assert parameters(StitchedRenderer, name) == [*parameters(kind, name), *more]
    assert all(one in parameters(Qwen3VLRenderer, name) for one in more)


def test_the_protocol_for_images_has_one_more_member() -> None:
    own, text = (
        {name for name in dir(kind) if not name.startswith("_")}
        for kind in (base.MultimodalRenderer, base.Renderer)
    )
    assert own - text == {"mm_token_type_id_map"}
    assert '"supports_process_multimodal"' in inspect.getsource(client.generate)
    assert "process_multimodal" in inspect.getsource(train.TrainClient.get_response)
    fields = ["mm_hashes", "mm_placeholders", "mm_items"]
    assert [one.name for one in dataclasses.fields(base.MultiModalData)] == fields


def test_the_loader_finds_class_and_options() -> None:
    config = CustomRendererConfig(import_path=PATH, on_refusal="raise")
    assert custom.load_custom_renderer(PATH) is StitchedRenderer
    assert custom.custom_renderer_config(config) == StitchedConfig(on_refusal="raise")
    assert issubclass(StitchedConfig, BaseRendererConfig)


def test_what_is_used_of_the_default_renderer_is_there() -> None:
    assert {"render", "parse_response", "supports_tools", "is_prefix_stable"} <= vars(DefaultRenderer).keys()
    assert "supports_tools" in inspect.getsource(client.generate)


def test_the_client_of_verifiers_bridges_and_renders() -> None:
    source = inspect.getsource(train.TrainClient.get_response)
    assert ".bridge_to_next_turn(" in source
    assert "renderer.render(" in source
    given: dict[str, Any] = {"renderer": {"name": "custom", "import_path": PATH}}
    assert TrainClientConfig.model_validate(given).renderer.import_path == PATH
