"""Constraints that real engines are asked to keep, and what a random model needs to end a turn under them."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator

from tests.engines.talk import HELLO
from tito_io.client.token_client import TokenClient
from tito_io.client.turn import Route
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Engine, Rendering, Reply, Sampling
from tito_io.families.family import Family

DAY = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["unit", "days"],
    "additionalProperties": False,
}
TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": "Weather.", "parameters": DAY}}
    for name in ("look", "listen")
)
TOOLED = Rendering(tools=TOOLS)


def sampling(family: Family, constraint: Constraint, seed: int, **tags: float) -> Sampling:
    """Return parameters with which a random model writes neither white space nor reasoning for ever."""
    blank = [one for one in range(family.vocab_size) if not family.decode([one]).strip(" \n\t\r")]
    bias = {str(one): -100.0 for one in (*blank, family.tokenizer.token_to_id("<think>"))}
    bias |= {str(family.tokenizer.token_to_id(f"<{tag}>")): value for tag, value in tags.items()}
    return Sampling(
        max_tokens=400, temperature=1.0, seed=seed, constraint=constraint, extra={"logit_bias": bias}
    )


def calls(reply: Reply) -> list[dict[str, Any]]:
    """Return the functions that a turn calls."""
    return [call["function"] for call in (reply.message or {}).get("tool_calls") or ()]


async def sampled(
    engine: Engine, family: Family, asked: Sampling, rendering: Rendering, *, by_ids: bool, **more: Any
) -> Reply:
    """Return a turn after `HELLO`, which goes by messages or by ids."""
    if not by_ids:
        return await engine.from_messages(HELLO, rendering, asked, **more)
    ids = family.ids(HELLO, tools=rendering.tools or None, add_generation_prompt=True)
    return await engine.from_ids(ids, asked, rendering, **more)


def require_day(text: str) -> None:
    """Raise unless a text is JSON of the schema `DAY`."""
    Draft202012Validator(DAY).validate(json.loads(text))


def require_text(reply: Reply) -> None:
    """Raise unless the content of a finished turn keeps to the schema `DAY`."""
    assert reply.finish_reason == "stop", reply.text
    require_day((reply.message or {})["content"])


def require_call(reply: Reply, must_call: tuple[str, ...], tag: int) -> None:
    """Raise unless a turn calls one of the tools, once, with arguments that keep to the schema `DAY`."""
    [called] = calls(reply)
    assert called["name"] in (must_call or ("look", "listen"))
    require_day(called["arguments"])
    assert (reply.finish_reason, list(reply.completion_ids).count(tag)) == ("tool_calls", 1)


async def continue_forced_turns(engine: Engine, family: Family) -> None:
    """Take three turns that must call a tool; raise unless each later one goes by ids."""
    bias = sampling(family, Constraint(), 0).extra
    forced = {"tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 400, "seed": 3, **bias}
    client = TokenClient(engine)
    prompt: list[Any] = list(HELLO)
    steps: list[Any] = []
    for number in range(3):
        made = await client.turn(steps, prompt, tools=TOOLS, sampling=forced)
        assert made.turn.route is (Route.TITO if number else Route.MITO)
        steps.append(made.step)
        [call] = made.message["tool_calls"]
        prompt += [made.message, {"role": "tool", "tool_call_id": call["id"], "content": "sunny"}]
    assert steps[2].prompt_ids.starts_with(steps[1].ids)
