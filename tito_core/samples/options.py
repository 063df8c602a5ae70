"""Options of training rows. Every choice is an enumeration's member; its value says what it does."""

from __future__ import annotations

from enum import Enum
from typing import cast

import attrs

from ..checks import is_a
from ..errors import InputError
from .call import Ending
from .experts import MissingRow


class RowPer(Enum):
    """The unit of one row."""

    LEAF = "all turns up to a leaf"
    CALL = "one call, completion trained"


class Owner(Enum):
    """Which row trains a turn that several rows contain. The length is the one before a cut."""

    FIRST = "the row of the first leaf"
    LAST = "the row of the last leaf"
    LONGEST = "the row with most ids"


class Cut(Enum):
    """How to cut a row that is too long."""

    AT_TURN = "after the last turn that fits"
    INSIDE = "at the limit, inside a turn"


class Rewards(Enum):
    """Which reward a row gets.

    `BROADCAST` gives every row the whole reward. `DISCOUNTED` multiplies it by `discount` once for each turn
    of the conversation that was sampled after the row's last call, by `order`. `SUM` is for rewards of single
    turns, which each `RowTurn` has.
    """

    BROADCAST = "the conversation's only reward"
    PER_LEAF = "that of its last call"
    DISCOUNTED = "the only reward, discounted per later turn"
    SUM = "the sum of the conversation's rewards"


class TurnRule(Enum):
    """How to treat a turn that did not end with a sampled stop."""

    KEEP = "train it like any turn"
    MASK = "keep it untrained"
    END = "train it, drop what follows"
    DROP = "drop it and what follows"


class AuxiliaryRule(Enum):
    """How to treat calls that a program makes beside its conversation, such as for a title."""

    KEEP = "train them like any call"
    DROP = "drop them"


class Retries(Enum):
    """Which of several turns after the same prompt ids stay."""

    ALL = "every one"
    NEWEST = "the last one"
    EXTENDED = "those continued, else the last"


class ConversationScope(Enum):
    """Which calls share one weight and one reward."""

    FOREST = "all calls, with sub-agents"
    TREE = "calls that continue each other"


@attrs.frozen(kw_only=True)
class SampleOptions:
    """How rows are made. The defaults train every sampled id.

    Attributes:
        rows: What becomes a row.
        owner: Which row trains a turn that several rows contain.
        max_length: The most ids of a row; None for no limit.
        cut: Where a row that is too long ends.
        rewards: Which reward a row gets.
        discount: With `Rewards.DISCOUNTED` the factor per later turn, from 0 to 1; else None.
        conversation: Which calls share one weight and one reward.
        truncated: What happens to turns that were cut short, normally by length.
        aborted: What happens to turns whose finish reason is `abort`.
        empty: What happens to calls that sampled nothing. They never train.
        retries: Which of several turns after the same prompt ids stay.
        auxiliary: What happens to calls beside a conversation (see `auxiliary_calls`).
        missing_row: What to write at positions without routed experts.

    Raises:
        InputError: A value is not a member of its enumeration, `max_length` is not positive, `discount` is no
            factor from 0 to 1, or only one of `discount` and `Rewards.DISCOUNTED` is given.

    >>> SampleOptions(max_length=4).cut.name
    'AT_TURN'
    >>> SampleOptions(max_length=0)
    Traceback (most recent call last):
    tito_core.errors.InputError: max_length is 0: give a whole number of ids, one or more, or None
    """

    rows: RowPer = attrs.field(default=RowPer.LEAF, validator=is_a(RowPer))
    owner: Owner = attrs.field(default=Owner.FIRST, validator=is_a(Owner))
    max_length: int | None = attrs.field(default=None)
    cut: Cut = attrs.field(default=Cut.AT_TURN, validator=is_a(Cut))
    rewards: Rewards = attrs.field(default=Rewards.BROADCAST, validator=is_a(Rewards))
    discount: float | None = attrs.field(default=None)
    conversation: ConversationScope = attrs.field(
        default=ConversationScope.FOREST, validator=is_a(ConversationScope)
    )
    truncated: TurnRule = attrs.field(default=TurnRule.KEEP, validator=is_a(TurnRule))
    aborted: TurnRule = attrs.field(default=TurnRule.KEEP, validator=is_a(TurnRule))
    empty: TurnRule = attrs.field(default=TurnRule.DROP, validator=is_a(TurnRule))
    retries: Retries = attrs.field(default=Retries.ALL, validator=is_a(Retries))
    auxiliary: AuxiliaryRule = attrs.field(default=AuxiliaryRule.KEEP, validator=is_a(AuxiliaryRule))
    missing_row: MissingRow = attrs.field(default=MissingRow.SHORTER, validator=is_a(MissingRow))

    @max_length.validator
    def _is_length(self, _: object, value: object) -> None:
        if value is not None and (type(value) is not int or value < 1):
            raise InputError(f"max_length is {value!r:.60}: give a whole number of ids, one or more, or None")

    @discount.validator
    def _is_factor(self, _: object, value: object) -> None:
        if self.rewards is Rewards.DISCOUNTED:
            # Not isinstance: True is an int. NaN is in no range.
            if type(value) not in (int, float) or not 0 <= cast("float", value) <= 1:
                raise InputError(f"discount is {value!r:.60}: give a factor from 0 to 1, such as 0.9")
        elif value is not None:
            raise InputError(f"discount is {value!r:.60}, but only Rewards.DISCOUNTED uses it: choose that")

    def rule(self, ending: Ending) -> TurnRule:
        """Return what happens to a turn with this `ending`."""
        rules = {Ending.TRUNCATED: self.truncated, Ending.ABORTED: self.aborted, Ending.EMPTY: self.empty}
        return rules.get(ending, TurnRule.KEEP)
