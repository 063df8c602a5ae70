"""Options of training rows refuse what is no member of their enumeration."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tito_core import InputError
from tito_core.samples import Ending
from tito_core.samples.options import Cut, Rewards, SampleOptions, TurnRule


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"max_length": 0}, "max_length is 0"),
        ({"max_length": True}, "max_length is True"),
        ({"max_length": "9"}, "max_length is '9'"),
        ({"owner": "first"}, "owner is 'first': give Owner.FIRST or Owner.LAST or Owner.LONGEST"),
        ({"truncated": Cut.INSIDE}, "truncated is .*: give TurnRule.KEEP or"),
        ({"rows": None}, "rows is None: give RowPer.LEAF or RowPer.CALL"),
        ({"discount": 0.9}, "discount is 0.9, but only Rewards.DISCOUNTED uses it"),
        ({"rewards": Rewards.DISCOUNTED}, "discount is None: give a factor from 0 to 1"),
        ({"rewards": Rewards.DISCOUNTED, "discount": 1.5}, "discount is 1.5: give a factor from 0 to 1"),
        ({"rewards": Rewards.DISCOUNTED, "discount": math.nan}, "discount is nan: give a factor"),
        ({"rewards": Rewards.DISCOUNTED, "discount": True}, "discount is True: give a factor"),
        ({"rewards": Rewards.DISCOUNTED, "discount": "1"}, "discount is '1': give a factor"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_by_name(change: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        SampleOptions(**change)


@pytest.mark.parametrize(
    ("ending", "rule"),
    [
        (Ending.WHOLE, TurnRule.KEEP),
        (Ending.TRUNCATED, TurnRule.DROP),
        (Ending.ABORTED, TurnRule.MASK),
        (Ending.EMPTY, TurnRule.END),
    ],
)
def test_each_ending_has_its_rule_and_a_whole_turn_is_kept(ending: Ending, rule: TurnRule) -> None:
    options = SampleOptions(truncated=TurnRule.DROP, aborted=TurnRule.MASK, empty=TurnRule.END)
    assert options.rule(ending) is rule
