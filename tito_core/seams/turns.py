"""The turns that ids may end with if the turn is unknown: one of each kind that templates distinguish."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import Any

from ..normalization.canonical import REASONING
from .turn import Environment

Plain = dict[str, Any]
NAMES = ("find", "get_weather")
"""Names of a called tool where the result does not tell it."""
OTHER_IDS: tuple[Plain, ...] = ({"id": "z0y1x2w3v"}, {"id": None}, {})
"""What calls may have in place of the ids that are invented where results have none."""
THOUGHT = dict.fromkeys(REASONING, "Add them.")


def possible_turns(environment: Environment) -> list[tuple[Plain, tuple[Plain, ...]]]:
    """Return turns that `environment` may follow, each with others that have their text in the same place.

    Tool results right after the turn answer its calls. Without any there, it may have called or not.

    >>> (turn, others), = possible_turns(({"role": "tool", "tool_call_id": "c", "content": "7"},))
    >>> [call["id"] for call in turn["tool_calls"]], len(others)
    (['c'], 6)
    >>> [turn.get("content") for turn, _ in possible_turns(({"role": "user", "content": "hi"},))]
    ['Seven.', '']
    """
    results = [m for m in takewhile(lambda m: m["role"] != "assistant", environment) if m["role"] == "tool"]
    if results and environment[0]["role"] == "tool":
        return [_calling(results)]
    # Qwen3 drops a thought where a user follows.
    plain = {"role": "assistant", "content": "Seven."}
    return [(plain, ({**plain, **THOUGHT},)), _calling(results or [{}])]


def _calling(results: list[Plain]) -> tuple[Plain, tuple[Plain, ...]]:
    """Return a turn whose calls have `results`, and others that differ in each respect, and in all."""
    calls, renamed = (_calls(results, name) for name in NAMES)
    more = _calls([{"tool_call_id": "z9y8x7w6v"}], NAMES[0])
    turn = {"role": "assistant", "content": "", "tool_calls": calls}
    talking = {**turn, "content": "Let me see."}
    return turn, (
        talking,
        {**turn, **THOUGHT},
        {**turn, "tool_calls": renamed},
        {**turn, "tool_calls": [*more, *calls]},
        {**turn, "tool_calls": calls[::-1]},
        {**talking, **THOUGHT, "tool_calls": [*more, *renamed]},
        *({**turn, "tool_calls": renumbered} for renumbered in _with_other_ids(results, calls)),
    )


def _with_other_ids(results: list[Plain], calls: list[Plain]) -> Iterator[list[Plain]]:
    """Yield the calls with other ids, or none, where a result has no id; its call may have any."""
    # Kimi-K2 and gpt-oss name a result by the call that has its id.
    if any(result.get("tool_call_id") is None for result in results if result):
        bare = [{name: value for name, value in call.items() if name != "id"} for call in calls]
        yield from ([{**given, **call} for call in bare] for given in OTHER_IDS)


def _calls(results: list[Plain], name: str) -> list[Plain]:
    return [
        {
            "id": result.get("tool_call_id", f"call{place}abcd"),
            "type": "function",
            "function": {"name": result.get("name") or name, "arguments": '{"value": "x"}'},
        }
        for place, result in enumerate(results)
    ]
