"""Check the version of a framework, and that the parts that an integration replaces have not moved."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from types import EllipsisType
from typing import Any, TypeAlias

from attrs import frozen
from packaging.version import Version

from tito_core.errors import TitoError
from tito_io.extras import install

Seams: TypeAlias = Mapping[str, Sequence[str | EllipsisType] | None]
"""What an integration replaces or calls, as `module:Class.function`, with the names of its arguments in their
order, without `self`. More may follow an ellipsis. None: it has to be there."""


class FrameworkError(TitoError, ImportError):
    """A framework is missing, too old or cannot be imported, or what an integration replaces has moved."""


@frozen
class Framework:
    """A framework that has an integration.

    Attributes:
        package: Its name on the package index.
        lowest: The oldest version that the integration works with.
        tested: The newest version that its tests ran with.
        extra: The extra of this package that installs it.
    """

    package: str
    lowest: str
    tested: str
    extra: str

    def installed(self) -> str:
        """Return the installed version; raises `FrameworkError` if it is missing or too old."""
        try:
            found = version(self.package)
        except PackageNotFoundError as error:
            raise FrameworkError(
                f"{self.package}>={self.lowest} is missing: {install(self.extra)}"
            ) from error
        if Version(found) < Version(self.lowest):
            raise FrameworkError(
                f"{self.package} is {found}: this integration needs {self.lowest} or newer;"
                f" {install(self.extra)}"
            )
        return found

    def moved(self, seam: str) -> FrameworkError:
        """Return the error for a `seam` that the installed version does not have."""
        return FrameworkError(
            f"{self.package} {version(self.package)} has no {seam} that this integration can use:"
            f" it is tested with {self.tested}"
        )

    def unimportable(self, error: BaseException) -> FrameworkError:
        """Return the error for an installed version whose import fails: it needs another package."""
        while error.__cause__ is not None:
            error = error.__cause__
        return FrameworkError(
            f"{self.package} {version(self.package)} cannot be imported: {error}; {install(self.extra)}"
        )


FRAMEWORKS = {
    one.extra: one
    for one in (
        Framework("areal", "1.0.4", "1.0.4", "areal"),
        Framework("langchain-core", "1.7", "1.8.4", "langchain"),
        Framework("miles-tito-tokenizers", "0.1.1", "0.1.1", "miles-tokenizers"),
        Framework("openai-agents", "0.24", "0.24.0", "openai-agents"),
        Framework("openrlhf", "0.11.2", "0.11.2", "openrlhf"),
        Framework("pydantic-ai-slim", "2.68", "2.68.0", "pydantic-ai"),
        Framework("renderers", "0.1.12", "0.1.12", "renderers"),
        Framework("skyrl", "0.3", "0.4.0", "skyrl"),
        Framework("tinker-cookbook", "0.6.1", "0.6.1", "tinker"),
        Framework("trl", "1.16", "1.16.0", "trl"),
        Framework("verl", "0.9", "0.9.1", "verl"),
    )
}
"""All of them, by the extra that installs each."""


def required(extra: str, seams: Seams) -> Framework:
    """Return the framework that `extra` installs, once the installed version can be used.

    A version that is newer than the tested one is named in one warning.

    Args:
        extra: The extra.
        seams: What the integration replaces or calls there.

    Raises:
        FrameworkError: It is missing, too old, lacks a package that it needs, or one of `seams` has moved.
    """
    framework = FRAMEWORKS[extra]
    found = framework.installed()
    try:
        absent = [seam for seam, taken in seams.items() if not _stands(seam, taken)]
    except (ImportError, RuntimeError) as error:
        # Modules of TRL are imported on first use, and raise a RuntimeError.
        raise framework.unimportable(error) from error
    if absent:
        raise framework.moved(absent[0])
    if Version(Version(found).public) > Version(framework.tested):
        _warn(
            f"{framework.package} is {found}: this integration is tested up to {framework.tested};"
            " what it replaces there has not moved"
        )
    return framework


@cache
def _warn(text: str) -> None:
    """Warn once in a process, however many modules of an integration are imported."""
    warnings.warn(text, stacklevel=3)


def _stands(seam: str, taken: Sequence[str | EllipsisType] | None) -> bool:
    """Tell whether a seam is there and has its arguments.

    >>> _stands("fractions:Fraction.limit_denominator", ["max_denominator"])
    True
    >>> _stands("fractions:Fraction.limit_denominator", ["most"]), _stands("fractions:Half", None)
    (False, False)
    """
    found = _object(seam)
    if taken is None or found is None:
        return found is not None
    names = [name for name in signature(found).parameters if name != "self"]
    given = [one for one in taken if one is not ...]
    return names == given or (... in taken and names[: len(given)] == given)


def _object(seam: str) -> Any:
    """Return what a seam names, None if it is not there."""
    module, _, path = seam.partition(":")
    try:
        owner: Any = import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # the framework needs another package
        return None
    return reduce(lambda one, name: getattr(one, name, None), path.split("."), owner)
