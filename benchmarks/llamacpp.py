"""Measure what a real llama.cpp evaluates of its prompts, by ids and by messages.

python -m benchmarks.llamacpp [--turns 50] [--json]

A conversation with tools: every other turn calls one. By ids, tito keeps what was sampled. By messages, the
server renders them (`/apply-template`) and tokenizes the text, as its chat route does; that route cannot
make a random model call a tool. `new` counts what a turn adds to the ids of the turn before, and the last id
of that turn, which the server has sampled and never evaluated. `evaluated` is the server's own count
(`timings.prompt_n`). A turn has drifted where the server found less of the turn before in its cache than it
had evaluated. `above new` counts the turns that evaluated more than was new.

The models are small and random: one with attention, and a hybrid one, whose memory cannot be cut. The random
text drifts far more often than a real model's; what a drifted turn costs is the server's own doing. Servers
are started and stopped here, with one slot of 8,192 ids.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import anyio
import attrs
import click
import httpx2
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.command import interruptible
from tito_core import Trajectory
from tito_io.cli.options import WholeRange
from tito_io.client.driver import rendered_by
from tito_io.client.token_client import TokenClient
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.llamacpp.requests import NEUTRAL
from tito_io.families.family import Family

MODELS: Mapping[str, tuple[str, ...]] = {
    "attention": ("qwen3",),
    "hybrid": ("lfm2",),
    "hybrid, no checkpoints": ("lfm2", "n_ctx_checkpoints=0"),
}
"""The architecture of each model, and settings of its server. Checkpoints are copies of the memory as it was
at a few places of a prompt; the server keeps some by default."""
TURNS, SAMPLED, CALLED = 50, 30, 400
SETTINGS = ("n_parallel=1", "n_ctx=8192")
CITIES = ("Ulm", "Bern", "Kiel")
WEATHER: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": list(CITIES)}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALL_GRAMMAR = r"""
root ::= <tool_call> s "{" s name s "," s arguments s "}" s </tool_call>
name ::= "\"name\"" s ":" s "\"get_weather\""
arguments ::= "\"arguments\"" s ":" s "{" s "\"city\"" s ":" s ("\"Ulm\"" | "\"Bern\"" | "\"Kiel\"") s "}"
s ::= "" | " " | "\n"{1,2} [ \t]{0,20}
"""
"""A call with any white space, as the server's own grammar of a forced call allows it."""

CALL = re.compile(r"<tool_call>.*?(\{[^{}]*\})\s*\}\s*</tool_call>", re.DOTALL)


@attrs.frozen
class TurnCounts:
    """Ids of one turn.

    Attributes:
        prompt: Ids of the prompt.
        new: Ids of the prompt behind those that the server evaluated for the turn before.
        evaluated: Ids of the prompt that the server evaluated.
        drifted: Whether the server found less in its cache than it had evaluated for the turn before.
    """

    prompt: int
    new: int
    evaluated: int
    drifted: bool


@attrs.frozen
class Taken:
    """One turn: the server's counts, and the message."""

    prompt: int
    sampled: int
    cached: int
    message: Mapping[str, Any]


class Way(Protocol):
    """A way to take a turn: by ids or by messages."""

    async def turn(self, messages: list[dict[str, Any]], seed: int, *, call: bool) -> Taken:
        """Take the turn after messages; it calls the tool, or does not."""


@attrs.define
class ByIds:
    """Turns by ids."""

    engine: LlamaCpp
    client: TokenClient = attrs.field(init=False)
    trajectory: Trajectory = attrs.field(factory=Trajectory)

    @client.default
    def _client(self) -> TokenClient:
        renderer = rendered_by(self.engine.family)
        return TokenClient(self.engine, renderer=renderer, sampling_names=frozenset({"grammar"}))

    async def turn(self, messages: list[dict[str, Any]], seed: int, *, call: bool) -> Taken:
        """Take the turn after `messages`."""
        extra = turn_keys(self.engine.family, call=call)
        limit = extra.pop("n_predict")
        taken = await self.client.turn(
            self.trajectory,
            messages,
            tools=[WEATHER],
            sampling={"max_tokens": limit, "seed": seed, "extra_body": extra},
        )
        self.trajectory = self.trajectory.append(taken.step)
        usage = taken.turn.reply.usage
        return Taken(
            usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens or 0, dict(taken.message)
        )


@attrs.frozen
class ByMessages:
    """Turns by messages: the server renders them, and tokenizes the text."""

    client: httpx2.AsyncClient
    family: Family

    async def turn(self, messages: list[dict[str, Any]], seed: int, *, call: bool) -> Taken:
        """Take the turn after `messages`."""
        rendered = await self._post("/apply-template", {"messages": messages, "tools": [WEATHER]})
        answer = await self._post(
            "/completion",
            {**NEUTRAL, **turn_keys(self.family, call=call), "prompt": rendered["prompt"], "seed": seed},
        )
        counts = answer["tokens_evaluated"], answer["tokens_predicted"], answer["timings"]["cache_n"]
        return Taken(*counts, as_message(answer["content"], f"call-{seed}"))

    async def _post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        response = await self.client.post(path, json=body)
        answer: dict[str, Any] = response.raise_for_status().json()
        return answer


def turn_keys(family: Family, *, call: bool) -> dict[str, Any]:
    """Return the request keys that make a random model call the tool, or say something of one length."""
    if not call:
        return {"ignore_eos": True, "n_predict": SAMPLED}
    # A grammar ends at any end of the model, of which the template knows one.
    other_end = family.tokenizer.token_to_id("<|endoftext|>")
    return {"grammar": CALL_GRAMMAR, "logit_bias": [[other_end, False]], "n_predict": CALLED}


def as_message(text: str, call_id: str) -> dict[str, Any]:
    """Return the message that a text spells; arguments are as they were sampled, as the server has them."""
    call = CALL.fullmatch(text)
    if call is None:
        return {"role": "assistant", "content": text}
    function = {"name": "get_weather", "arguments": call[1]}
    calls = [{"id": call_id, "type": "function", "function": function}]
    return {"role": "assistant", "content": "", "tool_calls": calls}


async def converse(way: Way, turns: int, step: Callable[[], None]) -> list[TurnCounts]:
    """Return the counts of a conversation's turns."""
    messages: list[dict[str, Any]] = []
    counts: list[TurnCounts] = []
    known = 0
    for number in range(turns):
        call = number % 2 == 0
        if not messages or messages[-1]["role"] == "assistant":
            messages.append({"role": "user", "content": f"Which weather does city {number} have?"})
        taken = await way.turn(messages, number, call=call)
        counts.append(
            TurnCounts(taken.prompt, taken.prompt - known, taken.prompt - taken.cached, taken.cached < known)
        )
        messages.append(dict(taken.message))
        calls = taken.message.get("tool_calls") or ()
        messages += [{"role": "tool", "tool_call_id": one["id"], "content": "12 degrees"} for one in calls]
        known = taken.prompt + taken.sampled - 1
        step()
    return counts


@attrs.frozen
class Results:
    """All measured turns.

    Attributes:
        turns: For each model, the turns of each way.
    """

    turns: Mapping[str, Mapping[str, Sequence[TurnCounts]]]


def sums(turns: Sequence[TurnCounts]) -> dict[str, int]:
    """Return what a conversation's turns add up to."""
    return {
        "turns": len(turns),
        "drifted": sum(one.drifted for one in turns),
        "prompt": sum(one.prompt for one in turns),
        "new": sum(one.new for one in turns),
        "evaluated": sum(one.evaluated for one in turns),
        "above new": sum(one.evaluated > one.new for one in turns),
    }


def print_results(console: Console, results: Results) -> None:
    """Print a row for each model and way."""
    table = Table(box=None, pad_edge=False, padding=(0, 1))
    for name in (
        "model",
        "way",
        "turns",
        "drifted",
        "prompt ids",
        "new ids",
        "evaluated ids",
        "turns above new",
    ):
        table.add_column(name, justify="left" if name in ("model", "way") else "right", no_wrap=True)
    for model, ways in results.turns.items():
        for way, turns in ways.items():
            table.add_row(model, way, *(f"{value:,}" for value in sums(turns).values()))
    console.print(table)


async def measure(
    base_url: str, family: Family, turns: int, step: Callable[[], None]
) -> dict[str, list[TurnCounts]]:
    """Run the conversation each way at a server."""
    async with LlamaCpp(base_url, family=family) as engine:
        by_ids = await converse(ByIds(engine), turns, step)
    async with httpx2.AsyncClient(base_url=base_url, timeout=600) as client:
        by_messages = await converse(ByMessages(client, family), turns, step)
    return {"ids": by_ids, "messages": by_messages}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--turns", type=WholeRange(2), default=TURNS, show_default=True, help="Turns of the conversation."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@interruptible
def main(*, turns: int, as_json: bool) -> None:
    """Measure what a real llama.cpp evaluates of its prompts, by ids and by messages."""
    from tests.engines.llamacpp import llamacpp  # noqa: PLC0415  # the tests' launcher, needed by this command only

    console, found = Console(stderr=True), {}
    with TemporaryDirectory() as folder, Progress(console=console) as progress:
        task = progress.add_task("starting llama.cpp", total=2 * turns * len(MODELS))
        for model, (architecture, *more) in MODELS.items():
            log = Path(folder) / f"{model}.log"
            with llamacpp(console.print, log, *SETTINGS, *more, architecture=architecture) as server:
                family = Family.load(server.family)
                step = partial(progress.update, task, advance=1, description=model)
                found[model] = anyio.run(measure, server.base_url, family, turns, step)
    results = Results(found)
    if as_json:
        sys.stdout.write(json.dumps(attrs.asdict(results)) + "\n")
    else:
        print_results(Console(), results)


if __name__ == "__main__":
    main()
