"""An agent that goes on, retries, goes back, edits, compacts and delegates, by seeded dice.

Every call of a conversation goes to one file, in the order in which it was made.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Message, Step, Trajectory
from tito_io.client.token_client import TokenClient
from tito_io.engines.protocol import EngineError, OverlongError, UnreachableError
from tito_io.samples.forms.tito import CallFile

from .voice import NAMES, Voice


def _tool(name: str) -> Mapping[str, Any]:
    given = {"query": {"type": "string"}, "limit": {"type": "integer"}}
    schema = {"type": "object", "properties": given, "required": ["query"]}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


TOOLS = tuple(map(_tool, (*NAMES, "get_weather")))
SYSTEM = "You are a coding agent. Use the tools."
ASKED = ("Go on.", "Why?", "  Now fix the other file.", "Is that all?\n", "Run it again, please.", "1 + 1?")
RESULTS = (
    "ok",
    '{"found": ["src/main.py", "src/other.py"], "more": false}',
    "Traceback (most recent call last):\n  File \"main.py\", line 3\nKeyError: 'name'",
    "",
    "naïve café 🙂",
    "def f(x):\n\treturn x  # once\n",
)
ACTS: Mapping[str, float] = {
    "goes on": 0.78,
    "retries": 0.06,
    "goes back": 0.05,
    "edits": 0.05,
    "compacts": 0.02,
    "delegates": 0.02,
    "changes tools": 0.02,
}
"""What an agent does next, and how often."""
CUT = 0.1
"""How many turns have room for a few ids only."""
ROOM = 6_000
"""Ids of a conversation beyond which it is compacted."""


@attrs.define
class Agent:
    """One conversation."""

    client: TokenClient
    voice: Voice
    file: CallFile
    dice: random.Random
    acts: Counter[str] = attrs.field(factory=Counter)
    """What was done, for the report."""
    errors: list[str] = attrs.field(factory=list)
    """What else the engine said to a request than a turn."""
    steps: Trajectory = attrs.field(factory=Trajectory)
    """All calls, whichever branch they are of."""
    tools: Sequence[Mapping[str, Any]] = TOOLS[:2]
    prompt: list[Message] = attrs.field(factory=lambda: _opening("Find the error."))
    last: Step | None = None
    """The turn that the next prompt goes on from."""

    async def run(self, turns: int) -> None:
        """Take so many turns, beside what is retried or delegated."""
        while turns > 0:
            act = "goes on" if self.last is None else self._act()
            self.acts[act] += 1
            turns -= act not in ("retries", "delegates")
            if act == "delegates":
                await self._ask(_opening("Give this conversation a title.", "You write titles."), ())
                continue
            if self.last is not None:
                self.prompt = self._prompt(act, self.last)
            self.last = await self._ask(self.prompt, self.tools) or self.last

    def _act(self) -> str:
        """Return what is done next; a conversation that grows too long is compacted."""
        full = self.last is not None and len(self.last.ids) > ROOM
        return "compacts" if full else self.dice.choices(list(ACTS), list(ACTS.values()))[0]

    def _prompt(self, act: str, last: Step) -> list[Message]:
        """Return the next prompt."""
        if act == "retries":
            return self.prompt
        if act == "compacts":
            return _opening(f"So far: {_told(last)[:200]} Go on from there.")
        if act == "goes back":
            last = self.dice.choice(list(self.steps))
        if act == "changes tools":
            self.tools = TOOLS if len(self.tools) < len(TOOLS) else TOOLS[:2]
        told = [*last.messages, *self._answered(last)]
        return self._edited(told) if act == "edits" else told

    def _answered(self, last: Step) -> list[Message]:
        """Return what the world says to a turn."""
        said = [*last.messages][-1]
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call["id"], "content": self.dice.choice(RESULTS)}
            for call in said.get("tool_calls") or ()
        ]
        speaks = not results or self.dice.random() < CUT
        return [*results, {"role": "user", "content": self.dice.choice(ASKED)}] if speaks else results

    def _edited(self, told: list[Message]) -> list[Message]:
        """Return a conversation as a careless harness keeps it."""
        way = self.dice.choice((_stripped, _respelled, _thoughtless, _shortened))
        return [way(dict(message)) for message in told]

    async def _ask(self, prompt: list[Message], tools: Sequence[Mapping[str, Any]]) -> Step | None:
        """Take a turn and store it; None where the engine gave none. Raises where there is no engine."""
        args = self.voice.args(self.dice, cut=self.dice.random() < CUT)
        try:
            taken = await self.client.turn(self.steps, prompt, tools=tools, sampling=args)
        except OverlongError:
            self.last = None
            self.prompt = _opening("Begin again.")
            return None
        except UnreachableError:
            raise
        except EngineError as error:
            self.errors.append(f"{type(error).__name__}: {error!s:.200}")
            return None
        self.steps = self.steps.append(taken.step)
        self.file.add(taken.turn)
        return taken.step


def _opening(text: str, system: str = SYSTEM) -> list[Message]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def _told(last: Step) -> str:
    return str([*last.messages][-1].get("content") or "nothing")


def _stripped(message: Message) -> Message:
    """Strip what was said."""
    text = message.get("content")
    return {**message, "content": text.strip()} if isinstance(text, str) else message


def _thoughtless(message: Message) -> Message:
    """Forget thoughts."""
    return {name: value for name, value in message.items() if name not in ("reasoning", "reasoning_content")}


def _shortened(message: Message) -> Message:
    """Keep the beginning of long results."""
    long = message["role"] == "tool" and len(message["content"]) > len("ok")
    return {**message, "content": message["content"][:20] + "..."} if long else message


def _respelled(message: Message) -> Message:
    """Write the arguments of calls anew."""
    calls = [
        {**call, "function": {**call["function"], "arguments": _again(call["function"]["arguments"])}}
        for call in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def _again(arguments: Any) -> Any:
    try:
        return json.dumps(json.loads(arguments), separators=(",", ":"), sort_keys=True)
    except (TypeError, ValueError):
        return arguments
