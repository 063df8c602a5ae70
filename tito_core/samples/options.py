"""What may be chosen about training rows; every choice has a name."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs

from ..errors import InputError
from .call import Ending
from .experts import MissingRow


class RowPer(Enum):
    """What becomes a row."""

    LEAF = "a row holds all turns on the way to a leaf, and trains those that it owns"
    CALL = "a row holds one call, and trains its completion"


class Owner(Enum):
    """Which row trains a turn that several contain."""

    FIRST = "the one whose leaf comes first by its key"
    LAST = "the one whose leaf comes last"
    LONGEST = "the one whose leaf has the most ids; of equals the first"


class Cut(Enum):
    """Where a row that is too long ends."""

    AT_TURN = "after the last turn that fits"
    INSIDE = "at the maximum, inside a turn if need be"


class Rewards(Enum):
    """Which reward a row gets."""

    BROADCAST = "the conversation's only reward, whole on each row"
    PER_LEAF = "its own last call's"


class TurnRule(Enum):
    """What happens to a turn that did not end by itself."""

    KEEP = "it trains like any other"
    MASK = "it stays in its rows and trains nothing"
    END = "it trains, and what continues it is left out"
    DROP = "it is left out with all that continues it"


class Retries(Enum):
    """Which of several turns after the same prompt ids stay."""

    ALL = "all"
    NEWEST = "the last by its key"
    EXTENDED = "those that some call continues; the last by its key where none does"


class ConversationScope(Enum):
    """What shares one weight and one reward."""

    FOREST = "all calls of a forest: a rollout with its sub-agents"
    TREE = "the calls that hang together"


def _choice(_: object, field: attrs.Attribute[Any], value: object) -> None:
    """Check that a value is of its default's kind, and name the choices where it is not."""
    kind: type[Enum] = type(field.default)  # type: ignore[assignment]  # every default here is an Enum
    if not isinstance(value, kind):
        choices = ", ".join(f"{kind.__name__}.{name}" for name in kind.__members__)
        raise InputError(f"{field.name} is {value!r:.60}: give one of {choices}")


@attrs.frozen(kw_only=True)
class SampleOptions:
    """How rows are made; the defaults lose nothing that was sampled.

    >>> SampleOptions(max_length=4).cut.name
    'AT_TURN'
    >>> SampleOptions(max_length=0)
    Traceback (most recent call last):
    tito_core.errors.InputError: max_length is 0: give a whole number of ids, one or more, or None
    """

    rows: RowPer = attrs.field(default=RowPer.LEAF, validator=_choice)
    owner: Owner = attrs.field(default=Owner.FIRST, validator=_choice)
    max_length: int | None = attrs.field(default=None)
    """The most ids of a row; None for no limit."""
    cut: Cut = attrs.field(default=Cut.AT_TURN, validator=_choice)
    rewards: Rewards = attrs.field(default=Rewards.BROADCAST, validator=_choice)
    conversation: ConversationScope = attrs.field(default=ConversationScope.FOREST, validator=_choice)
    truncated: TurnRule = attrs.field(default=TurnRule.KEEP, validator=_choice)
    """For turns that were cut short, by length above all."""
    aborted: TurnRule = attrs.field(default=TurnRule.KEEP, validator=_choice)
    """For turns whose finish reason is `abort`."""
    empty: TurnRule = attrs.field(default=TurnRule.DROP, validator=_choice)
    """For calls that sampled nothing: they train nothing, and at most give a row a longer end."""
    retries: Retries = attrs.field(default=Retries.ALL, validator=_choice)
    missing_row: MissingRow = attrs.field(default=MissingRow.SHORTER, validator=_choice)
    """What stands where no engine sent routed experts."""

    @max_length.validator
    def _is_length(self, _: object, value: object) -> None:
        if value is not None and (type(value) is not int or value < 1):
            raise InputError(f"max_length is {value!r:.60}: give a whole number of ids, one or more, or None")

    def rule(self, ending: Ending) -> TurnRule:
        """Return what happens to a turn that ended so."""
        rules = {
            Ending.TRUNCATED: self.truncated,
            Ending.ABORTED: self.aborted,
            Ending.EMPTY: self.empty,
        }
        return rules.get(ending, TurnRule.KEEP)
