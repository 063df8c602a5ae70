"""Print a rollout turn by turn: as JSON lines, or as lines of text, in colour on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import attrs
import click
import orjson
from rich.text import Text

from tito_io.cli.console import Console

from .run import RolloutTurn, Summary

LEGEND = (
    "Numbers of ids. prompt: the whole prompt. reused: taken from earlier turns as they were. new: tokenized "
    "for this turn. sampled: the completion. drift: prompt ids that a fresh rendering of the messages would "
    "have changed. TITO: the prompt went by ids. MITO: by messages. KEPT: by messages, and the engine keeps "
    "the ids itself. cut closed, stop kept, stop replaced: the turn before was cut short, or ended with an "
    "odd stop."
)
WORDS = {"route": 5, "finish": 6, "note": 0}
NUMBERS = {"turn": 4, "prompt": 7, "reused": 7, "new": 6, "sampled": 7, "drift": 6}
"""Columns and their widths; numbers stand at the right."""
HEADINGS = ("turn", "route", "prompt", "reused", "new", "sampled", "drift", "finish", "note")


class Report(Protocol):
    """Prints a rollout."""

    def add(self, row: RolloutTurn) -> None:
        """Print a turn."""

    def close(self, summary: Summary) -> None:
        """Print the summary."""


def report_of(title: str, *, as_json: bool) -> Report:
    """Return the report that fits standard output; every turn is written and flushed as it comes."""
    return JsonReport() if as_json else LineReport(Console(), title)


class JsonReport:
    """Prints an object for each turn, then one with the summary."""

    def add(self, row: RolloutTurn) -> None:
        """Print a turn."""
        click.echo(orjson.dumps(attrs.asdict(row)).decode())

    def close(self, summary: Summary) -> None:
        """Print the summary."""
        click.echo(orjson.dumps({"summary": attrs.asdict(summary)}).decode())


@attrs.define
class LineReport:
    """Prints a line for each turn below the one before, so that a terminal of any height shows the last."""

    console: Console
    title: str
    begun: bool = False

    def add(self, row: RolloutTurn) -> None:
        """Print a turn, and the headings before the first one."""
        if not self.begun:
            self._print(self.title)
            self._print(Text(_line(HEADINGS), style="bold"))
        self.begun = True
        self._print(_coloured(row))

    def close(self, summary: Summary) -> None:
        """Print the legend and the summary."""
        if self.begun:
            self._print(LEGEND, by_words=self.console.is_terminal and self.console.roomy)
        self._print(verdict(summary))

    def _print(self, text: str | Text, *, by_words: bool = False) -> None:
        """Print a text, which the terminal breaks where its lines end, or rich between words."""
        self.console.print(text, soft_wrap=not by_words, highlight=False, markup=False)


def _coloured(row: RolloutTurn) -> Text:
    line, start = Text(_line(_cells(row)), style="red" if row.lost_ids else ""), NUMBERS["turn"] + 1
    line.stylize("yellow" if row.route == "MITO" else "green", start, start + WORDS["route"])
    return line


def _line(cells: Sequence[str]) -> str:
    return " ".join(
        cell.ljust(WORDS[heading]) if heading in WORDS else cell.rjust(NUMBERS[heading])
        for cell, heading in zip(cells, HEADINGS, strict=True)
    ).rstrip()


def _cells(row: RolloutTurn) -> list[str]:
    notes = (row.note, row.refusal, f"lost {row.lost_ids:,}" if row.lost_ids else "")
    return [
        str(row.turn),
        row.route,
        f"{row.prompt_ids:,}",
        f"{row.reused_ids:,}",
        f"{row.new_ids:,}",
        f"{row.sampled_ids:,}",
        "-" if row.drift_ids is None else f"{row.drift_ids:,}",
        row.finish_reason.removesuffix("_calls"),
        ", ".join(filter(None, notes)),
    ]


def verdict(summary: Summary) -> Text:
    """Return the closing lines."""
    kept = summary.sampled_ids - summary.lost_ids
    by_ids, by_messages, kept_ids = (summary.routes.get(name, 0) for name in ("TITO", "MITO", "KEPT"))
    lines = [
        f"{_count(summary.turns, 'turn')}: {by_ids} by ids, {by_messages} by messages"
        + (f", {kept_ids} by messages with the ids kept" if kept_ids else ""),
        f"{summary.reused_ids:,} prompt ids reused, {summary.retokenized_ids:,} retokenized",
    ]
    if summary.drift_ids is not None:
        lines.append(f"{summary.drift_ids:,} drift ids: a fresh rendering would have changed them")
    if summary.checked_turns is not None:
        differing = f"{summary.differing_turns} differed from a render of the whole conversation"
        lines.append(f"{_count(summary.checked_turns, 'turn')} checked: {differing}")
    if summary.fast_tokenizer:
        lines.append(summary.fast_tokenizer)
    lines += [f"by messages because {reason}: {count}" for reason, count in summary.refusals.items()]
    if summary.error:
        lines.append(f"stopped early: {summary.error}")
    style = "bold green" if summary.whole and not summary.error else "bold red"
    headline = Text(f"{kept:,} of {summary.sampled_ids:,} sampled ids kept", style=style)
    return headline.append("\n" + "\n".join(lines), style="default")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
