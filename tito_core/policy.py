"""What a caller may choose; the defaults are the strict, lossless ones."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import attrs

from .errors import InputError
from .forgiveness import OPTIONAL, Forgiveness


class Truncated(Enum):
    """What to do with a turn that was cut short."""

    CLOSE = "write the whole close after it, untrained and in the ledger"
    REFUSE = "refuse, so that the prompt goes by messages"


class OddStop(Enum):
    """What to do with a turn whose last id is neither its close nor the next opener."""

    REFUSE = "refuse, so that the prompt goes by messages"
    REPLACE = (
        "put the template's close in the place of the sampled stop; a profile's `stop_ids` tell it from text"
    )
    KEEP = "keep the sampled stop and write the template's close after it"


def _forgiveness(names: Iterable[Forgiveness]) -> frozenset[Forgiveness]:
    chosen = frozenset(names)
    wrong = ", ".join(sorted(map(str, chosen - OPTIONAL)))
    if wrong:
        raise InputError(f"forgive takes {', '.join(sorted(map(str, OPTIONAL)))}, not {wrong}")
    return chosen


@attrs.frozen(kw_only=True)
class Policy:
    """Choices that a caller makes by name.

    >>> Policy(odd_stop=OddStop.REPLACE).truncated
    <Truncated.CLOSE: 'write the whole close after it, untrained and in the ledger'>
    """

    truncated: Truncated = Truncated.CLOSE
    odd_stop: OddStop = OddStop.REFUSE
    forgive: frozenset[Forgiveness] = attrs.field(default=frozenset(), converter=_forgiveness)
    """Optional differences that do not count when messages are matched."""


STRICT = Policy()
