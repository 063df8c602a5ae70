"""Whether the packages of a dependency group are installed: a program that needs one says so in a line."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
NAME = re.compile(r"[\w.-]+")
"""The name of a package at the beginning of a requirement."""
USAGE = 2
"""The exit status of a command that cannot be run like this."""


def require(*groups: str) -> None:
    """End the process with one line unless all packages of the groups are installed.

    It is called before the first of them is imported.
    """
    for group in groups:
        lacking = missing(group)
        if lacking:
            named = ", ".join(lacking)
            sys.stderr.write(f"not installed: {named}: run pip install -e . --group {group}\n")
            sys.exit(USAGE)


def missing(group: str) -> list[str]:
    """Return the packages of a dependency group that are not installed.

    >>> missing("test")
    []
    """
    wanted = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["dependency-groups"][group]
    names = [NAME.findall(one)[0] for one in wanted if isinstance(one, str)]
    return [name for name in names if not _installed(name)]


def _installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
