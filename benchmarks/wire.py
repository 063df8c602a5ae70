"""What a turn costs its client, beside a copy of the request's bytes and beside the `openai` client.

python -m benchmarks.wire [--quick] [--json]

A turn's work is to normalize, match and stitch, to write the body, and to read the answer; they are measured
apart. A turn is that with all around it: the HTTP library, a transport, the step that is kept. There each
call is the next turn of a conversation that goes on, with a question of 50 tokens and 50 sampled ids. The
server is in this process and takes no time, and the tokenizer answers from memory.
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
from benchmarks.show import judged, milli
from benchmarks.targets import Target
from benchmarks.voice import voice
from benchmarks.wire_programs import Parts, Peer, first, parts, talk, whole
from benchmarks.wire_server import Server

SIZES: tuple[tuple[int, int], ...] = ((10, 50), (100, 50), (25, 2_000), (250, 2_000))
"""Turns and tokens a message: some 1,000, 10,000, 100,000 and 1,000,000 ids."""
QUICK = SIZES[:2]
LONG = 1_000_000
"""Ids from which on a turn is judged: below, what does not grow counts for more."""
MOST = 3.0
"""Copies of the body that a turn may cost."""
FLOOR = "floor: a copy of the body"
STITCH, BODY, PARSE = "tito: normalize, match, stitch", "tito: body", "tito: parse"
WORK = (STITCH, BODY, PARSE)
TURN, WIRED = "tito: a turn", "tito: a turn, prompt off the wire"
FIRST = "tito: ids never sent before, repeated"
OPENAI, OPENAI_RAW = "openai: prompt=ids", "openai: ids in extra_body"


@attrs.frozen
class Case:
    """A history, and what its next turn costs."""

    turns: int
    tokens: int
    """In a message."""
    ids: int
    """In the prompt."""
    body: int
    """Bytes."""
    timings: dict[str, Timing]

    def ratio(self, *programs: str) -> float:
        """How many copies of the body programs cost together."""
        return sum(self.timings[program].warm for program in programs) / self.timings[FLOOR].warm


class DisagreementError(AssertionError):
    """Programs that are compared sent or got different ids."""


def agreed(history: History, taken: Parts) -> int:
    """Return how many ids the next prompt has, once all programs are seen to send and to get the same."""
    right = json.loads(taken.sent)["prompt"]
    for wired in (False, True):
        one = talk(history, wired=wired)
        one.server.keeps = True
        turn = one.turn()
        _same(WIRED if wired else TURN, one.server, right, turn.reply.completion_ids)
    for raw in (False, True):
        peer = Peer(history, raw=raw)
        peer.server.keeps = True
        sampled = peer.turn()
        _same(OPENAI_RAW if raw else OPENAI, peer.server, right, sampled)
    return len(right)


def _same(name: str, server: Server, right: Sequence[int], got: Sequence[int]) -> None:
    if server.seen() != right or list(got) != server.sampled:
        raise DisagreementError(f"{name} sends or gets other ids: nothing can be compared")


def measured(history: History) -> Case:
    """Measure the next turn of a history."""
    taken = parts(history)
    count = agreed(history, taken)
    programs: dict[str, Prepare] = {
        FLOOR: lambda: partial(bytearray, taken.sent),
        STITCH: lambda: taken.stitch,
        BODY: lambda: taken.body,
        PARSE: lambda: taken.parse,
        TURN: partial(whole, history),
        WIRED: partial(whole, history, wired=True),
        FIRST: partial(first, history),
        OPENAI: lambda: Peer(history, raw=False).turn,
        OPENAI_RAW: lambda: Peer(history, raw=True).turn,
    }
    return Case(history.turns, history.tokens, count, len(taken.sent), race(programs))


def cases(sizes: Sequence[tuple[int, int]], say: Callable[[str], None]) -> Iterator[Case]:
    """Measure histories of so many turns and tokens a message."""
    speaks = voice()
    for turns, tokens in sizes:
        say(f"a turn after {turns:,} of {tokens:,} tokens a message")
        (history,) = histories(speaks, [turns], tokens)
        yield measured(history)


def targets(found: Sequence[Case]) -> Iterator[Target]:
    """Yield the targets of the long histories."""
    for case in found:
        if case.ids >= LONG:
            yield Target(f"stitch, body and parse, {case.ids:,} ids: copies", case.ratio(*WORK), MOST)


def printed(console: Console, found: Sequence[Case]) -> None:
    """Print everything as tables."""
    for title, shown in (("warm ms", _milli), ("warm, in copies of the body", _copies), ("cold ms", _cold)):
        table = Table(box=None, pad_edge=False, title=title, title_justify="left")
        table.add_column("ids in the prompt", no_wrap=True)
        for case in found:
            table.add_column(f"{case.ids:,}", justify="right")
        for program in found[0].timings:
            table.add_row(program, *(shown(case, program) for case in found))
        console.print(table, "")
    met = list(targets(found))
    if met:
        judged(console, met)


def _milli(case: Case, program: str) -> str:
    return milli(case.timings[program].warm)


def _copies(case: Case, program: str) -> str:
    return f"{case.ratio(program):,.1f}x"


def _cold(case: Case, program: str) -> str:
    return milli(case.timings[program].cold)


def plain(found: Sequence[Case]) -> dict[str, object]:
    """Return what was found as JSON data; times are seconds."""
    listed = [{**attrs.asdict(case, recurse=False), "timings": _timings(case)} for case in found]
    met = [{**attrs.asdict(one), "met": one.met} for one in targets(found)]
    return {"openai": openai.__version__, "cases": listed, "targets": met}


def _timings(case: Case) -> dict[str, dict[str, float]]:
    return {name: {**timing._asdict(), "copies": case.ratio(name)} for name, timing in case.timings.items()}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Up to 10,000 ids: some seconds.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@interruptible
def main(*, quick: bool, as_json: bool) -> None:
    """Measure a client's turn on the wire, all programs side by side."""
    with Console(stderr=True).status("starting") as status:
        found = list(cases(QUICK if quick else SIZES, status.update))
    if as_json:
        click.echo(json.dumps(plain(found), indent=1))
    else:
        printed(Console(width=None if sys.stdout.isatty() else 160), found)


if __name__ == "__main__":
    main()
