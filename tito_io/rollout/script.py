"""The script of a rollout: what the user and the tools answer."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import orjson

from tito_core import InputError, Message
from tito_io.fields import utf8_fault

KEYS = frozenset(("user", "tool", "system", "tools"))


@attrs.frozen
class ScriptLine:
    """The messages after one turn.

    Attributes:
        user: The user's text. It is sent when there is no `tool`, or when the model called no tool.
        tool: The result of each tool call.
    """

    user: str
    tool: str | None = None


@attrs.frozen
class Script:
    """A system prompt, tools, and lines, which are repeated for as long as a rollout lasts.

    Attributes:
        lines: What the user and the tools answer, a line for each turn.
        system: The system prompt.
        tools: The tools that the chat template renders, as OpenAI's API takes them.
    """

    lines: tuple[ScriptLine, ...]
    system: str | None = None
    tools: tuple[Mapping[str, Any], ...] = ()

    def opening(self) -> list[Message]:
        """Return the messages of the first prompt."""
        system: list[Message] = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*system, {"role": "user", "content": self.lines[0].user}]

    def reply_to(self, turn: int, message: Message) -> list[Message]:
        """Return the messages after the model's `turn`-th `message`, counted from 1.

        Every tool call gets a result. Without `tool` the result is `done`, and the user's text follows.
        """
        line = self.lines[turn % len(self.lines)]
        text = "done" if line.tool is None else line.tool
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": text}
            for call in message.get("tool_calls") or ()
        ]
        user: Message = {"role": "user", "content": line.user}
        return results if results and line.tool is not None else [*results, user]


def default_script() -> Script:
    """Return the script that comes with the package."""
    return parse(files(__package__).joinpath("script.jsonl").read_bytes().splitlines(), "the default script")


def load(path: Path) -> Script:
    """Read a script at `path`; raises `InputError` naming the file and the line that is wrong."""
    try:
        return parse(path.read_bytes().removeprefix(BOM_UTF8).splitlines(), str(path))
    except OSError as error:
        raise InputError(f"cannot read the script {path}: {error.strerror}") from error


def parse(lines: Iterable[bytes], name: str) -> Script:
    """Parse JSON lines: objects with a `user` text and perhaps a `tool` text.

    The first object may have `system` and `tools`, beside its texts or alone. Errors call the file `name`.
    """
    objects = {n: _object(line, f"{name}, line {n}") for n, line in enumerate(lines, 1) if line.strip()}
    first, head = next(iter(objects.items()), (0, {}))
    parsed = [
        _line(data, f"{name}, line {n}", first=n == first)
        for n, data in objects.items()
        if n != first or data.keys() & {"user", "tool"}
    ]
    if not parsed:
        raise InputError(f'{name} has no user texts: give lines such as {{"user": "Hello."}}')
    return Script(tuple(parsed), head.get("system"), tuple(head.get("tools") or ()))


def _line(data: Mapping[str, Any], where: str, *, first: bool) -> ScriptLine:
    late = sorted(data.keys() & {"system", "tools"})
    if late and not first:
        raise InputError(f"{where}: {late[0]} belongs to the first line, which is rendered first and once")
    if not data.get("user"):
        tool = "; a `tool` text is used only where the model called a tool" if "tool" in data else ""
        raise InputError(f"{where}: give a `user` text that is not empty{tool}")
    return ScriptLine(data["user"], data.get("tool"))


def _object(line: bytes, where: str) -> dict[str, Any]:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:  # its own line number counts from the beginning of this line
        fault = utf8_fault(line)
        text = f"{where}: {fault}" if fault else f"{where}, column {error.colno}: not JSON: {error.msg}"
        raise InputError(text) from None
    if not isinstance(data, dict) or not data or data.keys() - KEYS:
        wrong = f", not {', '.join(sorted(data.keys() - KEYS))}" if isinstance(data, dict) else ""
        known = ", ".join(sorted(KEYS))
        raise InputError(
            f'{where}: give an object such as {{"user": "Hello."}}, with keys among {known}{wrong}'
        )
    for key in ("user", "tool", "system"):
        if not isinstance(data.get(key), str | None):
            raise InputError(f"{where}: {key} must be a string")
    tools = data.get("tools") or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise InputError(f"{where}: tools must be a list of objects")
    return data
