"""The agent programs in `catalogue.toml`: how each is pointed at the gateway, and what is sampled in it."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Any

import attrs

from .engine import CALLS, Call, Script, thought, written
from .program import NODE, TASK, Place, Program, library

CATALOGUE: dict[str, list[dict[str, Any]]] = tomllib.loads(
    Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
)
DONE = Call("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})


def filled(value: Any, place: Place, number: int = 0) -> Any:
    """Return a value of the catalogue with the folders, the address and the note in its texts."""
    if isinstance(value, Mapping):
        return {filled(name, place, number): filled(one, place, number) for name, one in value.items()}
    if isinstance(value, list):
        return [filled(one, place, number) for one in value]
    if value == "${lines}":
        return number + 1
    words = {**attrs.asdict(place), "task": TASK, "note": place.note(number)}
    return Template(value).substitute(words) if isinstance(value, str) else value


def _shell_script(place: Place) -> Script:
    """Return a script for an agent that ends with a command."""
    return Script.of(lambda number: Call("bash", {"command": f"cat {place.note(number)}"}), written(DONE))


def _completing_script(place: Place) -> Script:
    """Return a script for an agent that ends with a call of `complete`."""
    return Script.of(
        lambda number: Call("shell", {"command": f"cat {place.note(number)}"}), written(Call("complete", {}))
    )


def _code_script(place: Place) -> Script:
    """Return a script for an agent whose tool calls are code."""

    def turn(number: int) -> str:
        code = f'print(read_note("{place.note(number)}", {number + 1}))'
        if number == CALLS:
            code = 'final_answer("The river is wide.")'
        return f"{thought(number)}Thought: the next note may say more.\n<code>\n{code}\n</code>"

    return Script(turn, lambda text, _: "read_note" in text)


def _final_answer_script(place: Place) -> Script:
    """Return a script for an agent that ends with a call."""
    answer = Call("final_answer", {"answer": "The river is wide."})
    read = library("smolagents").script(place)
    return attrs.evolve(read, turn=lambda number: read.turn(number) if number < CALLS else written(answer))


def _text_script(_: Place) -> Script:
    """Return a script for an agent without tools, which gets one message after another."""
    return Script(lambda number: f"{thought(number)}Note {number + 1} names a width.", lambda *_: True)


def _searching_script(place: Place) -> Script:
    """Return a script of calls that read notes; the third one loads a tool that was not offered."""

    def call(number: int) -> Call:
        if number == 2:
            return Call("ToolSearch", {"query": "select:NotebookEdit", "max_results": 5})
        return Call("Read", {"file_path": place.note(number)})

    return Script.of(call)


SCRIPTS = {
    "code": _code_script,
    "complete": _completing_script,
    "final answer": _final_answer_script,
    "shell": _shell_script,
    "text": _text_script,
    "tool search": _searching_script,
}
"""What is sampled where it is not one call of a tool for each note."""


def _claude(place: Place) -> list[str]:
    """Return Claude Code's command; `claude` itself needs an install script, and none is run."""
    wrapper = place.environment / "node_modules" / "@anthropic-ai" / "claude-code" / "cli-wrapper.cjs"
    return [NODE, str(wrapper), "-p", TASK]


def _opencode(place: Place) -> list[str]:
    """Return OpenCode's command, the program for this machine, likewise."""
    machines = (place.environment / "node_modules").glob("opencode-*-*/bin/opencode")
    return [str(min(machines, key=lambda path: len(str(path)))), "run", "-m", "gateway/any", TASK]


COMMANDS: dict[str, Callable[[Place], list[str]]] = {"claude": _claude, "opencode": _opencode}
"""Commands that depend on the machine."""


def _asked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an entry says of a program beside its name and command."""
    fields = {name: entry[name] for name in ("rows", "why") if name in entry}
    for name in ("settings", "files"):
        if name in entry:
            fields[name] = lambda place, name=name: filled(entry[name], place)
    if "script" in entry:
        fields["script"] = SCRIPTS[entry["script"]]
    elif "tool" in entry:
        fields["script"] = lambda place: Script.of(
            lambda number: Call(entry["tool"], filled(entry["arguments"], place, number))
        )
    return fields


def _program(entry: Mapping[str, Any]) -> Program:
    agent, command = entry["agent"], entry["command"]
    return Program(
        name=entry.get("name", agent),
        agent=agent,
        package=entry.get("package", agent),
        command=COMMANDS[command] if isinstance(command, str) else lambda place: filled(command, place),
        **_asked(entry),
    )


def _libraries(entry: Mapping[str, Any]) -> Iterator[Program]:
    """Yield the ways to use a library."""
    for way in entry.get("ways", [""]):
        made = library(entry["agent"], way, package=entry.get("package"))
        yield attrs.evolve(made, **_asked(entry))


PROGRAMS = (
    *map(_program, CATALOGUE["program"]),
    *(program for entry in CATALOGUE["library"] for program in _libraries(entry)),
)
AGENTS = tuple(sorted({program.agent for program in PROGRAMS}))
