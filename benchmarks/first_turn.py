"""Measure the first turn of a conversation of 100,000 tokens, beside the tokenizer's own time.

TITO_FAMILIES=DIR python -m benchmarks.first_turn [--family qwen3] [--json]

A first turn has nothing to go on from: its messages are copied, rendered and encoded whole, the engine
answers at once, and the step is kept. The floor is fastokens, encoding a text as long that it has not seen
before. Every call has new text from the standard library's source files.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import click
from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.console import Console
from rich.table import Table

from benchmarks.command import interruptible
from benchmarks.tables import print_targets
from benchmarks.targets import Target
from tito_core import Message
from tito_io.client.driver import InThread, rendered_by
from tito_io.client.token_client import TokenClient
from tito_io.engines.protocol import (
    Engine,
    Reply,
    SampleRequest,
    Usage,
)
from tito_io.families.family import Family

TOKENS = 100_000
LETTERS = 4
"""Characters of a token, about."""
MESSAGES = (2, 40, 400)
RUNS = 7
MOST = 3.0
"""Limit of a first turn, in times of the fast tokenizer alone."""
FAST, REFERENCE = "fastokens", "tokenizers"
RENDER, TURN, SLOW_TURN = "render", "a first turn, fast", "a first turn"


Program = Callable[[list[Message], str], Any]
"""Takes a conversation, and its text."""


@attrs.define
class Source:
    """Text that no call had before: the source files of Python's standard library, one after the other."""

    _files: Iterator[Path] = attrs.field(factory=lambda: iter(sorted(Path(os.__file__).parent.rglob("*.py"))))
    _text: str = ""

    def take(self, length: int) -> str:
        """Return the next `length` characters. Harmony's templates refuse the marker that is left out."""
        while len(self._text) < length:
            text = next(self._files).read_text(encoding="utf-8", errors="replace")
            self._text += text.replace("<|channel|>", "")
        taken, self._text = self._text[:length], self._text[length:]
        return taken


@attrs.frozen
class RenderingEngine(Engine):
    """An engine that renders with a model folder and answers with one id."""

    family: Family
    name: str = "here"
    keeps_ids: bool = False

    async def sample(self, request: SampleRequest) -> Reply:
        """Render, and answer at once."""
        ids = await InThread(self.family.tokenize_fn())(request.messages or (), add_generation_prompt=True)
        return Reply(
            prompt_ids=tuple(ids),
            completion_ids=(0,),
            logprobs=(0.0,),
            message={"role": "assistant", "content": "Seven."},
            text="Seven.",
            finish_reason="stop",
            stop_reason=None,
            usage=Usage(prompt_tokens=len(ids), completion_tokens=1),
            raw={},
        )


@attrs.frozen
class Case:
    """Seconds of processor time of one family with conversations of one shape.

    Attributes:
        family: The model folder.
        messages: Messages of each conversation.
        ids: Ids of a text as long.
        seconds: Medians by what was measured.
    """

    family: str
    messages: int
    ids: int
    seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """A first turn, in times of the fast tokenizer alone."""
        return self.seconds[TURN] / self.seconds[FAST]


def conversation(source: Source, messages: int) -> list[Message]:
    """Return a conversation of new text, which ends with the user."""
    roles = ("user", "assistant")
    size = TOKENS * LETTERS // messages
    spoken = [{"role": roles[place % 2], "content": source.take(size)} for place in range(messages)]
    return [*spoken, {"role": "user", "content": "Go on."}]


def reference_programs(family: Family, portal: BlockingPortal) -> dict[str, Program]:
    """Return what is measured of a family as it is; turns are taken in the event loop of `portal`."""
    return {
        REFERENCE: lambda _, text: family.encode(text),
        SLOW_TURN: lambda prompt, _: portal.call(_turn, family, prompt),
        RENDER: lambda prompt, _: family.tokenize_fn().text(prompt, add_generation_prompt=True),
    }


def fast_programs(family: Family, portal: BlockingPortal) -> dict[str, Program]:
    """Return what is measured of a family with a fast tokenizer."""
    return {
        FAST: lambda _, text: family.encode(text),
        TURN: lambda prompt, _: portal.call(_turn, family, prompt),
    }


def measured(family: Family, programs: dict[str, Program], messages: int, source: Source) -> dict[str, float]:
    """Return the median seconds of each program; they take turns, `RUNS` times, each on new text."""
    taken: dict[str, list[float]] = {each: [] for each in programs}
    for _ in range(RUNS):
        for each, program in programs.items():
            prompt = conversation(source, messages)
            text = family.tokenize_fn().text(prompt, add_generation_prompt=True)
            taken[each].append(_seconds(program, prompt, text))
    return {each: statistics.median(times) for each, times in taken.items()}


async def _turn(family: Family, prompt: list[Message]) -> float:
    """Return the seconds of a first turn."""
    client = TokenClient(RenderingEngine(family), renderer=rendered_by(family))
    begun = time.process_time()
    await client.turn([], prompt)
    return time.process_time() - begun


def _seconds(program: Program, prompt: list[Message], text: str) -> float:
    begun = time.process_time()
    found = program(prompt, text)
    return found if isinstance(found, float) else time.process_time() - begun


def cases_of(name: str, portal: BlockingPortal) -> list[Case]:
    """Measure a family: first as it is, for what a second tokenizer leaves of the memory slows it down."""
    family, source = Family.load(Path(os.environ["TITO_FAMILIES"]) / name), Source()
    slow = [measured(family, reference_programs(family, portal), each, source) for each in MESSAGES]
    fast = family.with_fast_tokenizer(check_every=1_000_000)
    fast.encode(source.take(TOKENS * LETTERS))  # the first text that a process encodes takes longer
    ids = len(fast.encode(source.take(TOKENS * LETTERS)))
    return [
        Case(name, each, ids, {**known, **measured(fast, fast_programs(fast, portal), each, source)})
        for each, known in zip(MESSAGES, slow, strict=True)
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--family", multiple=True, help="A model folder in TITO_FAMILIES; may be repeated. Default: qwen3."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@interruptible
def main(*, family: tuple[str, ...], as_json: bool) -> None:
    """Measure first turns of 100,000 tokens; needs the package fastokens and TITO_FAMILIES."""
    # One event loop, as in a server: a thread that renders for the first time takes memory of its own first.
    with start_blocking_portal() as portal:
        cases = [one for name in family or ("qwen3",) for one in cases_of(name, portal)]
    if as_json:
        click.echo(json.dumps([{**attrs.asdict(one), "ratio": one.ratio} for one in cases], indent=1))
    else:
        _print(Console(), cases)


def _print(console: Console, cases: Sequence[Case]) -> None:
    table = Table(title="milliseconds of processor time", title_justify="left")
    table.add_column("conversation")
    for name in (*cases[0].seconds, "ratio"):
        table.add_column(name, justify="right")
    for one in cases:
        figures = [f"{1_000 * seconds:.1f}" for seconds in one.seconds.values()]
        title = f"{one.family}, {one.messages} messages, {one.ids:,} ids"
        table.add_row(title, *figures, f"{one.ratio:.2f}")
    console.print(table)
    targets = [
        Target(f"{one.family}, {one.messages} messages: a first turn, in times of fastokens", one.ratio, MOST)
        for one in cases
    ]
    print_targets(console, targets)


if __name__ == "__main__":
    main()
