"""What a chat template makes of a game: plain turns, or turns whose history is rewritten."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs

from tito_core import Message
from tito_io.families import Family
from tito_io.families.folder import Source

from .game import RULES, TOOL, Guess, called, guessed

HERE = Path(__file__).parent
HEADER, END = "<|im_start|>", "<|im_end|>"


@attrs.frozen(kw_only=True)
class Setting:
    """How the turns of a game are written.

    Attributes:
        name: The setting's name.
        template: File of the chat template.
        turn: How the model is taught to write a turn, of a thought and of a call's arguments.
        role: The role of the tool's answers.
        tools: What the template is given as tools; calls are then parsed out of the text.
        says: What differs, for the page.
    """

    name: str
    template: str
    turn: str
    role: str
    tools: tuple[Mapping[str, Any], ...]
    says: str

    def family(self, family: Family) -> Family:
        """Return a family with the setting's template."""
        text = (HERE / self.template).read_text("utf-8").removesuffix("\n")
        return family.with_templates({"default": Source(text, self.template)})

    def opening(self) -> list[Message]:
        """Return the messages before the first turn."""
        return [{"role": "system", "content": RULES}, {"role": "user", "content": "Begin."}]

    def written(self, guess: Guess, rng: Random) -> str:
        """Return a scripted turn as the model is taught to write it."""
        return self.turn % (guess.thought, guess.arguments(rng))

    def tail(self, said: str) -> str:
        """Return what the template writes after a turn's end token, up to the next turn."""
        return f"\n{HEADER}{self.role}\n{said}{END}\n{HEADER}assistant\n"

    def number(self, message: Message) -> int | None:
        """Return what a sampled message guesses; None where it makes no valid call."""
        if not self.tools:
            return called(str(message.get("content") or ""))
        calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
        return guessed(calls[0]["function"]["arguments"]) if len(calls) == 1 else None

    def answered(self, message: Message, said: str) -> list[Message]:
        """Return the messages that a client adds after a turn: it writes the arguments of calls anew."""
        if not self.tools:
            return [message, {"role": self.role, "content": said}]
        (call,) = message["tool_calls"]
        arguments = json.dumps(json.loads(call["function"]["arguments"]))
        again = {**call, "function": {**call["function"], "arguments": arguments}}
        result: Message = {"role": self.role, "tool_call_id": call["id"], "content": said}
        return [{**message, "tool_calls": [again]}, result]


_CALL = '<tool_call>{"name": "guess", "arguments": %s}</tool_call>'
SETTINGS: Mapping[str, Setting] = {
    one.name: one
    for one in (
        Setting(
            name="plain",
            template="chatml.jinja",
            turn="%s\n" + _CALL,
            role="user",
            tools=(),
            says="ChatML that writes each message as it is; the call is a part of the text",
        ),
        Setting(
            name="rewriting",
            template="rewriting.jinja",
            turn="<think>\n%s\n</think>\n\n" + _CALL.replace(">{", ">\n{").replace("}<", "}\n<"),
            role="tool",
            tools=(TOOL,),
            says="a template that drops earlier reasoning, strips content and writes calls anew",
        ),
    )
}
