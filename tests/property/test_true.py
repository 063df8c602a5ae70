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
from tests.strategies import ANY_WORLD, TIDY_WORLD, TIDY_WORLD_OF, WORLD_OF, World, shown, tries
from tests.toys import TOYS, Toy
from tito_core import OddStop, Policy, Truncated, stitch

STRICT = Policy()
POLICIES = [Policy(truncated=cut, odd_stop=odd) for cut in Truncated for odd in OddStop]
EACH_FAMILY = pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)


def check(world: World, policy: Policy = STRICT) -> None:
    """Compare the kernel's answer with every right one; a refusal is right always."""
    found = stitch(world.steps, world.prompt, world.suffix, world.toy, policy=policy, key=world.key)
    right = oracle.answers(world.toy, world.steps, world.prompt, world.suffix, policy, world.key)
    if found is not None and right is not None:
        assert found in [answer.ids for answer in right]


@EACH_FAMILY
@given(data=st.data())
@tries(1 / 4)
def test_what_follows_the_sampled_ids_is_the_tail_of_the_real_conversation(
    toy: Toy, data: st.DataObject
) -> None:
    check(data.draw(WORLD_OF[toy.name]))


@EACH_FAMILY
@given(data=st.data())
@tries(1 / 4)
def test_a_turn_that_ended_as_it_should_is_followed_by_its_real_tail(toy: Toy, data: st.DataObject) -> None:
    check(data.draw(TIDY_WORLD_OF[toy.name]))


@given(ANY_WORLD)
@tries(2)
def test_a_policy_chooses_what_becomes_of_the_stop_and_never_what_the_template_writes(world: World) -> None:
    for policy in POLICIES:
        check(world, policy)


@given(TIDY_WORLD, st.sampled_from(TOYS))
@tries(3)
def test_a_suffix_of_another_family_makes_nothing_untrue(world: World, other: Toy) -> None:
    found = stitch(world.steps, world.prompt, other.suffix, world.toy)
    right = oracle.answers(world.toy, world.steps, world.prompt, other.suffix, STRICT)
    assert found is None or right is None or found in [one.ids for one in right]


@given(TIDY_WORLD)
@tries(3)
def test_a_history_that_is_kept_decodes_to_the_full_render(world: World) -> None:
    taken = shown(world.toy, world.prompt)
    found = stitch(world.steps, world.prompt, world.suffix, world.toy)
    if found is None or taken is None or not world.toy.keeps:
        return
    ways = [page.text for group in oracle.readings(world.prompt) for page in oracle.pages(world.toy, group)]
    assert world.toy.tokenizer.decode(found) in ways
