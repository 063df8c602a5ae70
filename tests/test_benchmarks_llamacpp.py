"""The benchmark of llama.cpp's prefill counts what it says; `tests/engines/test_llamacpp.py` runs it."""

from __future__ import annotations

from io import StringIO
from typing import Any

import anyio
import attrs
from rich.console import Console

from benchmarks.llamacpp import Results, Taken, TurnCounts, as_message, converse, print_results, sums

CALL = '<tool_call> {"name" : "get_weather", "arguments": { "city":\n"Ulm" } }</tool_call>'


@attrs.define
class Scripted:
    """Turns of fixed counts; the second one finds only 12 ids of the 19 that it could."""

    seen: list[list[str]] = attrs.field(factory=list)

    async def turn(self, messages: list[dict[str, Any]], seed: int, *, call: bool) -> Taken:
        self.seen.append([message["role"] for message in messages])
        counts = [(10, 10, 0), (25, 5, 12), (33, 5, 29)][seed]
        return Taken(*counts, as_message(CALL if call else "hi", f"call-{seed}"))


def test_a_turn_is_compared_with_what_was_evaluated_before_it() -> None:
    way = Scripted()
    turns = anyio.run(converse, way, 3, lambda: None)
    assert turns == [
        TurnCounts(10, 10, 10, drifted=False),
        TurnCounts(25, 6, 13, drifted=True),
        TurnCounts(33, 4, 4, drifted=False),
    ]
    assert way.seen[1:] == [
        ["user", "assistant", "tool"],
        ["user", "assistant", "tool", "assistant", "user"],
    ]
    assert sums(turns) == {
        "turns": 3,
        "drifted": 1,
        "prompt": 68,
        "new": 20,
        "evaluated": 27,
        "above new": 1,
    }
    console = Console(record=True, width=120, file=StringIO())
    print_results(console, Results({"attention": {"ids": turns}}))
    assert console.export_text().split()[-8:] == ["attention", "ids", "3", "1", "68", "20", "27", "1"]


def test_a_call_keeps_the_text_of_its_arguments() -> None:
    (call,) = as_message(CALL, "c")["tool_calls"]
    assert call["function"] == {"name": "get_weather", "arguments": '{ "city":\n"Ulm" }'}
    assert as_message("<tool_call> no", "c") == {"role": "assistant", "content": "<tool_call> no"}
