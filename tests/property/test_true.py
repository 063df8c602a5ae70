"""Law 2. True.

What follows is what the template writes after that assistant turn in the *real* conversation: the ids of
the tail of the full render. For a family whose re-render keeps the history, the result decodes to the full
render.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import OddStop, Policy, Truncated, stitch
from tito_core.testing.readings import readings
from tito_core.testing.strategies.sampled import shown
from tito_core.testing.strategies.stitch_input import (
    ANY_INPUT,
    INPUT_OF,
    TIDY_INPUT,
    TIDY_INPUT_OF,
    StitchInput,
)
from tito_core.testing.tails import pages
from tito_core.testing.toys import TOYS, Toy

STRICT = Policy()
POLICIES = [Policy(truncated=cut, odd_stop=odd) for cut in Truncated for odd in OddStop]
EACH_FAMILY = pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)


def check(stitch_input: StitchInput, policy: Policy = STRICT) -> None:
    """Compare the kernel's answer with every right one; a refusal is right always."""
    found = stitch(
        stitch_input.steps,
        stitch_input.prompt,
        stitch_input.suffix,
        stitch_input.toy,
        policy=policy,
        key=stitch_input.key,
    )
    right = oracle.answers(
        stitch_input.toy,
        stitch_input.steps,
        stitch_input.prompt,
        stitch_input.suffix,
        policy,
        stitch_input.key,
    )
    if found is not None and right is not None:
        assert found in [answer.ids for answer in right]


@EACH_FAMILY
@given(data=st.data())
@tries(1 / 4)
def test_what_follows_the_sampled_ids_is_the_tail_of_the_real_conversation(
    toy: Toy, data: st.DataObject
) -> None:
    check(data.draw(INPUT_OF[toy.name]))


@EACH_FAMILY
@given(data=st.data())
@tries(1 / 4)
def test_a_turn_that_ended_as_it_should_is_followed_by_its_real_tail(toy: Toy, data: st.DataObject) -> None:
    check(data.draw(TIDY_INPUT_OF[toy.name]))


@given(ANY_INPUT)
@tries(2)
def test_a_policy_chooses_what_becomes_of_the_stop_and_never_what_the_template_writes(
    stitch_input: StitchInput,
) -> None:
    for policy in POLICIES:
        check(stitch_input, policy)


@given(TIDY_INPUT, st.sampled_from(TOYS))
@tries(3)
def test_a_suffix_of_another_family_never_gives_a_wrong_tail(stitch_input: StitchInput, other: Toy) -> None:
    found = stitch(stitch_input.steps, stitch_input.prompt, other.suffix, stitch_input.toy)
    right = oracle.answers(stitch_input.toy, stitch_input.steps, stitch_input.prompt, other.suffix, STRICT)
    assert found is None or right is None or found in [one.ids for one in right]


@given(TIDY_INPUT)
@tries(3)
def test_a_history_that_is_kept_decodes_to_the_full_render(stitch_input: StitchInput) -> None:
    taken = shown(stitch_input.toy, stitch_input.prompt)
    found = stitch(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, stitch_input.toy)
    if found is None or taken is None or not stitch_input.toy.keeps:
        return
    ways = [page.text for group in readings(stitch_input.prompt) for page in pages(stitch_input.toy, group)]
    assert stitch_input.toy.tokenizer.decode(found) in ways
