"""Measure a client's turn on the wire, next to a copy of the request body and next to the `openai` client.

python -m benchmarks.wire [--quick] [--json]

The parts of a turn are timed separately: normalize, match and stitch; encode the body; parse the reply.
A whole turn adds the HTTP library, the transport and the stored step. Each call of a whole turn is the next
turn of one conversation, with a question of 50 tokens and 50 sampled ids. The server is in this process and
answers at once. The tokenizer repeats recorded answers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import attrs
import click
import openai
from rich.console import Console
from rich.table import Table

from benchmarks.clock import Prepare, Timing, race
from benchmarks.command import interruptible
from benchmarks.history import History, histories
from benchmarks.renderer import load_renderer
from benchmarks.tables import milli, print_targets
from benchmarks.targets import Target
from benchmarks.wire_programs import OpenAIClient, Parts, first_turn, open_conversation, parts, whole_turn
from benchmarks.wire_server import Server

SIZES: tuple[tuple[int, int], ...] = ((10, 50), (100, 50), (25, 2_000), (250, 2_000))
"""Turns and tokens a message: about 1,000, 10,000, 100,000 and 1,000,000 ids."""
QUICK = SIZES[:2]
LONG = 1_000_000
"""A turn has a target from this many ids on. In shorter prompts the constant work dominates."""
MOST = 3.0
"""Limit of the parts of a turn together, in copies of the body."""
FLOOR = "floor: a copy of the body"
STITCH, BODY, PARSE = "tito: normalize, match, stitch", "tito: body", "tito: parse"
WORK = (STITCH, BODY, PARSE)
TURN, TURN_PARSED = "tito: a turn", "tito: a turn, prompt off the wire"
FIRST = "tito: ids never sent before, repeated"
OPENAI, OPENAI_RAW = "openai: prompt=ids", "openai: ids in extra_body"


@attrs.frozen
class Case:
    """Times of the next turn of one history.

    Attributes:
        turns: Turns of the history.
        tokens: Tokens of each message.
        ids: Ids of the prompt.
        body: Bytes of the request body.
        timings: By program.
    """

    turns: int
    tokens: int
    ids: int
    body: int
    timings: dict[str, Timing]

    def ratio(self, *programs: str) -> float:
        """Return the warm time of programs together, in copies of the body."""
        return sum(self.timings[program].warm for program in programs) / self.timings[FLOOR].warm


class DisagreementError(AssertionError):
    """Two programs sent or received different ids."""


def check_agreement(history: History, turn_parts: Parts) -> int:
    """Check that all programs send and receive the same ids; return how many ids the prompt has."""
    right = json.loads(turn_parts.sent)["prompt"]
    for parsed_prompt in (False, True):
        one = open_conversation(history, parsed_prompt=parsed_prompt)
        one.server.keeps = True
        turn = one.turn()
        _same(TURN_PARSED if parsed_prompt else TURN, one.server, right, turn.reply.completion_ids)
    for raw in (False, True):
        peer = OpenAIClient(history, raw=raw)
        peer.server.keeps = True
        sampled = peer.turn()
        _same(OPENAI_RAW if raw else OPENAI, peer.server, right, sampled)
    return len(right)


def _same(name: str, server: Server, right: Sequence[int], got: Sequence[int]) -> None:
    if server.prompt_ids() != right or list(got) != server.sampled:
        raise DisagreementError(
            f"{name} sends or receives other ids than the stitch: times cannot be compared"
        )


def measure_turn(history: History) -> Case:
    """Time the next turn of a history by every program."""
    turn_parts = parts(history)
    count = check_agreement(history, turn_parts)
    programs: dict[str, Prepare] = {
        FLOOR: lambda: partial(bytearray, turn_parts.sent),
        STITCH: lambda: turn_parts.stitch,
        BODY: lambda: turn_parts.body,
        PARSE: lambda: turn_parts.parse,
        TURN: partial(whole_turn, history),
        TURN_PARSED: partial(whole_turn, history, parsed_prompt=True),
        FIRST: partial(first_turn, history),
        OPENAI: lambda: OpenAIClient(history, raw=False).turn,
        OPENAI_RAW: lambda: OpenAIClient(history, raw=True).turn,
    }
    return Case(history.turns, history.tokens, count, len(turn_parts.sent), race(programs))


def cases(sizes: Sequence[tuple[int, int]], say: Callable[[str], None]) -> Iterator[Case]:
    """Measure a history for each pair of turns and tokens a message."""
    renderer = load_renderer()
    for turns, tokens in sizes:
        say(f"a turn after {turns:,} of {tokens:,} tokens a message")
        (history,) = histories(renderer, [turns], tokens)
        yield measure_turn(history)


def targets(stitched: Sequence[Case]) -> Iterator[Target]:
    """Yield the targets of long prompts."""
    for case in stitched:
        if case.ids >= LONG:
            yield Target(
                f"stitch, body and parse, {case.ids:,} ids: in copies of the body", case.ratio(*WORK), MOST
            )


def print_results(console: Console, stitched: Sequence[Case]) -> None:
    """Print everything as tables."""
    for title, shown in (("warm ms", _milli), ("warm, in copies of the body", _copies), ("cold ms", _cold)):
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        table.add_column("ids in the prompt", no_wrap=True)
        for case in stitched:
            table.add_column(f"{case.ids:,}", justify="right")
        for program in stitched[0].timings:
            table.add_row(program, *(shown(case, program) for case in stitched))
        console.print(table, "")
    met = list(targets(stitched))
    if met:
        print_targets(console, met)


def _milli(case: Case, program: str) -> str:
    return milli(case.timings[program].warm)


def _copies(case: Case, program: str) -> str:
    return f"{case.ratio(program):,.1f}x"


def _cold(case: Case, program: str) -> str:
    return milli(case.timings[program].cold)


def json_data(stitched: Sequence[Case]) -> dict[str, object]:
    """Return the results as JSON data; times are in seconds."""
    listed = [{**attrs.asdict(case, recurse=False), "timings": _timings(case)} for case in stitched]
    met = [{**attrs.asdict(one), "met": one.met} for one in targets(stitched)]
    return {"openai": openai.__version__, "cases": listed, "targets": met}


def _timings(case: Case) -> dict[str, dict[str, float]]:
    return {name: {**timing._asdict(), "copies": case.ratio(name)} for name, timing in case.timings.items()}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Measure prompts of up to 10,000 ids only; takes some seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@interruptible
def main(*, quick: bool, as_json: bool) -> None:
    """Measure a client's turn on the wire, and compare it with the `openai` client."""
    with Console(stderr=True).status("starting") as status:
        stitched = list(cases(QUICK if quick else SIZES, status.update))
    if as_json:
        click.echo(json.dumps(json_data(stitched), indent=1))
    else:
        print_results(Console(width=None if sys.stdout.isatty() else 160), stitched)


if __name__ == "__main__":
    main()
