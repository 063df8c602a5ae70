"""What the core costs to install and to import:  python -m benchmarks.install.

It builds the wheel and installs it, without an extra, into a new environment; that needs Linux and a package
index.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs

from benchmarks.command import interruptible

ROOT = Path(__file__).parent.parent
TIMES = 11
NOTHING, BELOW, CORE = "sys", "attrs, cattrs", "tito_core"
"""What is imported: nothing new, what the core needs, and the core."""
PROGRAM = """\
import time
began = time.process_time()
import {names}
taken = time.process_time() - began
(high,) = (line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(taken, 1024 * int(high))
"""
"""Prints seconds and bytes. What `getrusage` has as the most memory may be that of the parent process."""


@attrs.frozen
class Import:
    """What an import takes in a new process.

    Attributes:
        seconds: Its processor time, the median.
        memory: The most memory that the process had, in bytes, the median.
    """

    seconds: float
    memory: float


def imported(python: Path, names: str, times: int = TIMES) -> Import:
    """Measure an import in new processes, once its modules are compiled."""
    command = [str(python), "-c", PROGRAM.format(names=names)]
    found = []
    for _ in range(times + 1):
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603  # our own
        found.append([float(one) for one in done.stdout.split()])
    seconds, memory = zip(*found[1:], strict=True)
    return Import(statistics.median(seconds), statistics.median(memory))


def installed(place: Path) -> tuple[int, dict[str, str], Path]:
    """Install the core; return the wheel's size, the versions of all packages, and the interpreter."""
    python = place / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    _run(sys.executable, "-m", "venv", str(place / "venv"))
    before = _packages(pip)
    _run(*pip, "wheel", "-q", "--no-deps", "-w", str(place), str(ROOT))
    (wheel,) = place.glob("*.whl")
    _run(*pip, "install", "-q", str(wheel))
    return wheel.stat().st_size, {k: v for k, v in _packages(pip).items() if k not in before}, python


def _packages(pip: list[str]) -> dict[str, str]:
    return {one["name"]: one["version"] for one in json.loads(_run(*pip, "list", "--format", "json"))}


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout  # noqa: S603  # our own


@interruptible
def main() -> None:
    """Print the figures."""
    argparse.ArgumentParser(description="Install the core into a new environment (Linux).").parse_args()
    with TemporaryDirectory() as name:
        size, packages, python = installed(Path(name))
        nothing, below, core = (imported(python, names) for names in (NOTHING, BELOW, CORE))
    print(f"wheel: {size / 1e6:.2f} MB")
    print(f"packages: {', '.join(f'{name} {version}' for name, version in packages.items())}")
    for label, one in ((BELOW, below), (CORE, core)):
        more = (one.memory - nothing.memory) / 1e6
        print(f"import {label}: {one.seconds * 1000:.0f} ms, {more:.1f} MB beyond an empty process")


if __name__ == "__main__":
    main()
