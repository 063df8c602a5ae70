"""`help` shows what every public class holds: attribute docstrings alone do not reach it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from types import ModuleType
from typing import Any

import attrs
import pytest

ROOMS = (
    "tito_core",
    "tito_core.normalization.compare",
    "tito_core.normalization.canonical",
    "tito_core.samples",
    "tito_core.drift",
    "tito_core.testing",
    "tito_core.testing.strategies",
    "tito_core.seams.profile",
    "tito_core.seams.case",
    "tito_io.client",
    "tito_io.families",
    "tito_io.engines.protocol",
    "tito_io.engines.vllm",
    "tito_io.engines.sglang",
    "tito_io.engines.dynamo",
    "tito_io.engines.llamacpp",
    "tito_io.engines.lmdeploy",
    "tito_io.engines.tensorrt_llm",
    "tito_io.engines.in_process",
    "tito_io.engines.miles",
    "tito_io.embedded",
)


def public(room: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the names that a room gives away."""
    listed = getattr(room, "__all__", None)
    for name in listed or [one for one in vars(room) if not one.startswith("_")]:
        value = getattr(room, name)
        if listed or getattr(value, "__module__", None) == room.__name__:
            yield name, value


CLASSES = sorted(
    {
        value
        for name in ROOMS
        for _, value in public(import_module(name))
        if isinstance(value, type) and attrs.has(value)
    },
    key=lambda kind: (kind.__module__, kind.__qualname__),
)
FUNCTIONS = sorted(
    {
        value
        for name in ROOMS
        for _, value in public(import_module(name))
        if inspect.isfunction(value) and value.__module__.startswith("tito")
    },
    key=lambda function: (function.__module__, function.__qualname__),
)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__qualname__}")
def test_a_class_says_in_its_docstring_what_it_holds(kind: type) -> None:
    written = "".join(base.__doc__ or "" for base in kind.__mro__ if base.__module__.startswith("tito"))
    fields = [field.name for field in attrs.fields(kind) if not field.name.startswith("_")]
    assert [name for name in fields if f"{name}:" not in written and f"`{name}`" not in written] == []


@pytest.mark.parametrize(
    "function", FUNCTIONS, ids=lambda function: f"{function.__module__}.{function.__qualname__}"
)
def test_a_function_says_in_its_docstring_what_it_takes(function: Any) -> None:
    written = inspect.getdoc(function) or ""
    named = [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]
    assert [name for name in named if f"{name}:" not in written and f"`{name}`" not in written] == []


def test_the_rooms_give_away_classes_functions_and_choices() -> None:
    assert len(CLASSES) > 40
    assert len(FUNCTIONS) > 10
    assert any(
        issubclass(value, Enum) for _, value in public(import_module("tito_core")) if isinstance(value, type)
    )
