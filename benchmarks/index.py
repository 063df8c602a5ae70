"""Peers from the package index: which environment has them, and how they are asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs

from benchmarks.clock import Timing
from benchmarks.history import History
from benchmarks.peers.given import Given
from tito_core import Step

ROOT = Path(__file__).parent.parent
CACHE = Path.home() / ".cache" / "tito"


@attrs.frozen
class Peer:
    """Packages at their versions, and the module that knows how to ask them."""

    module: str
    needs: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The interpreter that has the packages: this one, or that of an environment of their own."""
        if all(_have(*need.split("==")) for need in self.needs):
            return Path(sys.executable)
        return CACHE / f"peers-{'-'.join(self.needs).replace('==', '-')}" / "bin" / "python"

    @property
    def there(self) -> bool:
        """Whether the environment is there."""
        return self.python.exists()

    def install(self) -> None:
        """Make the environment."""
        folder = self.python.parent.parent
        try:
            venv.create(folder, with_pip=True)
            subprocess.run(  # noqa: S603  # packages that are named above
                [self.python, "-m", "pip", "install", "-q", *self.needs], check=True, stdout=sys.stderr
            )
        except BaseException:
            shutil.rmtree(folder)  # half an environment would be taken for a whole one
            raise


def _have(name: str, wanted: str) -> bool:
    try:
        return version(name) == wanted
    except PackageNotFoundError:
        return False


PEERS = (
    Peer("benchmarks.peers.graph", ("verifiers==0.4.0", "renderers==0.1.12")),
    Peer("benchmarks.peers.token_client", ("verifiers==0.1.12",)),
)


@attrs.define
class Asked:
    """A peer's process."""

    process: subprocess.Popen[str]
    versions: list[str]

    @classmethod
    def start(cls, peer: Peer) -> Asked:
        """Start it, and wait until it has what it needs."""
        process = subprocess.Popen(  # noqa: S603  # our own module
            [peer.python, "-m", peer.module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return cls(process, _line(process)["versions"])

    def timings(self, history: History, slow: Iterable[str]) -> dict[str, tuple[str | None, Timing]]:
        """Return what each program answered, as a digest, and what it took."""
        assert self.process.stdin is not None  # noqa: S101  # it is a pipe
        with TemporaryDirectory() as folder:
            path = told(history).write(Path(folder))
            self.process.stdin.write(json.dumps([str(path), list(slow)]) + "\n")
            self.process.stdin.flush()
            found = _line(self.process)
        return {name: (answer, Timing(*times)) for name, (answer, *times) in found.items()}

    def stop(self) -> None:
        """Let it end."""
        self.process.communicate()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"{process.args!r} ended with {process.wait()}: run it by hand to see why")
    found: dict[str, Any] = json.loads(line)
    return found


def told(history: History) -> Given:
    """Return a history as peers are told it."""
    voice, asked = history.voice, history.prompt[-1]
    counts, before = list[int](), 0
    for step in history.trajectory:
        counts += _counts(step, before)
        before = step.ids.length
    dummy = [{"role": "assistant", "content": "x"}]
    answers = [
        list(voice.tokenize([*dummy, asked], add_generation_prompt=True)),
        list(voice.tokenize(dummy, add_generation_prompt=False)),
    ]
    return Given(
        turns=history.turns,
        tokens=history.tokens,
        messages=history.messages,
        asked=asked,
        prompt_ids=history.prompt_ids,
        completion_ids=history.completion_ids,
        counts=counts,
        answers=answers,
        folder=None if voice.folder is None else str(voice.folder),
    )


def _counts(step: Step, before: int) -> list[int]:
    return [step.prompt_ids.length - before, step.completion_ids.length]
