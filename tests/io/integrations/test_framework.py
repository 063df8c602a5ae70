"""Versions of frameworks that integrations are tested with."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from tito_io.integrations.framework import Framework, FrameworkError


def test_a_tested_version_is_returned() -> None:
    assert Framework("pytest", ">=8", "verl").require() == version("pytest")


def test_a_seam_that_moved_is_named_with_the_version() -> None:
    error = Framework("pytest", ">=8", "verl").moved("Renderer.bridge")
    assert str(error).startswith(f"pytest {version('pytest')} has no Renderer.bridge")


def test_a_function_with_other_arguments_has_moved() -> None:
    framework = Framework("pytest", ">=8", "verl")
    framework.require_arguments(Framework, "moved", ("seam",))
    framework.require_arguments(Framework, "require_arguments", ("owner", "seam"), more=True)
    for taken in ((), ("seam", "more"), ("name",)):
        with pytest.raises(FrameworkError, match=r"has no Framework\.moved that"):
            framework.require_arguments(Framework, "moved", taken)
    with pytest.raises(FrameworkError, match="has no forward"):
        framework.require_arguments(pytest, "forward", ("back",))
