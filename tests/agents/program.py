"""An agent program: how it is installed, pointed at the gateway, and what the script makes it do."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from tests.environment import Environment, NodeEnvironment, cache, newer_python

from .engine import CALLS, Call, Script

HERE = Path(__file__).parent
PINS = HERE / "pins"
PROGRAMS = HERE / "programs"
NODE = shutil.which("node") or "node"
NEWER_PYTHON = {"mistral-vibe": "3.12", "openhands": "3.12", "fast-agent": "3.13"}
"""Agents that do not run with the oldest Python of this project."""
NOTES = [f"Note {number}: the river is {10 * number} metres wide.\n" for number in range(1, CALLS + 1)]
TASK = "Read the notes in this folder, one after the other, and say how wide the river is."


def environment(agent: str) -> Environment | NodeEnvironment:
    """Return where an agent is installed, by pip or by npm, as its pins say."""
    folder, pins = cache() / f"agent-{agent}", PINS / f"{agent}.txt"
    if not pins.exists():
        return NodeEnvironment(folder, PINS / f"{agent}.json")
    version = NEWER_PYTHON.get(agent)
    return Environment(folder, pins, newer_python(version) if version else sys.executable)


@attrs.frozen
class Place:
    """Where a program runs.

    Attributes:
        url: The session's base URL, without /v1.
        environment: The folder that the program is installed in.
        home: Its home folder, empty but for what `Program.files` writes.
        work: Its working directory, with the notes.
    """

    url: str
    environment: Path
    home: Path
    work: Path

    def note(self, number: int) -> str:
        """Return the path of a note."""
        return str(self.work / f"note-{number + 1}.txt")


def nothing(_: Place) -> Mapping[str, str]:
    """Return nothing."""
    return {}


@attrs.frozen(kw_only=True)
class Program:
    """A program, or one of the ways to use it.

    Attributes:
        name: Its name in reports.
        agent: The agent that it belongs to: the name of its pins, and in TITO_AGENTS.
        package: The package whose version is reported.
        command: Returns the command.
        settings: Returns environment variables.
        files: Returns texts of files by their paths.
        script: Returns what is sampled.
        rows: How many training rows its conversation makes.
        why: Why these are more than one.
        seconds: How long it may take.
    """

    name: str
    agent: str
    package: str
    command: Callable[[Place], list[str]]
    script: Callable[[Place], Script]
    settings: Callable[[Place], Mapping[str, str]] = nothing
    files: Callable[[Place], Mapping[str, str]] = nothing
    rows: int = 1
    why: str = ""
    seconds: float = 120.0


def calling(call: Callable[[Place, int], Call]) -> Callable[[Place], Script]:
    """Return a script of tool calls that depend on the place."""
    return lambda place: Script.of(lambda number: call(place, number))


def own_command(agent: str, way: str = "") -> Callable[[Place], list[str]]:
    """Return the command of a file in `programs`, which gets the URL, the way to use it, and the task."""
    name = agent.replace("-", "_")
    if in_javascript(agent):
        return lambda place: [NODE, str(place.environment / f"{name}.mjs"), place.url, way, TASK]
    file = PROGRAMS / f"{name}.py"
    # -P: the folder of the file is not on the path, where it would hide the library of its name
    return lambda place: [str(place.environment / "bin" / "python"), "-P", str(file), place.url, way, TASK]


def in_javascript(agent: str) -> bool:
    """Return whether the file of a library's agent is in JavaScript."""
    return (PROGRAMS / f"{agent.replace('-', '_')}.mjs").exists()


def modules(place: Place) -> dict[str, str]:
    """Return all files in JavaScript by their paths beside the libraries: Node looks for these from there."""
    return {str(place.environment / file.name): file.read_text() for file in PROGRAMS.glob("*.mjs")}


def library(agent: str, way: str = "", *, package: str | None = None) -> Program:
    """Return a program that uses a library: a file in `programs` with a tool `read_note`."""
    return Program(
        name=f"{agent} ({way})" if way else agent,
        agent=agent,
        package=package or agent,
        command=own_command(agent, way),
        files=modules if in_javascript(agent) else nothing,
        script=calling(
            lambda place, number: Call("read_note", {"path": place.note(number), "lines": number + 1})
        ),
    )
