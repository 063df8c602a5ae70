"""Install the built wheel with the oldest, or the newest, versions that its bounds admit, and run tests.

It needs `uv`. The tests come from the built sdist, whose own packages are removed, so that they run on what
was installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from .artefacts import ROOT, ReleaseError, sdist_tree
from .licences import direct, normal

EXTRAS = ("redis", "zst", "miles", "parquet", "otel", "testing")
"""What is tried: the core, the default install, and all extras that neither need a framework nor a model."""
FOR_TESTS = (
    *("pytest>=8.4", "trio>=0.30", "numpy>=2", "jsonschema>=4.23", "pydantic>=2.11"),
    *("anthropic>=2.12", "atif>=1.8", "openai>=3.0", "transformers>=5.0"),
)
"""What the tests import beside; always the newest that goes with the rest."""
TESTS = (
    *("tests/core", "tests/property", "tests/io/cli", "tests/io/rollout", "tests/io/embedded"),
    *("tests/io/client/test_token_client.py", "tests/io/engines/vllm", "tests/io/engines/test_wire.py"),
    *("tests/io/families/test_family.py", "tests/io/families/test_template.py", "tests/io/dialects"),
    *("tests/io/samples/test_command.py", "tests/io/samples/test_read.py", "tests/io/samples/test_rows.py"),
    *("tests/io/samples/test_miles.py", "tests/io/serve/test_requests.py", "tests/io/serve/test_sessions.py"),
    *("tests/io/serve/test_spans.py", "tests/io/serve/test_metrics.py", "tests/io/serve/test_rows.py"),
)
"""The kernel, and of what touches the world the rooms that use a dependency each."""
OLDEST, NEWEST = "lowest-direct", "highest"


@attrs.frozen
class Environment:
    """A virtual environment with one choice of versions.

    Attributes:
        folder: Where it is made.
        resolution: `lowest-direct` or `highest`, as uv calls them.
        python: The interpreter's version.
    """

    folder: Path
    resolution: str
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    @property
    def interpreter(self) -> Path:
        """The environment's Python."""
        return self.folder / "venv" / "bin" / "python"

    def install(self, artefacts: Mapping[str, bytes], more: Sequence[str] = ()) -> list[str]:
        """Install the wheel and `more`; return the versions of direct dependencies, as `name==version`."""
        self.folder.mkdir(parents=True)
        (name,) = (one for one in artefacts if one.endswith(".whl"))
        wheel, bounds = self.folder / name, self.folder / "constraints.txt"
        wheel.write_bytes(artefacts[name])
        pinned = self.versions()
        bounds.write_text("\n".join(pinned), encoding="utf-8")
        asked = f"tito-kernel[{','.join(EXTRAS)}] @ {wheel.as_uri()}"
        uv("venv", "-q", "--python", self.python, str(self.folder / "venv"))
        uv("pip", "install", "-q", "--python", str(self.interpreter), "-c", str(bounds), asked, *more)
        return pinned

    def versions(self) -> list[str]:
        """Return what uv chooses for the direct dependencies.

        They are asked for by the project's own table: those of a wheel would be indirect, of which uv takes
        the newest. What the direct ones need beside may follow the tests' packages.
        """
        extras = (word for extra in EXTRAS for word in ("--extra", extra))
        chosen = uv(
            *("pip", "compile", "-q", "--no-header", "--no-annotate", "--python-version", self.python),
            *("--resolution", self.resolution, "pyproject.toml", *extras),
        )
        return [line for line in chosen.splitlines() if normal(line.partition("==")[0]) in direct(EXTRAS)]

    def test(self, artefacts: Mapping[str, bytes], tests: Sequence[str] = TESTS) -> str:
        """Run tests of the sdist; return pytest's last line. Raises `ReleaseError` with its end."""
        tree = sdist_tree(artefacts, self.folder / "sdist")
        for package in ("tito_core", "tito_io"):
            shutil.rmtree(tree / package)
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environment |= {"HYPOTHESIS_PROFILE": "brief", "TITO_CACHE": str(self.folder / "cache")}
        # pytest fails where it cannot remove what another run has left in the usual folder.
        own = ("-p", "no:cacheprovider", f"--basetemp={self.folder / 'temporary'}")
        done = subprocess.run(
            [self.interpreter, "-m", "pytest", "-q", "--tb=short", *own, *tests],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ReleaseError(f"tests fail with the {self.resolution} versions:\n{_end(done)}")
        return done.stdout.strip().splitlines()[-1]


def _end(done: subprocess.CompletedProcess[str]) -> str:
    """Return what a person needs of a failed run: its errors, and the end of what it printed."""
    lines = [line for line in done.stdout.splitlines() if line.strip(" .s[]%0123456789")]
    return "\n".join([*lines[-60:], done.stderr[-2000:]])


def uv(*arguments: str) -> str:
    """Run uv; return what it prints. Raises `ReleaseError` with its error."""
    command = [sys.executable, "-m", "uv", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"uv {arguments[0]} {arguments[1]}: {done.stderr.strip()}")
    return done.stdout
