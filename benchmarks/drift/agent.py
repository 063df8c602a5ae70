"""A seeded agent that goes on, retries, goes back, edits, compacts and delegates.

All calls of a conversation are written to one file, in their order.
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

from .sampling import NAMES, SamplingStyle


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
"""What an agent does next, and how often. The weights sum to about 1."""
CUT = 0.1
"""Share of the turns whose answer is cut after a few ids."""
ROOM = 6_000
"""A conversation with more ids is compacted."""


@attrs.define
class Agent:
    """One conversation.

    Attributes:
        client: Client of the engine.
        style: Sampling arguments.
        file: File of the calls.
        rng: Source of all choices.
        acts: How often the agent did what.
        errors: Errors of the engine.
        steps: All calls on all branches.
        tools: Tools of the next call.
        prompt: Messages of the next call.
        last: The step that the next prompt continues; None at a start.
    """

    client: TokenClient
    style: SamplingStyle
    file: CallFile
    rng: random.Random
    acts: Counter[str] = attrs.field(factory=Counter)
    errors: list[str] = attrs.field(factory=list)
    steps: Trajectory = attrs.field(factory=Trajectory)
    tools: Sequence[Mapping[str, Any]] = TOOLS[:2]
    prompt: list[Message] = attrs.field(factory=lambda: _opening("Find the error."))
    last: Step | None = None

    async def run(self, turns: int) -> None:
        """Take `turns` turns; retried and delegated calls come on top."""
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
        """Draw what to do next; a conversation that is too long is compacted."""
        full = self.last is not None and len(self.last.ids) > ROOM
        return "compacts" if full else self.rng.choices(list(ACTS), list(ACTS.values()))[0]

    def _prompt(self, act: str, last: Step) -> list[Message]:
        """Return the next prompt for an act."""
        if act == "retries":
            return self.prompt
        if act == "compacts":
            return _opening(f"So far: {_last_text(last)[:200]} Go on from there.")
        if act == "goes back":
            last = self.rng.choice(list(self.steps))
        if act == "changes tools":
            self.tools = TOOLS if len(self.tools) < len(TOOLS) else TOOLS[:2]
        description = [*last.messages, *self._environment(last)]
        return self._edited_history(description) if act == "edits" else description

    def _environment(self, last: Step) -> list[Message]:
        """Draw the messages after a turn: tool results, a user message, or both."""
        message = [*last.messages][-1]
        results: list[Message] = [
            {"role": "tool", "tool_call_id": call["id"], "content": self.rng.choice(RESULTS)}
            for call in message.get("tool_calls") or ()
        ]
        speaks = not results or self.rng.random() < CUT
        return [*results, {"role": "user", "content": self.rng.choice(ASKED)}] if speaks else results

    def _edited_history(self, description: list[Message]) -> list[Message]:
        """Return a history with one kind of edit, as some agent harnesses make it."""
        way = self.rng.choice((_stripped, _with_rewritten_arguments, _without_reasoning, _shortened))
        return [way(dict(message)) for message in description]

    async def _ask(self, prompt: list[Message], tools: Sequence[Mapping[str, Any]]) -> Step | None:
        """Take a turn and store it; None if the engine refused. `UnreachableError` ends the run."""
        args = self.style.args(self.rng, cut=self.rng.random() < CUT)
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


def _last_text(last: Step) -> str:
    return str([*last.messages][-1].get("content") or "nothing")


def _stripped(message: Message) -> Message:
    """Strip whitespace from the content."""
    text = message.get("content")
    return {**message, "content": text.strip()} if isinstance(text, str) else message


def _without_reasoning(message: Message) -> Message:
    """Drop the reasoning."""
    return {name: value for name, value in message.items() if name not in ("reasoning", "reasoning_content")}


def _shortened(message: Message) -> Message:
    """Truncate long tool results."""
    long = message["role"] == "tool" and len(message["content"]) > len("ok")
    return {**message, "content": message["content"][:20] + "..."} if long else message


def _with_rewritten_arguments(message: Message) -> Message:
    """Serialize the arguments of tool calls again."""
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
