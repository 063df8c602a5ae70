"""Where Unsloth meets the integration for TRL: its limits of versions, and the methods that it rewrites."""

from __future__ import annotations

from importlib.metadata import requires, version
from inspect import getsource, signature

import pytest
from packaging.requirements import Requirement
from trl import GRPOTrainer

from tests.frameworks.unsloth.rewriting import METHODS, functions, rewritten, source
from tito_io.integrations.trl import GIVEN

MOVED = f"unsloth {version('unsloth')}: {{}} is not what the page about TRL says"


def allows(package: str) -> bool:
    """Return whether Unsloth allows the installed version of a package, with its usual dependencies."""
    needs = [Requirement(one) for one in requires("unsloth") or ()]
    (found,) = {
        one.specifier
        for one in needs
        if one.name == package and one.marker is not None and one.marker.evaluate({"extra": "huggingface"})
    }
    return found.contains(version(package))


def test_the_versions_are_those_of_the_page() -> None:
    found = {name: version(name) for name in ("unsloth", "unsloth_zoo", "trl", "transformers", "datasets")}
    assert found == {
        "unsloth": "2026.10.9",
        "unsloth_zoo": "2026.10.9",
        "trl": "1.16.0",
        "transformers": "5.24.0",
        "datasets": "5.2.0",
    }, MOVED.format("a version")


@pytest.mark.parametrize("package", ["trl", "transformers", "datasets"])
def test_the_version_is_newer_than_unsloth_allows(package: str) -> None:
    assert not allows(package), MOVED.format(f"its limit for {package}")


def test_without_a_gpu_the_trainer_is_trls() -> None:
    assert GRPOTrainer.__module__ == "trl.trainer.grpo_trainer", MOVED.format("GRPOTrainer on a CPU")


def test_unsloth_rewrites_the_methods_that_sample() -> None:
    assert tuple(functions()) == METHODS, MOVED.format("rl_replacements.py")
    for name in METHODS:
        assert f'RL_FUNCTIONS["grpo_trainer"].append(grpo_trainer_{name})' in source(), MOVED.format(name)


def test_the_rewritten_methods_are_called_as_before() -> None:
    single = rewritten("_generate_single_turn")
    assert tuple(signature(single).parameters)[1 : 1 + len(GIVEN)] == GIVEN, MOVED.format(single.__name__)
    generate = functions()["_generate"]("_generate", getsource(GRPOTrainer._generate))
    assert "self.rollout_func(prompts, self)" in generate, MOVED.format("_generate")
