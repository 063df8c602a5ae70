"""Constraints that real engines are asked to keep, and what a random model needs to end a turn under them."""

from __future__ import annotations

from typing import Any

from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Rendering, Reply, Sampling
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
