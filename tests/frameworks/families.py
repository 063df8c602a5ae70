"""Real chat templates under an agent SDK: what the SDK makes of a turn changes no id of a later prompt.

Needs `TITO_FAMILIES`, a folder of model folders.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import anyio
import attrs
import pytest

from tests.model_folders import FAMILIES, NAMES
from tito_core import Message, OddStop, Policy, Trajectory
from tito_io.client import TokenClient
from tito_io.engines.protocol import (
    Delta,
    Engine,
    Rendering,
    Reply,
    SampleRequest,
    Usage,
)
from tito_io.families import Family
from tito_io.integrations.model_calls import ModelCalls

EVERY_FAMILY = pytest.mark.parametrize("name", NAMES)

CALL_STOPS = ("<|call|>", "<|observation|>")
"""What some models sample after tool calls, in place of the end of a turn."""
SINGLE = frozenset(("llama3",))
"""Models whose template takes one tool call a turn."""
ROME, KOELN = {"city": "Rome", "exact": False}, {"city": "Köln", "exact": True}
TURNS: tuple[tuple[dict[str, Any], tuple[tuple[str, dict[str, Any]], ...]], ...] = (
    ({"content": "", "reasoning": "Hm."}, (("hour", KOELN), ("weather", {"city": "Köln"}))),
    ({"content": "Let me look."}, (("weather", {"city": "Rome", "days": 2}),)),
    ({"content": "", "reasoning": "So."}, (("hour", ROME),)),
    ({"content": ""}, (("hour", KOELN),)),
    ({"content": "It is sunny.", "reasoning": "Done."}, ()),
    ({"content": "Yes, it is."}, ()),
)
"""Six turns in two runs of an agent: what is said, and the calls."""


@attrs.define
class FamilyEngine(Engine):
    """Renders with a model folder; its turns have three ids that no template writes, and a stop."""

    family: Family
    turns: list[Message]
    name: str = "family"
    keeps_ids: bool = False
    prompts: list[list[int]] = attrs.field(factory=list)
    tools: tuple[Any, ...] = ()

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages, with arguments as objects: so servers pass them to templates."""
        tokenize = self.family.tokenize_fn(tools=list(rendering.tools) or None, **rendering.template_args)
        return tokenize([_parsed(one) for one in messages], add_generation_prompt=add_generation_prompt)

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample the next turn; messages are rendered first."""
        rendering, ids = request.rendered_with, request.ids
        if ids is None:
            ids = await self.render(request.messages or (), rendering, add_generation_prompt=True)
        self.tools = rendering.tools
        self.prompts.append(list(ids))
        message = self.turns.pop(0)
        completion = (40 + len(self.prompts), 41, 42, self._stop(calls=bool(message.get("tool_calls"))))
        if request.watch is not None:
            await request.watch(Delta(ids=completion))
        return Reply(
            prompt_ids=tuple(ids),
            completion_ids=completion,
            logprobs=(-1.0,) * len(completion),
            message=message,
            text="",
            finish_reason="tool_calls" if message.get("tool_calls") else "stop",
            usage=Usage(prompt_tokens=len(ids), completion_tokens=len(completion)),
            raw={},
        )

    def _stop(self, *, calls: bool) -> int:
        stops = {self.family.tokenizer.id_to_token(one): one for one in self.family.stop_ids}
        after_calls = [stops[token] for token in CALL_STOPS if token in stops and calls]
        return next(iter(after_calls), self.family.stop_ids[0])


def _parsed(message: Message) -> Message:
    calls = [
        {**one, "function": {**one["function"], "arguments": _object(one["function"]["arguments"])}}
        for one in message.get("tool_calls") or ()
    ]
    return {**message, "tool_calls": calls} if calls else message


def _object(arguments: Any) -> Any:
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def messages(name: str) -> list[Message]:
    """Return the assistant messages of the six turns."""
    found: list[Message] = []
    for place, (said, calls) in enumerate(TURNS):
        chosen = calls[: 1 if name in SINGLE else None]
        called = [
            {
                "id": f"call{place:03d}{at:02d}",  # Mistral's template wants nine letters and digits
                "type": "function",
                "function": {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)},
            }
            for at, (tool, arguments) in enumerate(chosen)
        ]
        found.append({"role": "assistant", **said, **({"tool_calls": called} if called else {})})
    return found


def engine(name: str) -> FamilyEngine:
    """Return an engine of a family."""
    return FamilyEngine(Family.load(FAMILIES / name), messages(name))


def client(sampler: FamilyEngine) -> TokenClient:
    """Return a client of it."""
    return TokenClient(sampler, Policy(odd_stop=OddStop.KEEP))


def assert_as_without_sdk(name: str, calls: ModelCalls, sampler: FamilyEngine) -> None:
    """Assert that the same conversation with the messages as they were sampled has the same prompts."""
    assert calls.calls
    again = FamilyEngine(sampler.family, messages(name))
    plain, steps = client(again), Trajectory()

    async def replay() -> None:
        nonlocal steps
        for one in calls.calls:
            turns = iter(messages(name))
            prompt = [next(turns) if said["role"] == "assistant" else said for said in one.step.prompt]
            steps = steps.append((await plain.turn(steps, prompt, tools=sampler.tools)).step)

    anyio.run(replay)
    assert again.prompts == sampler.prompts[: len(again.prompts)]
    assert plain.counts.routes == calls.client.counts.routes
    assert plain.counts.refusals == calls.client.counts.refusals
