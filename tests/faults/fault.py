"""A textual change to one file, mostly of the kernel, and whether its tests see it."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.faults.children import Children

ROOT = Path(__file__).parent.parent.parent
SUITES = (
    "tests/core",
    "tests/property",
    "--ignore=tests/core/drift",
    "--ignore=tests/core/samples",
    "--ignore-glob=*/test_forest*",
    "--ignore-glob=*/test_samples*",
)
"""The tests of stitching; those of what comes after it can only see faults of their own."""


@attrs.frozen
class Fault:
    """A change that makes the project wrong."""

    what: str
    file: str
    right: str
    wrong: str
    suites: tuple[str, ...] = SUITES
    """The tests that are to notice."""
    package: str = "tito_core"
    """The package that `file` is in."""
    plugins: tuple[str, ...] = ()
    """The plugins of pytest that the tests need."""

    def plant(self, home: Path) -> None:
        """Write the wrong text into a copy of the project.

        A text that is not found once is itself an error, so that no list of faults goes stale in silence.
        """
        path = home / self.package / self.file
        text = path.read_text()
        if text.count(self.right) != 1:
            sys.exit(f"{self.file} has {self.right!r} {text.count(self.right)} times: mend tests/faults")
        path.write_text(text.replace(self.right, self.wrong))
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)

    @property
    def own(self) -> tuple[str, ...]:
        """The test of the file itself, which most often notices first."""
        path = Path(self.file)
        test = Path("tests/core") / path.parent / f"test_{path.name}"
        return (str(test),) if self.package == "tito_core" and (ROOT / test).exists() else ()

    def killed(self, children: Children) -> str | None:
        """Return a test that fails on a copy with the fault, its own or any other; None if none does."""
        with copied() as home:
            self.plant(home)
            for suites in (self.own, self.suites) if self.own else (self.suites,):
                failed = run(suites, home, children, self.plugins)
                if failed:
                    return failed[0]
        return None


def faults() -> tuple[Fault, ...]:
    """Read the planted faults from the files beside this one, which say what belongs together."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return tuple(_fault(**one) for file in files for one in tomllib.loads(file.read_text("utf-8"))["fault"])


def _fault(*, file: str, suites: Sequence[str] = SUITES, plugins: Sequence[str] = (), **texts: str) -> Fault:
    """Make a fault of what a file says, in which the package is part of the path."""
    package, _, inside = file.partition("/")
    return Fault(file=inside, package=package, suites=tuple(suites), plugins=tuple(plugins), **texts)


@contextmanager
def copied() -> Iterator[Path]:
    """Lend a copy of the project."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for name in ("tito_core", "tito_io", "benchmarks", "tests"):
            shutil.copytree(ROOT / name, home / name)  # with what is compiled: it is known by its time
        shutil.copy(ROOT / "pyproject.toml", home)
        yield home


def run(suites: Iterable[str], home: Path, children: Children, plugins: Iterable[str]) -> list[str]:
    """Run tests in a copy of the project up to the first one that fails; return it, if there is one."""
    log = home / "failed"
    named = [word for name in ("no:cacheprovider", "tests.faults.plugin", *plugins) for word in ("-p", name)]
    # No other plugin is needed, and to load those that are installed takes longer than most tests.
    alone = {"HYPOTHESIS_PROFILE": "faults", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    environment = {**os.environ, **alone, "PYTHONPATH": str(home), "TITO_FAILED": str(log)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", *named, *suites]
    children.run(command, home, environment)
    return log.read_text(encoding="utf-8").splitlines() if log.exists() else []


def fails_anyway(tests: Iterable[str], plugins: Iterable[str]) -> list[str]:
    """Return a test that fails without any fault, too, and so shows none."""
    with copied() as home, Children() as children:
        return run(tests, home, children, plugins)
