"""A package that SGLang imports and a dense model on a CPU never calls, answered for by name.

Python imports this module by itself where its folder is on the path, in every process that SGLang starts. The
kernels for CPUs are not published as a package. Image processors ask for them as operators of torch, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ABSENT = ("sgl_kernel",)
KERNEL = "convert_weight_packed"
"""By this operator SGLang sees whether a processor with AMX has kernels (`srt/utils/common.py`, 0.5.23)."""


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


class Operators:
    """A package's operators of torch: each that is asked for is declared then, and has no kernel."""

    def __init__(self, name: str) -> None:
        self._asked: set[str] = set()
        self._library = import_module("torch.library").Library(name, "FRAGMENT")
        self._declared = import_module("torch._ops")._OpNamespace(name)

    def __getattr__(self, name: str) -> object:
        """Return an operator, declared."""
        # torch itself looks whether one that was asked for is there already
        if name.startswith("_") or name == KERNEL or name in self._asked:
            raise AttributeError(name)
        self._asked.add(name)
        self._library.define(f"{name}(Tensor a) -> Tensor")
        setattr(self, name, getattr(self._declared, name))
        return getattr(self, name)


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
        """Give the module every name there is, and torch the package's operators."""
        if "." not in module.__name__:
            setattr(import_module("torch").ops, module.__name__, Operators(module.__name__))
        module.__version__ = "0.0"  # type: ignore[attr-defined]  # a module has what it is given
        module.__getattr__ = lambda name: absent(f"{module.__name__}.{name}")  # type: ignore[method-assign]  # PEP 562


if __name__ == "sitecustomize":  # and not where something else looks into this file
    sys.meta_path.insert(0, Finder())
