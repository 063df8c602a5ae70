"""A streamed turn of `/generate`, put together event by event.

By default every event repeats the turn so far; a server started with `--incremental-streaming-output` sends
what is new. A request cannot choose, and an answer does not say. The engine's count of sampled ids, which is
the whole turn's in both manners, tells them apart, event by event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import attrs

from tito_io.engines.protocol import Delta
from tito_io.engines.replies.invariants import Check

from .replies import refused

T = TypeVar("T")


@attrs.define
class Growth:
    """One turn, as far as it has come."""

    index: int
    """Which of the turns of its request it is."""
    ids: list[int] = attrs.field(factory=list)
    triples: list[Any] = attrs.field(factory=list)
    """Log-probabilities as SGLang sends them."""
    text: str = ""
    rest: dict[str, Any] = attrs.field(factory=dict)
    """What the latest event said beside."""

    def add(self, check: Check, event: dict[str, Any]) -> Delta:
        """Take in an event; return what is new in it. Where it does not add up, nothing is taken in.

        In the incremental manner, an abort's event repeats the last id after ids that were not sent yet, if
        there are such, and all of the log-probabilities after those of the latter.
        """
        info = check.get(event, "meta_info", dict)
        refused(check, info)
        total = check.get(info, "completion_tokens", int)
        found = check.ids(event, "output_ids")
        aborted = (info.get("finish_reason") or {}).get("type") == "abort"
        whole = len(found) == total
        fresh = found[: max(total - len(self.ids), 0)] if aborted and not whole else found
        ids = self._news(check, "sampled ids", fresh, total)
        if whole and list(found[: len(self.ids)]) != self.ids:
            check.fail("the stream took sampled ids back")
        values = info.get("output_token_logprobs") or ()
        triples = self._news(
            check, "log-probabilities", values[-total:] if aborted and total else values, total
        )
        text = self._text(event.get("text"), whole=whole, aborted=aborted)
        self.ids += ids
        self.triples += triples
        self.rest = {**event, "meta_info": info}
        return Delta(ids=tuple(ids), logprobs=_values(triples, len(ids)), text=text, index=self.index)

    def item(self) -> dict[str, Any]:
        """Return the turn as it would have come in one piece."""
        info = {**self.rest.get("meta_info", {}), "output_token_logprobs": self.triples}
        return {**self.rest, "text": self.text, "output_ids": self.ids, "meta_info": info}

    def _news(self, check: Check, what: str, found: Sequence[T], total: int) -> Sequence[T]:
        """Return what the turn did not have yet, of the whole turn's values or of the new ones."""
        have = len(self.ids)
        if len(found) == total:
            return found[have:]
        if len(found) != total - have:
            check.fail(f"{len(found)} {what} after {have}, where the engine counts {total} in all")
        return found

    def _text(self, found: object, *, whole: bool, aborted: bool) -> str:
        """Take in the text; return what is new. A stop string may take back what was already shown."""
        said = found if isinstance(found, str) else ""
        if not whole:
            said = self.text if aborted else self.text + said  # an abort's event has the whole text again
        news = said[len(self.text) :] if said.startswith(self.text) else ""
        self.text = said
        return news


def _values(triples: Sequence[Any], count: int) -> tuple[float | None, ...] | None:
    """Return the log-probabilities of new ids, None where they did not come along."""
    if len(triples) != count or not all(isinstance(triple, list) and triple for triple in triples):
        return None
    return tuple(triple[0] for triple in triples)
