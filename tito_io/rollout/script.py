"""What the world says in a rollout: the lines that an agent's environment answers with."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import orjson

from tito_core import InputError, Message

KEYS = frozenset(("user", "tool", "system", "tools"))
HEAD = frozenset(("system", "tools"))
KNOWN = ", ".join(sorted(KEYS))


@attrs.frozen
class ScriptLine:
    """What the world says at one turn."""

    user: str
    """Said by the user: always where there is no `tool`, else where the model called no tool."""
    tool: str | None = None
    """The result of each tool that the model called."""


@attrs.frozen
class Script:
    """A system text, tools, and lines, which are said over and over for as long as a rollout lasts."""

    lines: tuple[ScriptLine, ...]
    system: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()

    def opening(self) -> list[Message]:
        """Return the messages of the first prompt."""
        system: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": self.lines[0].user}]

    def reply_to(self, turn: int, message: Message) -> list[Message]:
        """Return what the world says after the model's `turn`-th message (from 1).

        Every tool call gets a result, `done` where none was scripted, and then the user speaks too, as where
        nothing was called.
        """
        line = self.lines[turn % len(self.lines)]
        said = "done" if line.tool is None else line.tool
        results = [_result(call, said) for call in message.get("tool_calls") or ()]
        speaks = not results or line.tool is None
        return [*results, {"role": "user", "content": line.user}] if speaks else results


def _result(call: Mapping[str, Any], text: str) -> Message:
    return {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": text}


def default_script() -> Script:
    """Return the script that comes with the package."""
    return parse(
        files(__package__).joinpath("script.jsonl").read_bytes().splitlines(), "the default_script script"
    )


def load(path: Path) -> Script:
    """Read a script, past a byte order mark; raises `InputError` naming the file and line that is wrong."""
    try:
        return parse(path.read_bytes().removeprefix(BOM_UTF8).splitlines(), str(path))
    except OSError as error:
        raise InputError(f"cannot read the script {path}: {error.strerror}") from error


def parse(lines: Iterable[bytes], name: str) -> Script:
    """Read JSON lines: objects with a `user` and maybe a `tool` text.

    The first may have `system` and `tools`, beside what it says or alone.
    """
    objects = {n: _object(line, f"{name}, line {n}") for n, line in enumerate(lines, 1) if line.strip()}
    first, head = next(iter(objects.items()), (0, {}))
    said = [
        _said(data, f"{name}, line {n}", first=n == first)
        for n, data in objects.items()
        if n != first or data.keys() & {"user", "tool"}
    ]
    if not said:
        raise InputError(f'{name} says nothing: give lines such as {{"user": "Hello."}}')
    return Script(tuple(said), head.get("system"), tuple(head.get("tools") or ()))


def _said(data: Mapping[str, Any], where: str, *, first: bool) -> ScriptLine:
    """Return what a line says; nothing is made up where it has no words, and nothing that it has left out."""
    late = sorted(data.keys() & HEAD)
    if late and not first:
        raise InputError(f"{where}: {late[0]} is for the first line: it is said once, at the beginning")
    if not data.get("user"):
        tool = "; `tool` is heard only where the model called one" if "tool" in data else ""
        raise InputError(f"{where}: give a `user` text that is not empty{tool}")
    return ScriptLine(data["user"], data.get("tool"))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:  # its own line is that of the line
        raise InputError(f"{where}, column {error.colno}: not JSON: {error.msg}") from None
    if not isinstance(data, dict) or not data or data.keys() - KEYS:
        wrong = f", not {', '.join(sorted(data.keys() - KEYS))}" if isinstance(data, dict) else ""
        raise InputError(
            f'{where}: give an object such as {{"user": "Hello."}}, with keys among {KNOWN}{wrong}'
        )
    for key in ("user", "tool", "system"):
        if not isinstance(data.get(key), str | None):
            raise InputError(f"{where}: {key} must be a string")
    if not _is_tools(data.get("tools")):
        raise InputError(f"{where}: tools must be a list of objects")
    return data


def _is_tools(tools: object) -> bool:
    return tools is None or (isinstance(tools, Sequence) and all(isinstance(tool, dict) for tool in tools))
