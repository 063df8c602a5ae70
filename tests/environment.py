"""Environments of engines and frameworks: outside the checkout, of exact versions, made once."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

Say = Callable[[str], None]
"""Says how far things are, to the person who waits."""

MISSING = """
import sys
from importlib.metadata import PackageNotFoundError, version
for pin in sys.argv[1:]:
    name, _, wanted = pin.partition("==")
    try:
        found = version(name)
    except PackageNotFoundError:
        found = None
    if found != wanted:
        print(pin)
"""


def cache() -> Path:
    """Return where environments and models are kept: $TITO_ENGINE_CACHE, or a folder of the user's."""
    return Path(os.environ.get("TITO_ENGINE_CACHE") or Path.home() / ".cache" / "tito")


@attrs.frozen
class Environment:
    """A virtual environment with exactly the pinned versions."""

    folder: Path
    requirements: Path
    interpreter: str = sys.executable
    """The Python that it is made with."""

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    def ready(self, say: Say) -> None:
        """Make it, or whatever of it is missing."""
        with locked(self.folder.with_suffix(".lock")):
            if not self._missing():
                return
            say(f"installing {self.requirements.name} into {self.folder}, which takes some minutes")
            self.folder.mkdir(parents=True, exist_ok=True)
            run(self.interpreter, "-m", "venv", str(self.folder))
            # The pins are exact: what packages say of each other, and of Python, is not asked.
            pip = (str(self.python), "-m", "pip", "install", "-q", "--no-deps", "--ignore-requires-python")
            run(*pip, "-r", str(self.requirements))
            if missing := self._missing():
                raise RuntimeError(f"{self.folder} lacks {', '.join(missing)} after its installation")

    def pins(self) -> dict[str, str]:
        """Return the pinned versions by their packages."""
        lines = self.requirements.read_text().splitlines()
        return dict(line.split("==") for line in lines if line and not line.startswith("#"))

    def packages(self) -> Path:
        """Return where its packages lie."""
        code = "import sysconfig; print(sysconfig.get_paths()['purelib'])"
        return Path(run(str(self.python), "-c", code).strip())

    def _missing(self) -> list[str]:
        """Return the pins that do not hold."""
        pins = [f"{name}=={version}" for name, version in self.pins().items()]
        if not self.python.exists():
            return pins
        return run(str(self.python), "-c", MISSING, *pins).splitlines()


@attrs.frozen
class NodeEnvironment:
    """A folder of packages from npm, with exactly the versions of a package.json."""

    folder: Path
    requirements: Path

    def ready(self, say: Say) -> None:
        """Make it, or whatever of it is missing."""
        with locked(self.folder.with_suffix(".lock")):
            if not self._missing():
                return
            say(f"installing {self.requirements.name} into {self.folder}, which takes some minutes")
            if shutil.which("npm") is None:
                raise RuntimeError("it needs npm, which is not on the PATH")
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "package.json").write_text(self.requirements.read_text())
            # no scripts: those of agents download programs from elsewhere
            run("npm", "install", "--prefix", str(self.folder), "--ignore-scripts", "--no-audit", "--no-fund")
            if missing := self._missing():
                raise RuntimeError(f"{self.folder} lacks {', '.join(missing)} after its installation")

    def pins(self) -> dict[str, str]:
        """Return the pinned versions by their packages."""
        found: dict[str, str] = json.loads(self.requirements.read_text())["dependencies"]
        return found

    def _missing(self) -> list[str]:
        """Return the pins that do not hold."""
        return [f"{name}@{pin}" for name, pin in self.pins().items() if self._version(name) != pin]

    def _version(self, package: str) -> str | None:
        file = self.folder / "node_modules" / package / "package.json"
        return str(json.loads(file.read_text())["version"]) if file.exists() else None


def run(*command: str) -> str:
    """Run a command; return what it printed, or raise with what it complained of."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:4])} ... failed:\n{done.stderr[-2000:]}")
    return done.stdout


def newer_python(version: str) -> str:
    """Return the path of a Python of a version, such as "3.12", that is not the one of this project."""
    name, kept = f"python{version}", Path.home() / ".pyenv" / "versions"
    found = [shutil.which(name), *map(str, sorted(kept.glob(f"{version}.*/bin/{name}")))]
    for path in filter(None, found):
        if subprocess.run([path, "-c", "import ssl, venv"], capture_output=True, check=False).returncode == 0:
            return path
    raise RuntimeError(f"it needs Python {version}, which was not found")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other test runs out while this one installs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
