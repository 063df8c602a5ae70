"""The page about drift: text with tables, and two pictures. All figures are sums of the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import attrs

from benchmarks.intervals import wilson
from benchmarks.templating import environment
from tito_core.drift.breaks import Cause

from .counts import CAUSES, Counts, summed, to_csv, where
from .design import ENOUGH, FEW
from .other_families import FIRST
from .scripts import LANGUAGES

NAMES = {"english": "English", "code": "code", "other": "other languages"}
"""What the page calls the languages."""
PAGE, BY_TURN, BY_CAUSE, DATA = "drift.md", "drift-by-turn.svg", "drift-by-cause.svg", "drift.csv"


@attrs.frozen
class Share:
    """A share of conversations with its 95 % confidence interval."""

    found: int
    count: int

    @property
    def value(self) -> float:
        """The share; 0 of none."""
        return self.found / max(self.count, 1)

    @property
    def low(self) -> float:
        """Lower bound."""
        return wilson(self.found, self.count)[0]

    @property
    def high(self) -> float:
        """Upper bound."""
        return wilson(self.found, self.count)[1]

    def __str__(self) -> str:
        if not self.count:
            return "-"
        return f"{self.value:.0%} ({self.low:.0%} to {self.high:.0%})".replace("%", " %")


def drifted(counted: Counter[str]) -> Share:
    """Return the share of conversations whose history has drifted."""
    return Share(counted["drifted"], counted["conversations"])


def percent(part: float, whole: float) -> str:
    """Return a share as text.

    >>> percent(1, 8), percent(0, 0)
    ('12.5 %', '-')
    """
    return f"{part / whole:.1%}".replace("%", " %") if whole else "-"


def per(part: float, whole: float) -> str:
    """Return a mean as text; `-` of none."""
    return f"{part / whole:,.1f}" if whole else "-"


@attrs.frozen
class Row:
    """Conversations of one model in one language at one temperature, summed.

    Attributes:
        model: The model.
        language: The language.
        temperature: The temperature.
        turns: Counts by turn, from 1.
    """

    model: str
    language: str
    temperature: float
    turns: Sequence[Counter[str]]

    @property
    def last(self) -> Counter[str]:
        """Counts of the last turn."""
        return self.turns[-1]

    @property
    def all(self) -> Counter[str]:
        """Counts of all turns."""
        return sum(self.turns, Counter())

    @property
    def name(self) -> str:
        """The language, as the page calls it."""
        return NAMES[self.language]

    def shares(self) -> list[Share]:
        """Return the drifted share by turn."""
        return [drifted(counted) for counted in self.turns]

    def causes(self) -> list[tuple[str, float]]:
        """Return the share of sampled ids that change, by cause; causes without any are left out."""
        whole = self.all
        return [(cause, whole[cause] / max(whole["sampled_ids"], 1)) for cause in CAUSES if whole[cause]]

    def changed(self) -> float:
        """Return the share of sampled ids that change."""
        return sum(share for _, share in self.causes())


def rows_of(counts: Counts) -> list[Row]:
    """Return a row for each model, language and temperature, in the order of the page."""
    own = where(counts, family="")
    grouped: dict[tuple[str, str, float], list[Counter[str]]] = {}
    for (model, language, temperature, _), counted in summed(
        own, "model", "language", "temperature", "turn"
    ).items():
        grouped.setdefault((model, language, temperature), []).append(counted)
    order = sorted(grouped, key=lambda key: (key[0], LANGUAGES.index(key[1]), key[2]))
    return [Row(*key, grouped[key]) for key in order]


def changed(counted: Counter[str]) -> int:
    """Return how many sampled ids change, for any cause."""
    return sum(counted[cause] for cause in CAUSES)


@attrs.frozen
class Margin:
    """Conversations of a model that agree in one choice, over all temperatures and languages."""

    model: str
    choice: str
    last: Counter[str]
    all: Counter[str]


def margins(counts: Counts) -> Iterator[Margin]:
    """Yield the conversations with tools and without, and those with each limit."""
    own = where(counts, family="")
    for name, called in (("tools", {False: "without tools", True: "with tools"}), ("limit", {})):
        every = summed(own, "model", name)
        for (model, value), counted in every.items():
            last = max(cell.turn for cell in where(own, model=model))
            at_last = summed(where(own, model=model, turn=last, **{name: value}), "model")
            choice = called.get(value, f"at most {value} ids a turn")
            yield Margin(model, choice, at_last.get((model,), Counter()), counted)


@attrs.frozen
class OtherRow:
    """A model's text in the tokenizer and template of another family."""

    family: str
    model: str
    last: Counter[str]
    all: Counter[str]

    @property
    def causes(self) -> str:
        """The causes of changed sampled ids, the most frequent first."""
        found = Counter({cause: self.all[cause] for cause in CAUSES if self.all[cause]})
        return ", ".join(f"{cause} {number:,}" for cause, number in found.most_common()) or "none"


def other_rows(counts: Counts) -> list[OtherRow]:
    """Return a row for each other family and model."""
    others = {cell: counted for cell, counted in counts.items() if cell.family}
    last = max((cell.turn for cell in others), default=0)
    at_last = summed(where(others, turn=last), "family", "model")
    every = summed(others, "family", "model")
    rows = [
        OtherRow(family, model, at_last.get((family, model), Counter()), counted)
        for (family, model), counted in sorted(every.items(), key=itemgetter(0))
    ]
    return [row for row in rows if row.all["conversations"]]


def left_out(counts: Counts) -> list[str]:
    """Return the families without conversations: their templates do not take plain text."""
    return sorted(
        family for (family,), counted in summed(counts, "family").items() if not counted["conversations"]
    )


def written(counts: Counts) -> dict[str, str]:
    """Return the page, the pictures and the data by name of file."""
    rows = rows_of(counts)
    used = [cause for cause in Cause if any(row.all[cause.name.lower()] for row in rows)]
    values: dict[str, Any] = {
        "rows": rows,
        "models": list(dict.fromkeys(row.model for row in rows)),
        "temperatures": sorted({row.temperature for row in rows}),
        "languages": [(one, NAMES[one]) for one in LANGUAGES],
        "margins": list(margins(counts)),
        "others": other_rows(counts),
        "left_out": left_out(counts),
        "causes": [(cause.name.lower(), cause.value) for cause in used],
        "cause_names": [cause.name.lower() for cause in used],
        "limits": (ENOUGH, FEW),
        "first": FIRST,
        "whole": {model: counted for (model,), counted in summed(where(counts, family=""), "model").items()},
        "messages": _by_messages(rows),
        "most": max((row.changed() for row in rows), default=0) or 1,
    }
    files = (PAGE, BY_TURN, BY_CAUSE)
    templates = environment(Path(__file__).parent, keep_trailing_newline=True)
    templates.globals.update(changed=changed, drifted=drifted, percent=percent, per=per)
    pages = {name: templates.get_template(f"{name}.jinja").render(values) for name in files}
    return pages | {DATA: to_csv(counts)}


def _by_messages(rows: Sequence[Row]) -> dict[str, int]:
    """Return how many prompts after the first did not continue the earlier ids, and how many there are."""
    later = [counted for row in rows for counted in row.turns[1:]]
    return {
        "by_messages": sum(counted["by_messages"] for counted in later),
        "later": sum(counted["conversations"] for counted in later),
    }
