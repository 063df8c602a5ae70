"""A policy chooses what follows cut turns and odd stops, and what is forgiven."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core import example
from tito_core import (
    InputError,
    Located,
    OddStop,
    Policy,
    Reason,
    Refusal,
    Stitched,
    Truncated,
    answer,
    continue_questions,
    locate,
    stitch_questions,
)
from tito_core.normalization.receipts import OPTIONAL, Forgiveness
from tito_core.seams.profile import Profile

SUFFIX = (example.CLOSE,)


@pytest.mark.parametrize(("stop_ids", "replaced"), [((), True), ((77, 78), True), ((78,), False)])
def test_a_text_that_ended_a_turn_is_not_replaced(stop_ids: tuple[int, ...], replaced: bool) -> None:
    """A stop string ends a turn with ids of text; where the stops are known, it is seen."""
    step, policy = example.step(sampled=[900, 77]), Policy(odd_stop=OddStop.REPLACE)
    profile = Profile(suffix=SUFFIX, stop_ids=stop_ids)
    located = locate([step], example.prompt(step), policy=policy)
    assert isinstance(located, Located)
    for asking in (
        stitch_questions([step], example.prompt(step), SUFFIX, policy=policy, profile=profile),
        continue_questions(located, SUFFIX, profile=profile),
    ):
        found = answer(asking, example.tokenize)
        if replaced:
            assert isinstance(found, Stitched)
            assert found.replaced_stop == 77
        else:
            assert isinstance(found, Refusal)
            assert (found.reason, found.detail[:23]) == (Reason.ODD_STOP, "the turn ended with 77,")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            {"odd_stop": "refuse"},
            "odd_stop is 'refuse': give OddStop.REFUSE or OddStop.REPLACE or OddStop.KEEP",
        ),
        ({"odd_stop": Truncated.REFUSE}, "odd_stop is <Truncated.REFUSE"),
        ({"truncated": None}, "truncated is None: give Truncated.CLOSE or Truncated.REFUSE"),
        ({"forgive": "dropped_reasoning"}, "forgive takes .*, not dropped_reasoning$"),
        ({"forgive": [Forgiveness.DROPPED_REASONING, "x"]}, "forgive takes .*, not x$"),
        ({"forgive": 5}, "forgive takes .*, not 5$"),
    ],
)
def test_a_policy_takes_enum_members_and_no_strings(wrong: dict[str, Any], words: str) -> None:
    """It would be taken for another."""
    with pytest.raises(InputError, match=f"^{words}"):
        Policy(**wrong)
    assert Policy(forgive=Forgiveness.DROPPED_REASONING).forgive == {Forgiveness.DROPPED_REASONING}


def test_a_policy_forgives_only_what_is_optional() -> None:
    wrong = (Forgiveness.CALL_KEYS, Forgiveness.ABSENT)
    with pytest.raises(InputError) as caught:
        Policy(forgive=wrong)
    message = str(caught.value).replace("Forgiveness.", "")
    names = ", ".join(sorted(one.name for one in OPTIONAL))
    assert message == f"forgive takes {names}, not ABSENT, CALL_KEYS"
