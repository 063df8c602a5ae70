"""Import the packages of objects, which tito does not depend on."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tito_io.engines.protocol import UnsupportedError


def package(name: str) -> Any:
    """Return a module of an object's own package.

    Raises:
        UnsupportedError: It cannot be imported.

    >>> package("json.decoder").__name__
    'json.decoder'
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise UnsupportedError(
            f"{name} cannot be imported, which the engine's object is made with: run tito in the environment "
            "in which that object was made. Nothing was sampled"
        ) from error
