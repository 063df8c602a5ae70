"""Answers of frameworks: judged, counted, and passed from their environments as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import attrs

EQUAL, DIFFERENT, RAISES, REFUSED = "equal", "different", "raises", "refused"
VERDICTS = (EQUAL, DIFFERENT, RAISES, REFUSED)
ENDINGS = ("whole", "cut", "odd stop")


@attrs.frozen
class Answer:
    """What one way makes of one turn.

    Attributes:
        framework: The framework whose environment it ran in.
        way: "own", or "tito" for the integration.
        family: The model folder.
        case: The conversation.
        ending: How the turn ended; one of `ENDINGS`.
        verdict: One of `VERDICTS`. A refusal is a value by which the framework renders everything again.
        cause: Why it raised or refused, or what differs.
        renders: Renders of the chat template.
        milliseconds: The processor time that the answer took, the second time.
    """

    framework: str
    way: str
    family: str
    case: str
    ending: str
    verdict: str
    cause: str
    renders: int
    milliseconds: float

    @classmethod
    def read(cls, line: str) -> Answer:
        """Return the answer that a line holds."""
        return cls(**json.loads(line))

    def line(self) -> str:
        """Return the answer as a line."""
        return json.dumps(attrs.asdict(self))


@attrs.frozen
class Row:
    """All answers of one way to turns of one ending.

    Attributes:
        framework: The framework, with its version.
        way: "own" or "tito".
        ending: How the turns ended.
        counts: How many answers have each verdict.
        renders: The median number of renders.
        milliseconds: The median time.
    """

    framework: str
    way: str
    ending: str
    counts: dict[str, int]
    renders: float
    milliseconds: float


def middle(numbers: Iterable[float]) -> float:
    """Return the median; 0 for no numbers.

    >>> middle([3, 1, 2])
    2
    """
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2] if ordered else 0


def rows(answers: Sequence[Answer], versions: dict[str, str]) -> list[Row]:
    """Return a row for each framework, way and ending."""
    found = []
    for framework in sorted({one.framework for one in answers}):
        for way in ("own", "tito"):
            for ending in ENDINGS:
                chosen = [
                    one for one in answers if (one.framework, one.way, one.ending) == (framework, way, ending)
                ]
                answered = [one for one in chosen if one.verdict in (EQUAL, DIFFERENT)]
                if chosen:
                    found.append(
                        Row(
                            f"{framework} {versions[framework]}",
                            way,
                            ending,
                            {verdict: sum(one.verdict == verdict for one in chosen) for verdict in VERDICTS},
                            middle(one.renders for one in answered),
                            middle(one.milliseconds for one in answered),
                        )
                    )
    return found
