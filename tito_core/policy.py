"""What a caller may choose; the defaults are the strict, lossless ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

import attrs

from .errors import InputError
from .normalization.receipts import OPTIONAL, Forgiveness


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


def _forgiveness(names: object) -> frozenset[Forgiveness]:
    given = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    wrong = [name for name in given if not isinstance(name, Forgiveness) or name not in OPTIONAL]
    if wrong:
        known, odd = (", ".join(sorted(f"{one!s:.60}" for one in some)) for some in (OPTIONAL, wrong))
        raise InputError(f"forgive takes {known}, not {odd}")
    return frozenset(name for name in given if isinstance(name, Forgiveness))


def _one_of(kind: type[Enum]) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """Return a validator: a word that spells a choice is none, and would be taken for another."""

    def check(_: object, field: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind):
            raise InputError(f"{field.name} is {value!r:.60}: give {' or '.join(map(str, kind))}")

    return check


@attrs.frozen(kw_only=True)
class Policy:
    """Choices that a caller makes by name: `truncated`, `odd_stop` and `forgive`.

    Raises `InputError` for what is none of them. `from_data` reads them as words.

    >>> Policy(odd_stop=OddStop.REPLACE).truncated
    <Truncated.CLOSE: 'write the whole close after it, untrained and in the ledger'>
    """

    truncated: Truncated = attrs.field(default=Truncated.CLOSE, validator=_one_of(Truncated))
    """What becomes of a turn that was cut short."""
    odd_stop: OddStop = attrs.field(default=OddStop.REFUSE, validator=_one_of(OddStop))
    """What becomes of a turn that ended with another id than the template's close, or the next opener."""
    forgive: frozenset[Forgiveness] = attrs.field(default=frozenset(), converter=_forgiveness)
    """Optional differences that do not count when messages are matched."""


STRICT = Policy()
