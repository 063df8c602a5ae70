"""Policies: the choices of a caller. The defaults are strict and lose no sampled id."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import attrs

from .checks import is_a
from .errors import InputError
from .normalization.receipts import OPTIONAL, Forgiveness


class Truncated(Enum):
    """How to continue a turn that was cut short."""

    CLOSE = "write what is missing of the close after it, untrained and in the ledger"
    REFUSE = "refuse, so that the prompt goes by messages"


class OddStop(Enum):
    """How to continue a turn whose last id is neither the template's close nor the next opener."""

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


def _keys(names: object) -> frozenset[str]:
    given = list(names) if isinstance(names, Iterable) and not isinstance(names, str) else [names]
    if not all(isinstance(name, str) for name in given):
        raise InputError("further_keys takes names of keys: give a set of strings")
    return frozenset(map(str, given))


@attrs.frozen(kw_only=True)
class Policy:
    """Choices that a caller makes by name. `tito_core.data.from_data` reads them as words.

    Attributes:
        truncated: What to do with a turn that was cut short; `Truncated.CLOSE` unless given.
        odd_stop: What to do with a turn that ended with an odd stop; `OddStop.REFUSE` unless given.
        forgive: Optional differences between messages that do not prevent a match; none unless given.
        further_keys: Keys of messages that must be equal, too, beside those that always must; none unless
            given. Keys that the template is seen to read need not be named.

    Raises:
        InputError: A field holds something else, such as a word that spells a choice.

    >>> Policy(odd_stop=OddStop.REPLACE).truncated
    <Truncated.CLOSE: 'write what is missing of the close after it, untrained and in the ledger'>
    """

    truncated: Truncated = attrs.field(default=Truncated.CLOSE, validator=is_a(Truncated))
    odd_stop: OddStop = attrs.field(default=OddStop.REFUSE, validator=is_a(OddStop))
    forgive: frozenset[Forgiveness] = attrs.field(default=frozenset(), converter=_forgiveness)
    further_keys: frozenset[str] = attrs.field(default=frozenset(), converter=_keys)


STRICT = Policy()
