"""Versions of frameworks that integrations are tested with."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from typing import Any

from attrs import frozen
from packaging.specifiers import SpecifierSet

from tito_core.errors import TitoError
from tito_io.extras import install


class FrameworkError(TitoError, ImportError):
    """A framework is missing, or it is not one of the versions that an integration is tested with."""


@frozen
class Framework:
    """A framework, and the versions that its integration is tested with.

    Attributes:
        package: Its name on the package index.
        versions: The tested versions, such as ">=0.9,<0.10".
        extra: The extra of this package that installs it.

    >>> Framework("attrs", ">=20", "io").require() == version("attrs")
    True
    """

    package: str
    versions: str
    extra: str

    def require(self) -> str:
        """Return the installed version; raises `FrameworkError` if it is missing or not a tested one."""
        try:
            found = version(self.package)
        except PackageNotFoundError as error:
            raise FrameworkError(
                f"{self.package}{self.versions} is missing: {install(self.extra)}"
            ) from error
        if not SpecifierSet(self.versions).contains(found, prereleases=True):
            raise FrameworkError(
                f"{self.package} is {found}: this integration is tested with {self.versions};"
                f" {install(self.extra)}"
            )
        return found

    def require_arguments(self, owner: Any, seam: str, taken: Sequence[str], *, more: bool = False) -> None:
        """Raise `FrameworkError` unless a function has the arguments that an integration was made for.

        Args:
            owner: The class that has the function, or the module.
            seam: The name of the function.
            taken: The names of its arguments, in their order, without `self`.
            more: Whether it may have more of them.

        >>> Framework("attrs", ">=20", "io").require_arguments(str, "join", ("iterable",))
        """
        found = tuple(name for name in signature(getattr(owner, seam, _nothing)).parameters if name != "self")
        if (found[: len(taken)] if more else found) != tuple(taken):
            raise self.moved(f"{owner.__name__}.{seam}" if isinstance(owner, type) else seam)

    def moved(self, seam: str) -> FrameworkError:
        """Return the error for a `seam` (a function, a class) that the installed version does not have."""
        return FrameworkError(
            f"{self.package} {version(self.package)} has no {seam} that this integration can use:"
            f" it is tested with {self.versions}"
        )


def _nothing() -> None:
    """Stand for a function that is not there."""
