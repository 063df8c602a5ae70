"""The values of a lint report that are about images, audio and video."""

from __future__ import annotations

from typing import Any

import attrs

EXACT, REFUSED, REJECTED = "exact", "refused", "rejected"
"""Verdicts, in the words of the tables."""
NUMBERED = "what is written for an image depends on the images before it"


@attrs.frozen(kw_only=True)
class ImageCase:
    """The finding for an image at one place.

    Attributes:
        place: Where the image stands, in words.
        verdict: `exact`, `refused`, or `rejected` if the template itself rejects an image there.
        reason: The name of the reason if it is refused.
        detail: What was seen then.
    """

    place: str
    verdict: str
    reason: str = ""
    detail: str = ""

    def __str__(self) -> str:
        why = ": ".join(filter(None, (self.reason, self.detail)))
        return f"{self.place}: {self.verdict}{f', {why}' if why else ''}"


@attrs.frozen(kw_only=True)
class MediaReport:
    """What a template does with images, and what it writes for audio and video.

    Attributes:
        placeholder: The ids that it writes for an image and an engine expands; empty if they are unknown.
        placeholder_text: Their text.
        written: The text that it writes for an image part; empty if it writes none.
        problem: Why images go by messages, or what has to be named first; empty if nothing is wrong.
        numbered: Whether what it writes for an image depends on earlier images.
        cases: What was found at each place where an image may stand.
        others: Why audio and video are not supported, by modality.
    """

    placeholder: tuple[int, ...] = ()
    placeholder_text: str = ""
    written: str = ""
    problem: str = ""
    numbered: bool = False
    cases: tuple[ImageCase, ...] = ()
    others: tuple[tuple[str, str], ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The findings in words: images first, then their places, audio and video."""
        ids = " ".join(map(str, self.placeholder))
        named = f", in which the engine expands `{self.placeholder_text}` ({ids})" if ids else ""
        images = f"written as `{self.written}`{named}" if self.written else "not supported"
        pieces = (images, self.problem, NUMBERED if self.numbered else "")
        return (
            f"images: {'; '.join(filter(None, pieces))}",
            *map(str, self.cases),
            *(f"{modality}: {why}" for modality, why in self.others if self.written),
        )


def media_to_json(report: MediaReport) -> dict[str, Any]:
    """Return what was found as plain data."""
    return {
        "placeholder": list(report.placeholder),
        "placeholder_text": report.placeholder_text,
        "written": report.written,
        "problem": report.problem or None,
        "numbered": report.numbered,
        "cases": [{**attrs.asdict(one), "reason": one.reason or None} for one in report.cases],
        "not_supported": dict(report.others),
    }
