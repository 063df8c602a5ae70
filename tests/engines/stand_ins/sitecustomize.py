"""Packages that SGLang imports and a dense model on a CPU never calls, answered for by name.

Python imports this module by itself where its folder is on the path, in every process that SGLang starts. The
kernels for CPUs are not published as a package, and torchvision's is built for another torch.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ABSENT = ("sgl_kernel", "torchvision")


class Absent(type):
    """A name of an absent package: it can be imported and compared, and whoever calls it hears the truth."""

    def __getattr__(cls, name: str) -> Absent:
        """Return a name within it."""
        return absent(f"{cls.__name__}.{name}")

    def __call__(cls, *_: object, **__: object) -> object:
        """Refuse."""
        raise NotImplementedError(f"{cls.__name__} is not there: the tests' SGLang has no such package")


def absent(name: str) -> Absent:
    """Return a name that stands for nothing; asking for what Python itself looks up fails as it should."""
    if name.rpartition(".")[2].startswith("__"):
        raise AttributeError(name)
    return Absent(name, (), {})


class Finder(MetaPathFinder, Loader):
    """Makes absent packages, and every module in them, importable."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Answer for the absent packages and for no other."""
        del path, target
        if fullname.partition(".")[0] not in ABSENT:
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Give the module every name there is."""
        module.__version__ = "0.0"  # type: ignore[attr-defined]  # a module has what it is given
        module.__getattr__ = lambda name: absent(f"{module.__name__}.{name}")  # type: ignore[method-assign]  # PEP 562


if __name__ == "sitecustomize":  # and not where something else looks into this file
    sys.meta_path.insert(0, Finder())
