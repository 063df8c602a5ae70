"""A measured run, as tables or as one JSON object."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import attrs
import orjson
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tito_io.audit.rates import count, share
from tito_io.audit.report import AuditReport
from tito_io.audit.report import summary as audited
from tito_io.client.token_client import Counts

from .proof import Proof
from .rates import Rate

CAVEAT = (
    "The model has random weights: these are rates of what happens to ids that were sampled so, and say "
    "nothing of how often a trained model samples them."
)
WRONG = 20
"""How many wrongs are shown."""


@attrs.frozen(kw_only=True)
class Found:
    """What came of one voice's conversations."""

    voice: str
    told: str
    """What was done to make the text."""
    proof: Proof
    report: AuditReport
    rates: list[Rate]
    counts: Counts

    @property
    def holds(self) -> bool:
        """Whether the rows are what was heard, and every line could be read."""
        return self.proof.holds and not self.report.problems

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "voice": self.voice,
            "told": self.told,
            "holds": self.holds,
            "proof": attrs.asdict(self.proof),
            "routes": {route.name: number for route, number in self.counts.routes.items()},
            "refusals": {reason.name: number for reason, number in self.counts.refusals.items()},
            "errors": dict(self.counts.errors),
            "causes": [attrs.asdict(rate) for rate in self.rates],
            "audit": audited(self.report),
        }


@attrs.frozen(kw_only=True)
class Outcome:
    """A whole run."""

    engine: str
    seed: int
    seconds: float
    """Of the conversations alone."""
    looked: float
    """Seconds that rows and audit took."""
    acts: Counter[str]
    errors: list[str]
    found: list[Found]

    @property
    def holds(self) -> bool:
        """Whether nothing is amiss."""
        return not self.errors and bool(self.found) and all(one.holds for one in self.found)

    def to_json(self) -> bytes:
        """Return it as one JSON object."""
        plain = attrs.asdict(self, recurse=False) | {"acts": dict(self.acts), "caveat": CAVEAT}
        return orjson.dumps(plain | {"holds": self.holds, "found": [one.to_json() for one in self.found]})

    def shown(self) -> Group:
        """Return it for people."""
        calls = sum(one.proof.calls for one in self.found)
        rollouts = sum(one.report.tally.conversations for one in self.found)
        head = (
            f"{self.engine}, seed {self.seed}: {count(rollouts, 'conversation')}, {count(calls, 'call')} in "
            f"{self.seconds:.0f} s, rows and audit in {self.looked:.0f} s"
        )
        acts = ", ".join(f"{act} {number:,}" for act, number in self.acts.most_common())
        parts: list[Text | Table] = [Text(head, style="bold"), Text(f"the agent: {acts}")]
        for one in self.found:
            parts += [Text(f"\n{one.voice}", style="bold"), Text(one.told, style="dim"), *_lines(one)]
        parts += [Text(f"amiss: {error}", style="red") for error in self.errors[:WRONG]]
        return Group(*parts, Text(f"\n{CAVEAT}", style="yellow"))


def _lines(found: Found) -> Iterable[Text | Table]:
    """Yield what is said of one voice."""
    proof = found.proof
    verdict = f"{proof.trained:,} of {proof.sampled:,} sampled ids train once, in {count(proof.rows, 'row')}"
    told = "byte for byte as heard on the wire" if found.holds else "NOT as heard on the wire"
    yield Text(f"{verdict}, {told}", style="green" if found.holds else "bold red")
    yield from (Text(f"  {wrong}", style="red") for wrong in proof.wrong[:WRONG])
    yield Text(f"routes: {_counted(route.name for route in found.counts.routes.elements())}")
    yield Text(f"refusals: {_counted(reason.name.lower() for reason in found.counts.refusals.elements())}")
    if found.counts.errors:
        yield Text(f"errors: {_counted(found.counts.errors.elements())}")
    yield _causes(found)


def _counted(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {number:,}" for name, number in Counter(names).most_common()) or "none"


def _causes(found: Found) -> Table:
    """Return rates by cause, and whatever the cause."""
    tally = found.report.tally
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in ("cause", "breaks", "ids", "of ids", "of turns", "of rollouts"):
        made.add_column(heading, justify="left" if heading == "cause" else "right")
    for rate in found.rates:
        shares = (share(rate.by_token), share(rate.by_turn), share(rate.by_rollout))
        made.add_row(rate.cause, f"{rate.breaks:,}", f"{rate.ids:,}", *shares)
    made.add_section()
    shares = (share(tally.by_token), share(tally.by_turn), share(tally.by_rollout))
    made.add_row("any", f"{tally.breaks:,}", f"{tally.changed_ids:,}", *shares, style="bold")
    made.caption = (
        f"of {tally.followed_ids:,} ids, {tally.turns:,} turns, {tally.conversations:,} rollouts; a merging "
        f"trainer loses {share(tally.lost)} of its ids, a prefix cache "
        f"{share(tally.reuse_lost / tally.cached_by_ids if tally.cached_by_ids else None)}"
    )
    made.caption_justify = "left"
    return made
