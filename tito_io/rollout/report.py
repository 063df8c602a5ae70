"""A rollout as a person reads it: a live table, then a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from .run import RolloutTurn, Summary

CAPTION = (
    "Numbers of ids: the prompt, how many of its ids earlier turns gave, how many were tokenized for this "
    "turn, what it sampled, and what a fresh rendering of the messages would have changed. TITO: the prompt "
    "went by ids; MITO: by messages. cut closed, stop kept: the turn before was cut short, or stopped oddly, "
    "and its close was written after it."
)

HEADINGS: tuple[tuple[str, Literal["left", "right"]], ...] = (
    ("turn", "right"),
    ("route", "left"),
    ("prompt", "right"),
    ("reused", "right"),
    ("new", "right"),
    ("sampled", "right"),
    ("drift", "right"),
    ("end", "left"),
    ("note", "left"),
)


ROOMY = 72
"""A console of as many columns has room between those of the table."""


def table(rows: Sequence[RolloutTurn], title: str, width: int = ROOMY) -> Table:
    """Return the turns as a table for a console of `width` columns; in a narrow one notes are broken."""
    room = (0, width >= ROOMY, 0, 0)
    made = Table(title=title, caption=CAPTION, box=SIMPLE_HEAD, pad_edge=False, padding=room)
    made.title_justify = made.caption_justify = "left"
    for heading, side in HEADINGS:
        made.add_column(heading, justify=side, no_wrap=heading != "note")
    for row in rows:
        made.add_row(*_cells(row), style="red" if row.lost_ids else None)
    return made


def _cells(row: RolloutTurn) -> list[str | Text]:
    return [
        str(row.turn),
        Text(row.route, style="yellow" if row.route == "MITO" else "green"),
        f"{row.prompt_ids:,}",
        f"{row.reused_ids:,}",
        f"{row.new_ids:,}",
        f"{row.sampled_ids:,}",
        "-" if row.drift is None else f"{row.drift:,}",
        row.finish_reason.removesuffix("_calls"),
        _note(row),
    ]


def _note(row: RolloutTurn) -> str:
    notes = [row.odd, row.refusal or ""]
    notes.append(f"lost {row.lost_ids}" if row.lost_ids else "")
    return ", ".join(filter(None, notes))


def verdict(summary: Summary) -> Text:
    """Return the closing lines."""
    style = "bold green" if summary.whole and not summary.error else "bold red"
    kept = f"{summary.sampled_ids_kept:,} of {summary.sampled_ids:,} sampled ids kept"
    lines = [
        f"{_count(summary.turns, 'turn')}: {summary.tito_turns} by ids, {summary.mito_turns} by messages"
        + (f", {summary.kept_turns} by messages with the ids kept" if summary.kept_turns else ""),
        *_drift(summary.drift_tokens_avoided),
        f"{summary.reused_ids:,} ids not tokenized again, {summary.retokenized_ids:,} tokenized again",
    ]
    if summary.checked_turns is not None:
        same = f"{summary.differing_turns} differed from a render of the whole conversation"
        lines.append(f"{_count(summary.checked_turns, 'turn')} checked: {same}")
    lines += [f"by messages because {reason}: {count}" for reason, count in summary.refusals.items()]
    if summary.error:
        lines.append(f"stopped early: {summary.error}")
    return Text(kept, style=style).append("\n" + "\n".join(lines), style="default")


def _drift(avoided: int | None) -> list[str]:
    if avoided is None:
        return []
    return [f"{avoided:,} prompt ids that a re-render would have changed were kept"]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
