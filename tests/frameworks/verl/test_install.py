"""tito's builder in verl's table: for which families, for how long, and in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from verl.utils.tokenizer import continuous_token_wiring as wiring

from tito_core import InputError
from tito_io.integrations.verl import TitoContinuousTokenBuilder, TitoImages, install

OWN = dict(wiring._CONTINUOUS_TOKEN_BUILDER_REGISTRY)
IMAGES = {"vldefault", "qwenvl", "qwen25vl", "qwen3vl", "gemma4vl", "kimivl", "glm4v"}
"""Families with a processor."""
KEPT = {"minimaxvl", "deepseekvl2", "deepseekv4"}
"""Families whose prompts Python code writes or changes."""


@pytest.fixture(autouse=True)
def own_table() -> Iterator[None]:
    yield
    assert wiring._CONTINUOUS_TOKEN_BUILDER_REGISTRY == OWN


def families(kind: type[Any] = TitoContinuousTokenBuilder) -> set[str]:
    """Return the families that have a builder of tito's."""
    return {
        family.value
        for family, builder in wiring._CONTINUOUS_TOKEN_BUILDER_REGISTRY.items()
        if issubclass(builder, kind)
    }


def test_every_family_that_renders_by_template_gets_the_builder() -> None:
    with install() as installation:
        assert families() == {family.value for family in OWN} - KEPT - IMAGES
        assert families(TitoImages) == IMAGES
        assert {family.value for family in installation.replaced} == families() | IMAGES
    assert families() | families(TitoImages) == set()


def test_a_builder_for_images_is_still_that_of_its_family() -> None:
    with install():
        for family, builder in wiring._CONTINUOUS_TOKEN_BUILDER_REGISTRY.items():
            if family.value in IMAGES:
                assert issubclass(builder, OWN[family])
                assert builder.supports_multimodal()


@pytest.mark.parametrize("model_type", ["qwen3", "gpt_oss", "glm4_moe", "a_model_nobody_knows", None])
def test_verl_makes_the_builder_for_models_known_and_unknown(tokenizer: Any, model_type: str | None) -> None:
    with install() as installation:
        made = wiring.create_continuous_token_builder(
            tokenizer, hf_model_type=model_type, chat_template_kwargs={"enable_thinking": False}
        )
        assert isinstance(made, TitoContinuousTokenBuilder)
        assert made.chat_template_kwargs == made.prompts.template_args == {"enable_thinking": False}
        hello, turn = {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Z"}
        made.merge_context_tokens(
            [hello, turn], [hello, turn, hello], [*made.build_initial_tokens([hello]), 57]
        )
        assert (installation.built, installation.refused) == ({"ids": 1}, {})


def test_choices_reach_the_builders(tokenizer: Any) -> None:
    with install(stop_ids=[7], on_refusal="rerender"):
        made = wiring.create_continuous_token_builder(tokenizer, hf_model_type="qwen3")
    assert made.prompts.family.stop_ids == (7,)
    assert made.prompts.on_refusal == "rerender"


def test_models_of_no_known_family_have_the_default_builder_with_images(tokenizer: Any) -> None:
    class Processor:
        """Has what verl looks for in a processor, and renders as its tokenizer does."""

        image_processor = object()
        chat_template = tokenizer.chat_template
        apply_chat_template = staticmethod(tokenizer.apply_chat_template)

    with install():
        made: Any = wiring.create_continuous_token_builder(
            tokenizer, hf_model_type="unheard_of", processor=Processor()
        )
    assert made.supports_multimodal()
    assert isinstance(made, TitoImages)


def test_a_second_installation_is_an_error() -> None:
    with install(), pytest.raises(InputError, match="installed already: call `uninstall`"):
        install()
    with pytest.raises(InputError, match="on_refusal is 'end'"):
        install(on_refusal="end")  # type: ignore[arg-type]  # what a caller may get wrong


def test_an_error_inside_puts_the_table_back() -> None:
    with pytest.raises(KeyError), install():
        raise KeyError
    assert families() == set()


def test_a_worker_installs_it_when_it_imports_verl(tmp_path: Path) -> None:
    (tmp_path / "my_builders.py").write_text(
        "from tito_io.integrations.verl import install\ninstallation = install(on_refusal='rerender')\n"
    )
    code = (
        "import verl, my_builders\n"
        "from verl.utils.tokenizer import continuous_token_wiring as wiring\n"
        "made = wiring.get_continuous_token_builder_class('default')\n"
        "print(made.__mro__[1].__name__, my_builders.installation.shared.on_refusal)"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "VERL_USE_EXTERNAL_MODULES": "my_builders", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["TitoContinuousTokenBuilder", "rerender"], done.stderr
