"""Run a program against `tito serve` without a flag, and report what happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import attrs
import httpx2

from tests.io.serve.gateway_process import started
from tito_core.samples import make_rows
from tito_io.embedded import vocabulary
from tito_io.embedded.app import engine_app
from tito_io.serve.metrics import Metrics
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session
from tito_io.serve.sessions import Sessions
from tito_io.serve.stores import open_store

from .engine import ScriptedEngine, scripted
from .loopback import Exchange, Recorder, listening
from .program import NOTES, Place, Program

CLOSED = "http://127.0.0.1:9"
"""The proxy of all requests that do not go to the loopback. No program listens there, so that they fail."""
QUIET = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"), CLOSED),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost"),
    **dict.fromkeys(("DO_NOT_TRACK", "DISABLE_TELEMETRY", "OTEL_SDK_DISABLED"), "1"),
    "HF_HUB_OFFLINE": "1",
    "TERM": "dumb",
    "LANG": "C.UTF-8",
}
WATCHED = Path(__file__).parent.parent / "engines" / "watched.py"
STORE = "sessions.db"
STOP_SECONDS = 5.0
LATE = 124
"""The exit status of a program that had to be ended, as `timeout` has it."""
FAILED = 400


@attrs.frozen(kw_only=True)
class Turn:
    """A stored turn.

    Attributes:
        dialect: The API of its request.
        route: TITO where the prompt went by ids, MITO where as messages.
        refusal: Why it went as messages.
        talks: Whether it belongs to the conversation, and is no call beside it.
    """

    dialect: str
    route: str
    refusal: str | None
    talks: bool


@attrs.frozen(kw_only=True)
class Outcome:
    """What happened while a program ran.

    Attributes:
        program: The program's name.
        status: Its exit status.
        seconds: How long it ran.
        output: What it printed.
        exchanges: All requests to the gateway with their answers.
        renders: The gateway's requests to the engine to tokenize messages or text.
        turns: The stored turns in their order.
        extending: Prompts of the conversation that begin, on the wire, with all ids of the turn before.
        rows: Number of training rows of the conversation.
        beside: Number of rows of calls beside the conversation.
        mislabelled: Names of rows whose label `auxiliary` is not what the script says of their calls.
        sampled: The ids of each turn that the engine sampled, with how often.
        trained: The ids of each turn that trains, with how often.
        warnings: What the gateway logged.
    """

    program: str
    status: int
    seconds: float
    output: str
    exchanges: list[Exchange]
    renders: list[Exchange]
    turns: list[Turn]
    extending: int
    rows: int
    beside: int
    mislabelled: list[str]
    sampled: Counter[tuple[int, ...]]
    trained: Counter[tuple[int, ...]]
    warnings: list[str]

    @property
    def refused(self) -> list[Exchange]:
        """The requests that were answered with an error."""
        return [one for one in self.exchanges if one.status >= FAILED]

    @property
    def by_messages(self) -> list[str]:
        """Why turns of the conversation after the first went as messages."""
        later = [turn for turn in self.turns if turn.talks][1:]
        return [turn.refusal or "no history" for turn in later if turn.route != "TITO"]

    @property
    def drifted(self) -> int:
        """How many sampled turns have other ids than the tokenizer gives for their text."""
        words = vocabulary()
        return sum(
            count for ids, count in self.sampled.items() if words.encode(words.decode(ids)) != list(ids)
        )

    @property
    def first_byte(self) -> float:
        """The most seconds until the first byte of an answer."""
        return max((one.first_byte or 0 for one in self.exchanges), default=0)

    def line(self) -> str:
        """Return a line about it."""
        talking = [turn for turn in self.turns if turn.talks]
        return (
            f"{self.program}: status {self.status}, {len(self.exchanges)} requests, {len(talking)} turns, "
            f"{self.extending} by ids, {len(self.by_messages)} by messages, "
            f"{self.rows} rows and {self.beside} beside, "
            f"{_total(self.sampled)} ids sampled, {_total(self.trained)} trained, {self.seconds:.0f} s"
        )

    def report(self) -> str:
        """Return all that helps to see why it went as it did."""
        talking = [turn.route for turn in self.turns if turn.talks]
        lines = [
            self.program,
            f"status    {self.status} after {self.seconds:.1f} s",
            f"turns     {talking}; by messages: {self.by_messages}",
            f"rows      {self.rows}, and {self.beside} beside; wrong labels: {self.mislabelled}",
            f"ids       {_total(self.sampled)} sampled, {_total(self.trained)} trained",
            f"rendered  {len(self.renders)} times",
            *(
                f"error     {one.status} {one.method} {one.path}: {one.answer[:600]!r}"
                for one in self.refused
            ),
            *(f"warning   {one}" for one in self.warnings),
            f"output    {self.output[-2000:]}",
        ]
        return "\n  ".join(lines)


def _total(turns: Counter[tuple[int, ...]]) -> int:
    return sum(len(ids) * count for ids, count in turns.items())


def run(program: Program, environment: Path, folder: Path, *flags: str) -> Outcome:
    """Run a program in an empty folder, with an engine and a gateway of its own, which may get `flags`."""
    place = _place(environment, folder)
    engine = scripted(program.script(place))
    with ExitStack() as parts:
        upstream = Recorder(parts.enter_context(listening(engine_app(engine))))
        at = parts.enter_context(listening(upstream.app()))
        options = ("--engine", "vllm", "--base-url", at, "--store", f"sqlite:{folder / STORE}")
        gateway = parts.enter_context(started(*options, *flags, complaints=folder / "gateway.log"))
        agent = Recorder(gateway.url)
        url = parts.enter_context(listening(agent.app()))
        name = httpx2.post(f"{gateway.url}/sessions", trust_env=False).json()["session_id"]
        place = attrs.evolve(place, url=f"{url}/sessions/{name}")
        began = time.monotonic()
        status = _exit_status(program, place, folder / "output.log")
        seconds = time.monotonic() - began
        gateway.stop()
    session = anyio.run(_stored, folder / STORE, name)
    turns, talking, mislabelled, trained = _read(session, engine)
    return Outcome(
        program=program.name,
        status=status,
        seconds=seconds,
        output=(folder / "output.log").read_text(errors="replace"),
        exchanges=agent.exchanges,
        renders=[one for one in upstream.exchanges if one.path == "/tokenize"],
        turns=turns,
        extending=engine.extending,
        rows=sum(talking),
        beside=len(talking) - sum(talking),
        mislabelled=mislabelled,
        sampled=Counter(tuple(reply.ids) for _, reply in engine.calls),
        trained=trained,
        warnings=gateway.warnings(),
    )


def _place(environment: Path, folder: Path) -> Place:
    """Make an empty home, and a working directory with the notes."""
    home, work = folder / "home", folder / "work"
    for path in (home, work):
        path.mkdir(parents=True)
    for number, note in enumerate(NOTES, 1):
        (work / f"note-{number}.txt").write_text(note)
    return Place("", environment, home, work)


def _exit_status(program: Program, place: Place, log: Path) -> int:
    """Run a program to its end, or end it; nothing that it started stays."""
    for path, text in program.files(place).items():
        file = Path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    kept = {"PATH": os.environ["PATH"], "HOME": str(place.home), "TMPDIR": str(place.home)}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(WATCHED), str(os.getpid()), *program.command(place)],
            cwd=place.work,
            env={**kept, **QUIET, **program.settings(place)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        return process.wait(program.seconds)
    except subprocess.TimeoutExpired:
        return LATE
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        while left := _at_home(place.home):
            for one in left:
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


def _at_home(home: Path) -> list[int]:
    """Return the processes with a home folder: cline starts one that leaves its group, and stays.

    Elsewhere than on Linux no process is found.
    """
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or belongs to somebody else
            if f"HOME={home}".encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
    return found


async def _stored(path: Path, name: str) -> Session:
    """Return a session as the gateway left it."""
    store = open_store(f"sqlite:{path}", idle_seconds=60, durable=False)
    try:
        async with Sessions(store, GatewayLimits(), Metrics()).using(name) as session:
            return session
    finally:
        await store.aclose()


def _read(
    session: Session, engine: ScriptedEngine
) -> tuple[list[Turn], list[bool], list[str], Counter[tuple[int, ...]]]:
    """Return a session's turns, if each row is of the conversation, wrong labels of rows, and what trains."""
    script = engine.script
    turns = [
        Turn(
            dialect=commit.origin.dialect,
            route=commit.origin.route,
            refusal=commit.origin.refusal,
            talks=script.talks(commit.step.prompt_ids.tolist()),
        )
        for commit in session.commits.values()
    ]
    rows = make_rows(session.forest).rows
    talking = [script.talks(session.commits[row.turns[0].call].step.prompt_ids.tolist()) for row in rows]
    mislabelled = [row.name for row, talks in zip(rows, talking, strict=True) if row.auxiliary is talks]
    trained: Counter[tuple[int, ...]] = Counter()
    for row in rows:
        ids = row.ids.tolist()
        for turn in row.turns:
            mask = row.loss_mask[turn.start : turn.stop]
            kept = [index for index, train in zip(ids[turn.start : turn.stop], mask, strict=True) if train]
            trained[tuple(kept)] += bool(kept)
    return turns, talking, mislabelled, +trained
