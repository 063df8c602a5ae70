"""Run other packages (peers) in processes of their own, each in an environment with pinned versions."""

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
from benchmarks.peers.history_file import HistoryFile
from tito_core import Step

ROOT = Path(__file__).parent.parent
CACHE = Path.home() / ".cache" / "tito"


@attrs.frozen
class Peer:
    """Packages to compare with.

    Attributes:
        module: Module of this project that runs them.
        packages: Requirements with versions, such as `verifiers==0.4.0`.
    """

    module: str
    packages: tuple[str, ...]

    @property
    def python(self) -> Path:
        """The interpreter that has the packages: this one, or that of an environment in the cache."""
        if all(_have(*need.split("==")) for need in self.packages):
            return Path(sys.executable)
        return CACHE / f"peers-{'-'.join(self.packages).replace('==', '-')}" / "bin" / "python"

    @property
    def installed(self) -> bool:
        """Whether the interpreter exists."""
        return self.python.exists()

    def install(self) -> None:
        """Create the environment and install the packages."""
        folder = self.python.parent.parent
        try:
            venv.create(folder, with_pip=True)
            subprocess.run(  # noqa: S603  # only the packages in PEERS
                [self.python, "-m", "pip", "install", "-q", *self.packages], check=True, stdout=sys.stderr
            )
        except BaseException:
            shutil.rmtree(folder)  # `installed` would take a partial environment for a complete one
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
class PeerProcess:
    """A running process that times a peer's programs.

    Attributes:
        process: The process, with pipes for input and output.
        versions: Names and versions of its packages.
    """

    process: subprocess.Popen[str]
    versions: list[str]

    @classmethod
    def start(cls, peer: Peer) -> PeerProcess:
        """Start the process and wait until its imports are done."""
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
        """Return the digest of each program's ids, and its timing. Programs in `slow` are left out."""
        assert self.process.stdin is not None  # noqa: S101  # it is a pipe
        with TemporaryDirectory() as folder:
            path = history_file(history).write(Path(folder))
            self.process.stdin.write(json.dumps([str(path), list(slow)]) + "\n")
            self.process.stdin.flush()
            answer = _line(self.process)
        return {name: (answer, Timing(*times)) for name, (answer, *times) in answer.items()}

    def stop(self) -> None:
        """Close the input, and wait for the process to end."""
        self.process.communicate()


def _line(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None  # noqa: S101  # it is a pipe
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(
            f"{process.args!r} ended with {process.wait()}: run this command in a shell to see the error"
        )
    answer: dict[str, Any] = json.loads(line)
    return answer


def history_file(history: History) -> HistoryFile:
    """Return a history as the file that peers read."""
    renderer, question = history.renderer, history.prompt[-1]
    counts, before = list[int](), 0
    for step in history.trajectory:
        counts += _counts(step, before)
        before = step.ids.length
    dummy = [{"role": "assistant", "content": "x"}]
    answers = [
        list(renderer.tokenize([*dummy, question], add_generation_prompt=True)),
        list(renderer.tokenize(dummy, add_generation_prompt=False)),
    ]
    return HistoryFile(
        turns=history.turns,
        tokens=history.tokens,
        messages=history.messages,
        question=question,
        prompt_ids=history.prompt_ids,
        completion_ids=history.completion_ids,
        counts=counts,
        answers=answers,
        folder=None if renderer.folder is None else str(renderer.folder),
    )


def _counts(step: Step, before: int) -> list[int]:
    return [step.prompt_ids.length - before, step.completion_ids.length]
