"""A vLLM that follows a script: it samples tool calls, in ids that no tokenizer gives for their text.

The script reads the prompt's own text and keeps no count of requests. So it answers the same however a prompt
is sent, and whatever else a program asks for beside its conversation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise, takewhile
from typing import Any, NamedTuple

import attrs

from tito_io.embedded import TIDY, Generation, Sampler, SamplingSettings, family, vocabulary
from tito_io.embedded.engine import EmbeddedEngine, PromptReplies
from tito_io.embedded.generation import drifted
from tito_io.embedded.reply import read_prompt
from tito_io.embedded.rng import Rng
from tito_io.embedded.vocabulary import END_OF_TURN, START_OF_TURN

CALLS = 8
"""How many turns of a conversation call a tool, before one that answers."""
CONTEXT = 1_000_000
"""The embedded vocabulary is small: an agent's prompt has several times the ids that a real model needs."""
ASSISTANT = f"{START_OF_TURN}assistant\n"
PARALLEL = 3
"""The turn that calls two tools, without reasoning."""
SAID = {1: "Let me look.\n\n", 4: "Let me look.", 6: "  And the next:  \n\n"}
"""What turns say before they call a tool."""
LAST = "I have read the notes. The river is wide."
TITLE = '{"title": "Read the notes", "isNewTopic": true}'
"""What a request beside the conversation is answered with; titles are asked for as text and as JSON."""


Tools = Mapping[str, Mapping[str, Any]]
"""The JSON schemas of tools' arguments by the tools' names."""


class Call(NamedTuple):
    """A tool call of the script."""

    tool: str
    arguments: Mapping[str, Any]


def thought(number: int) -> str:
    """Return a turn's reasoning as models sample it, with line breaks that clients strip."""
    return f"<think>\nStep {number + 1}: the next note may say more.\n</think>\n\n"


def written(call: Call) -> str:
    """Return a tool call as a model samples it, spaced otherwise than any template would."""
    arguments = json.dumps(call.arguments, separators=(" ,", " : "))
    return f'<tool_call>\n{{"name":"{call.tool}", "arguments":{arguments}}}\n</tool_call>'


def fits(call: Call, tools: Tools) -> bool:
    """Return whether a tool is declared, and takes the call's arguments and needs no others."""
    schema = tools.get(call.tool)
    if schema is None:
        return False
    given = set(call.arguments)
    return set(schema.get("required") or ()) <= given <= set(schema.get("properties") or ())


@attrs.frozen
class Script:
    """What is sampled after a prompt.

    Attributes:
        turn: Returns the text of a conversation's turn, from its number.
        begins: Returns whether a prompt belongs to the conversation, from its text and its tools.
    """

    turn: Callable[[int], str]
    begins: Callable[[str, Tools], bool]

    @classmethod
    def of(cls, call: Callable[[int], Call], last: str = LAST) -> Script:
        """Return a script of tool calls and a last turn, for prompts with tools that take these calls."""
        calls = [call(number) for number in range(CALLS)]

        def turn(number: int) -> str:
            if number >= CALLS:
                return thought(number) + last
            if number == PARALLEL:
                return "\n".join(map(written, calls[number : number + 2]))
            return thought(number) + SAID.get(number, "") + written(calls[number])

        return cls(turn, lambda _, tools: all(fits(one, tools) for one in calls))

    def answer(self, prompt: Sequence[int]) -> str:
        """Return the text that is sampled after a prompt."""
        text = vocabulary().decode(list(prompt))
        if not self.talks(prompt):
            return f"<think>\n\n</think>\n\n{TITLE}"
        return self.turn(text.count(ASSISTANT) - 1)

    def talks(self, prompt: Sequence[int]) -> bool:
        """Return whether a prompt belongs to the conversation."""
        text = vocabulary().decode(list(prompt))
        return self.begins(text, {one.name: one.schema for one in read_prompt(prompt, vocabulary()).tools})


@attrs.frozen
class ScriptedSampler(Sampler):
    """Samples what a script says."""

    script: Script = attrs.field(kw_only=True)

    def ids(
        self, prompt: Sequence[int], *, seed: int | None = None, draw: int = 0, **demanded: Any
    ) -> Iterator[int]:
        """Yield the ids of the script's answer and their end; what else demands a form is drawn by it."""
        words = vocabulary()
        end = words.id(END_OF_TURN)
        ids = words.encode(self.script.answer(prompt))
        if any(one is not None for one in demanded.values()) and not self.script.talks(prompt):
            drawn = super().ids(prompt, seed=seed, draw=draw, **demanded)
            ids = list(takewhile(lambda index: index != end, drawn))
        yield from drifted(ids, Rng(len(prompt), draw), words)
        yield end


@attrs.frozen(eq=False, kw_only=True)
class ScriptedEngine(EmbeddedEngine):
    """Remembers what it sampled, each reply with the ids of its prompt as they came."""

    script: Script
    calls: list[tuple[list[int], Generation]] = attrs.field(factory=list)

    def run(self, prompt: Sequence[int], sampling: SamplingSettings, count: int = 1) -> PromptReplies:
        """Sample replies to a prompt."""
        found = super().run(prompt, sampling, count)
        self.calls.extend((list(prompt), reply) for reply in found.replies)
        return found

    @property
    def extending(self) -> int:
        """How many prompts of the conversation begin with the prompt and reply of the turn before."""
        talking = [(prompt, reply) for prompt, reply in self.calls if self.script.talks(prompt)]
        return sum(
            later[: len(prompt) + len(reply.ids)] == [*prompt, *reply.ids]
            for (prompt, reply), (later, _) in pairwise(talking)
        )


def scripted(script: Script) -> ScriptedEngine:
    """Return an engine that follows a script."""
    sampler = ScriptedSampler(0, TIDY, script=script)
    return ScriptedEngine(family=family(), sampler=sampler, script=script, max_model_len=CONTEXT)
