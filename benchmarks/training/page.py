"""Write the page of the comparison from a folder of runs, with its pictures and data beside it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from benchmarks.templating import environment

from . import game
from .picture import draw, panel
from .plan import PLANS
from .results import Estimate, Result, differences, read
from .rows import ARMS
from .setting import SETTINGS

BASE = next(iter(ARMS))


@attrs.frozen
class Section:
    """One model in one setting: the runs of each arm that came to their end, and of all.

    Attributes:
        model: The model's name.
        setting: The setting's name.
        runs: Runs by arm, finished or not.
    """

    model: str
    setting: str
    runs: Mapping[str, Sequence[Result]]

    @property
    def title(self) -> str:
        """What a heading says."""
        return f"{self.model}, {self.setting}"

    def ended(self, arm: str) -> list[Result]:
        """Return the runs of an arm that came to their end; others have no result yet."""
        return [one for one in self.runs[arm] if one.finished]

    def outcome(self) -> Iterator[list[str]]:
        """Yield a line of the table of rewards for each arm."""
        base = self.ended(BASE)
        for arm in self.runs:
            runs = self.ended(arm)
            if not runs:
                yield [arm, "0", "", "", "", ""]
                continue
            other = [differences(runs, base, name) if arm != BASE else None for name in ("last", "area")]
            yield [
                arm,
                str(len(runs)),
                Estimate.of([one.last for one in runs]).text(),
                other[0].text("+.3f") if other[0] else "",
                Estimate.of([one.area for one in runs]).text(),
                other[1].text("+.3f") if other[1] else "",
            ]

    def mechanism(self) -> Iterator[list[str]]:
        """Yield a line of the table of causes and costs for each arm: means over runs, finished or not."""
        for arm, runs in self.runs.items():
            if runs:
                mean = {name: Estimate.of([one.mean(name) for one in runs]).mean for name in MEANS}
                yield [
                    arm,
                    f"{Estimate.of([one.first('drifted') for one in runs]).mean:.0%}",
                    f"{Estimate.of([one.latest('drifted') for one in runs]).mean:.0%}",
                    *(form.format(mean[name]) for name, form in MEANS.items()),
                    f"{max(one.largest for one in runs):.3g}",
                    f"{_share(runs, 'unsampled_ids', 'trained_ids'):.2%}",
                    f"{_share(runs, 'encoded_ids', 'prompt_ids'):.0%}",
                    f"{_share(runs, 'cached_ids', 'prompt_ids'):.0%}",
                ]

    def seconds(self) -> Iterator[list[str]]:
        """Yield a line of the table of seconds of an update for each arm."""
        for arm, runs in self.runs.items():
            if runs:
                parts = ("sampling", "rendering", "training")
                yield [arm, *(f"{Estimate.of([one.mean(name) for one in runs]).mean:.2f}" for name in parts)]


MEANS = {
    "dropped": "{:.1%}",
    "k1": "{:.2e}",
    "k3": "{:.2e}",
    "own_k3": "{:.2e}",
    "ratio_mean": "{:.4f}",
    "clipped": "{:.2%}",
    "gradient_norm": "{:.3f}",
    "by_messages": "{:.2f}",
}
OUTCOME = ("arm", "seeds", "reward, last 10 updates", "less tito's", "reward, all updates", "less tito's")
MECHANISM = (
    *("arm", "rollouts drifted, first 10 updates", "last 10", "rollouts dropped"),
    *("k1", "k3", "k3, own ids", "ratio, mean", "clipped"),
    *(
        "gradient norm",
        "refused bridges",
        "ratio, largest",
        "trained ids that were not sampled",
        "prompt ids made of text",
    ),
    "prompt ids that a prefix cache has",
)
SECONDS = ("arm", "sampling", "rendering and stitching", "training")


def _share(runs: Sequence[Result], part: str, whole: str) -> float:
    return Estimate.of([one.share(part, whole) for one in runs]).mean


def sections(runs: Sequence[Result]) -> list[Section]:
    """Return the models and settings that have runs, in the order of their plans."""
    found = []
    for model in PLANS:
        for setting in SETTINGS:
            own = [one for one in runs if (one.model, one.setting) == (model, setting)]
            arms = {arm: [one for one in own if one.arm == arm] for arm in ARMS}
            found += [Section(model, setting, arms)] if own else []
    return found


def table(head: Sequence[str], lines: Iterator[list[str]]) -> str:
    """Return a table in Markdown.

    >>> print(table(("a", "b"), iter([["1", "2"]])))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    rows = [head, *lines]
    texts = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([texts[0], "|" + "---|" * len(head), *texts[1:]])


def write_page(folder: Path, page: Path) -> Iterator[str]:
    """Write the page, two pictures and the data of each update; yield the name of each file."""
    runs = read(folder)
    parts = sections(runs)
    for name, title, figure, log in (
        ("reward", "Mean reward by update", "reward", False),
        ("mismatch", "k3 of sampler and trainer", "k3", True),
    ):
        picture = page.with_name(f"{page.stem}-{name}.svg")
        panels = [panel(one.title, place, one.runs, figure, log=log) for place, one in enumerate(parts)]
        draw(picture, title, panels, [*ARMS])
        yield str(picture)
    data = page.with_name(f"{page.stem}.csv")
    write_data(data, runs)
    yield str(data)
    template = environment(Path(__file__).parent, keep_trailing_newline=True).get_template("page.md.jinja")
    given: dict[str, Any] = {
        "sections": parts,
        "tables": {
            one.title: (
                table(OUTCOME, one.outcome()),
                table(MECHANISM, one.mechanism()),
                table(SECONDS, one.seconds()),
            )
            for one in parts
        },
        "finished": sum(one.finished for one in runs),
        "planned": {(plan.name): plan.seeds * len(ARMS) * len(SETTINGS) for plan in PLANS.values()},
        "runs": len(runs),
        "hours": sum(line["seconds"] for one in runs for line in one.updates) / 3600,
        "game": game,
        "arms": ARMS,
        "settings": SETTINGS,
        "plans": PLANS,
        "stem": page.stem,
    }
    page.write_text(template.render(given), "utf-8")
    yield str(page)


def write_data(file: Path, runs: Sequence[Result]) -> None:
    """Write a line for each update of each run."""
    names = [name for name in runs[0].updates[0] if name != "of"] if runs else []
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(["model", "setting", "arm", "seed", *names])
        for one in runs:
            for line in one.updates:
                writer.writerow(
                    [one.model, one.setting, one.arm, one.seed, *(f"{line[name]:.5g}" for name in names)]
                )
