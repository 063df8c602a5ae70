"""The close of a turn is written once, whatever was sampled of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tito_core import Ids, OddStop, Policy, Reason, Refusal, Truncated
from tito_core.join import NextPrompt, SampledIds, join
from tito_core.ledger import Ledger, Origin
from tito_core.seams.close import Cut, overlap
from tito_core.seams.prove import Proof
from tito_core.seams.seam import Seam
from tito_core.seams.turn import LocatedTurn
from tito_core.seams.turn_form import TurnForm

KEEP, REPLACE = Policy(odd_stop=OddStop.KEEP), Policy(odd_stop=OddStop.REPLACE)
PROMPT = (1, 11, 50, 7, 8, 1, 12)


@pytest.mark.parametrize(
    ("completion", "bridge", "closed", "count"),
    [
        ([5, 7, 7], [7, 7, 1], 2, 2),
        ([5, 7], [7, 7, 1], 2, 1),
        ([5], [7, 7, 1], 2, 0),
        ([], [7, 1], 1, 0),
        ([5, 7, 1], [7, 1, 9], 1, 2),  # the opener that follows was sampled with the close
        ([5, 7, 1, 9], [7, 1, 9], 1, 0),  # not more than one id of it
        ([5, 8], [8, 1], 0, 1),
        ([5, 8, 1], [8, 1], 0, 0),
        ([7, 1, 7], [7, 1, 7, 2], 3, 3),  # it overlaps itself: the largest counts
    ],
)
def test_an_overlap_is_the_largest(completion: list[int], bridge: list[int], closed: int, count: int) -> None:
    assert overlap(completion, bridge, closed) == count
    assert overlap(completion, bridge, closed, stops=[77]) == count


@pytest.mark.parametrize(
    ("completion", "closed", "stops", "count"),
    [
        ([56, 7], 2, [7], 2),  # 5 and the 6 of the close were sampled as 56
        ([56, 7], 2, [], 0),
        ([56, 7], 1, [7], 2),  # the next role's marker, after a close without a stop
        ([56, 7], 1, [6, 7], 0),  # it stands after a close with another stop
        ([6, 7], 2, [7], 2),
        ([5, 6], 2, [7], 0),  # the stop is missing: its 6 is text
        ([5, 6], 2, [6], 1),
        ([5], 2, [7], 0),
        ([], 2, [7], 0),
    ],
)
def test_a_known_stop_in_the_close_shows_how_much_of_it_was_written(
    completion: list[int], closed: int, stops: list[int], count: int
) -> None:
    assert overlap(completion, [6, 7, 1, 13], closed, stops) == count


def test_a_known_stop_that_stands_twice_in_the_close_was_sampled_as_often_as_the_turn_has_it() -> None:
    assert overlap([56, 7], [6, 7, 7, 1], 3, [7]) == 2
    assert overlap([5, 6, 7], [6, 7, 7, 1], 3, [7]) == 2
    assert overlap([56, 7, 7], [6, 7, 7, 1], 3, [7]) == 3
    assert overlap([7, 56, 7, 7], [6, 7, 7, 1], 3, [7]) == 3
    assert overlap([56, 7], [6, 7, 7, 1], 3) == 0


def test_a_stop_that_follows_another_in_the_close_was_not_sampled_alone() -> None:
    """No engine samples past a stop, so that the first one would have been sampled, too."""
    assert overlap([5, 8], [7, 6, 8, 1], 3, [7, 8]) == 0
    assert overlap([5, 7], [7, 6, 8, 1], 3, [7, 8]) == 1
    assert overlap([5, 7, 6, 8], [7, 6, 8, 1], 3, [7, 8]) == 3


def test_where_a_turn_went_on_after_a_stop_a_shorter_overlap_is_no_longer_one() -> None:
    """All of the close with a merged beginning, or the first half of it, as it stands there."""
    assert overlap([5, 7, 6, 7], [6, 7, 6, 7, 1], 4, [7]) == 0
    assert overlap([56, 7, 6, 7], [6, 7, 6, 7, 1], 4, [7]) == 0
    assert overlap([6, 7, 6, 7], [6, 7, 6, 7, 1], 4, [7]) == 4


def test_what_stands_before_the_next_opener_was_sampled_with_it() -> None:
    """Where the suffix does not show it, because it depends on what follows."""
    assert overlap([5, 6, 6, 7], [6, 6, 7, 1], 0, [7]) == 3
    assert overlap([5, 6, 7], [6, 6, 7, 1], 0, [7]) == 0
    assert overlap([5, 6, 6, 7], [6, 6, 7, 1], 0, [7], counted=False) == 0  # the turn may begin after them


def proof(
    tail: Sequence[int], closed: int, speaks: int = 2, rest: Sequence[int] = (), sampled: int = 0
) -> Proof:
    """Return the proof of a tail, after so much of a call."""
    seam = Seam(ids=(1, 12, 50, *rest, *tail), place=3)
    located = LocatedTurn(context=(), form=TurnForm({}), environment=(), seam=seam)
    return Proof(located=located, cut=Cut(len(rest), closed, sampled), generation_prompt=speaks)


TAIL = (7, 8, 1, 11, 60, 7, 8, 1, 12)
"""A close of two ids, a user message, and what makes the model speak."""


def joined(
    turn: Sequence[int],
    *,
    truncated: bool | None = False,
    stops: Sequence[int] = (),
    policy: Policy | None = None,
    tail: Proof | None = None,
) -> NextPrompt | Refusal:
    sampled = ended(Ids.of(PROMPT).then(tuple(turn)), turn, truncated=truncated, stops=stops)
    return join(sampled, tail or proof(TAIL, 2), (7, 8), policy or Policy())


def ended(
    ids: Ids, turn: Sequence[int], *, truncated: bool | None = False, stops: Sequence[int] = ()
) -> SampledIds:
    """Return ids that end with a turn which was sampled, every id of it."""
    return SampledIds(
        ids=ids,
        turn=turn,
        count=len(turn),
        prompt_ledger=Ledger.prompt(len(ids) - len(turn)),
        truncated=truncated,
        stops=stops,
    )


def done(found: NextPrompt | Refusal) -> tuple[list[int], tuple[int, ...], int | None, int | None]:
    """Return the ids after the prompt, the inserted close, the replaced stop and the kept one."""
    assert isinstance(found, NextPrompt)
    ids = found.ids.tolist()
    assert ids[: len(PROMPT)] == list(PROMPT)
    assert ids[len(ids) - len(found.added) :] == list(found.added)
    kept = len(ids) - len(found.added) - len(PROMPT)
    close, prompt = len(found.inserted_close), found.generation_prompt
    assert found.ledger == Ledger.prompt(len(PROMPT)).then(
        (Origin.SAMPLED, kept),
        (Origin.INSERTED_CLOSE, close),
        (Origin.ENVIRONMENT, len(found.added) - close - prompt),
        (Origin.GENERATION_PROMPT, prompt),
    )
    return ids[len(PROMPT) :], found.inserted_close, found.replaced_stop, found.kept_stop


@pytest.mark.parametrize("truncated", [False, None])
@pytest.mark.parametrize(
    ("turn", "inserted"),
    [([50, 7], (8,)), ([50, 7, 8], ()), ([50, 7, 8, 1], ())],
)
def test_what_was_sampled_of_the_close_is_not_written_again(
    turn: list[int], inserted: tuple[int, ...], truncated: bool | None
) -> None:
    """Nor is the next opener, with which some engines stop."""
    assert done(joined(turn, truncated=truncated)) == ([50, *TAIL], inserted, None, None)


def test_the_whole_close_follows_a_turn_that_was_cut_unless_the_template_shows_that_it_began() -> None:
    for size, turn in enumerate(([50], [50, 7], [50, 7, 8])):
        assert done(joined(turn, truncated=True)) == ([*turn, *TAIL], (7, 8), None, None)
        assert done(joined(turn, truncated=True, stops=[7, 8])) == ([*turn, *TAIL], (7, 8), None, None)
        found = joined(turn, truncated=True, tail=proof(TAIL, 2, sampled=size))
        assert done(found) == ([50, *TAIL], (7, 8)[size:], None, None)


@pytest.mark.parametrize(
    ("turn", "stops", "ids", "inserted"),
    [
        ([50], [7], [50, *TAIL], (7, 8)),  # it ends with no known stop
        ([50, 7], [7], [50, *TAIL], (8,)),
        ([50, 7], [8], [50, 7, *TAIL], (7, 8)),  # its 7 is text: the stop in the close is missing
        ([50, 7, 8], [8], [50, *TAIL], ()),
        ([50, 8], [8], [50, 8, *TAIL[2:]], ()),  # the 7 merged with the text before it
        ([50, 7], [99], [50, *TAIL], (8,)),  # no stop stands in the close
        ([50, 7], [], [50, *TAIL], (8,)),
        ([], [7], [*TAIL], (7, 8)),
    ],
)
def test_known_stops_tell_a_cut_turn_where_nobody_else_does(
    turn: list[int], stops: list[int], ids: list[int], inserted: tuple[int, ...]
) -> None:
    assert done(joined(turn, truncated=None, stops=stops)) == (ids, inserted, None, None)


def test_an_unknown_cut_without_stops_is_an_odd_stop() -> None:
    assert joined([50], truncated=None) == Refusal(Reason.ODD_STOP, "the turn ended with 50, not (7,)")


@pytest.mark.parametrize("truncated", [True, None])
def test_a_policy_may_refuse_a_cut_turn(truncated: bool | None) -> None:
    refuse = Policy(truncated=Truncated.REFUSE)
    assert joined([50], truncated=truncated, stops=[7], policy=refuse) == Refusal(
        Reason.TRUNCATED, "the policy refuses turns that were cut short"
    )
    assert done(joined([50, 7], truncated=None, stops=[7], policy=refuse)) == ([50, *TAIL], (8,), None, None)


@pytest.mark.parametrize("stops", [(), (99,)])
@pytest.mark.parametrize("truncated", [False, None])
def test_an_odd_stop_is_refused_replaced_or_kept(truncated: bool | None, stops: tuple[int, ...]) -> None:
    turn = [50, 99]
    refused = joined(turn, truncated=truncated, stops=stops)
    assert refused == Refusal(Reason.ODD_STOP, "the turn ended with 99, not (7,)")
    kept = joined(turn, truncated=truncated, stops=stops, policy=KEEP)
    assert done(kept) == ([50, 99, *TAIL], (7, 8), None, 99)
    replaced = joined(turn, truncated=truncated, stops=stops, policy=REPLACE)
    assert done(replaced) == ([50, *TAIL], (7, 8), 99, None)


@pytest.mark.parametrize(
    ("turn", "inserted"), [([50, 7, 99], (8,)), ([50, 7, 8, 99], ()), ([50, 7, 8, 1, 99], ())]
)
def test_what_stands_of_the_close_before_a_replaced_stop_is_not_written_again(
    turn: list[int], inserted: tuple[int, ...]
) -> None:
    assert done(joined(turn, policy=REPLACE)) == ([50, *TAIL], inserted, 99, None)
    assert done(joined(turn, policy=KEEP)) == ([*turn, *TAIL], (7, 8), None, 99)


def test_replacing_does_not_remove_text() -> None:
    """Where the stops are known, an id that is none of them is the last of a text."""
    assert joined([50, 51], stops=[99], policy=REPLACE) == Refusal(
        Reason.ODD_STOP, "the turn ended with 51, not (7,)"
    )
    assert done(joined([50, 51], stops=[99], policy=KEEP)) == ([50, 51, *TAIL], (7, 8), None, 51)
    assert done(joined([50, 51], policy=REPLACE)) == ([50, *TAIL], (7, 8), 51, None)


@pytest.mark.parametrize("policy", [Policy(), KEEP, REPLACE])
def test_a_turn_of_no_ids_that_was_not_cut_is_refused(policy: Policy) -> None:
    assert joined([], policy=policy) == Refusal(Reason.ODD_STOP, "the turn ended with None, not (7,)")
    assert done(joined([], truncated=True, policy=policy)) == ([*TAIL], (7, 8), None, None)


@pytest.mark.parametrize("ids", [Ids.of([1, 2]).then((50,)).then((99,)), Ids.of([1, 2, 50, 99])])
def test_a_replaced_stop_is_taken_from_any_chain_of_ids(ids: Ids) -> None:
    found = join(ended(ids, (50, 99)), proof(TAIL, 2), (7, 8), REPLACE)
    assert isinstance(found, NextPrompt)
    assert found.ids == [1, 2, 50, *TAIL]
    assert ids == [1, 2, 50, 99]


def test_the_ids_before_are_shared() -> None:
    ids = Ids.of(PROMPT).then((50, 7))
    found = join(ended(ids, (50, 7)), proof(TAIL, 2), (7, 8), Policy())
    assert isinstance(found, NextPrompt)
    assert found.ids.extends(ids)


@pytest.mark.parametrize(
    ("turn", "ids", "inserted"),
    [
        ([50, 1], [50, 1, 11, 60, 1, 12], ()),  # the opener was sampled as the stop
        ([50], None, ()),
        ([50, 1, 11], None, ()),  # no more than one id of it
    ],
)
def test_where_nothing_closes_a_turn_the_next_opener_ends_it(
    turn: list[int], ids: list[int] | None, inserted: tuple[int, ...]
) -> None:
    found = joined(turn, tail=proof((1, 11, 60, 1, 12), 0))
    if ids is None:
        assert found == Refusal(Reason.ODD_STOP, f"the turn ended with {turn[-1]}, not (1,)")
    else:
        assert done(found) == (ids, inserted, None, None)
    cut = joined(turn, tail=proof((1, 11, 60, 1, 12), 0), truncated=True)
    assert done(cut) == ([*turn, 1, 11, 60, 1, 12], (), None, None)  # nothing was inserted of a close


def test_the_rest_of_a_call_is_not_written() -> None:
    """It was sampled, whatever ids it has."""
    found = joined([50, 30, 31, 7, 8], tail=proof(TAIL, 2, rest=(40, 41, 42)))
    assert done(found) == ([50, 30, 31, *TAIL], (), None, None)


@pytest.mark.parametrize("choice", OddStop)
def test_a_stop_that_is_not_known_is_no_odd_one_after_all_that_the_template_writes(choice: OddStop) -> None:
    """The suffix shows no close, where the template writes 6, 7 only once something follows."""
    tail, policy = proof((6, 7, 1, 11, 60, 1, 12), 0), Policy(odd_stop=choice)
    found = joined([50, 6, 7], tail=tail, policy=policy)
    assert found == Refusal(Reason.ODD_STOP, "the turn ended with 7, not (6,)")
    assert done(joined([50, 6, 7], tail=tail, stops=[7], policy=policy)) == (
        [50, 6, 7, 1, 11, 60, 1, 12],
        (),
        None,
        None,
    )


def test_an_id_of_the_rest_of_a_call_is_not_replaced_where_no_stops_are_known() -> None:
    """The template may close calls with it, and with more ids than other turns."""
    tail, policy = proof(TAIL, 2, rest=(40, 42)), Policy(odd_stop=OddStop.REPLACE)
    assert joined([50, 30, 42], tail=tail, policy=policy) == Refusal(
        Reason.ODD_STOP, "the turn ended with 42, not (7,)"
    )
    assert done(joined([50, 30, 43], tail=tail, policy=policy)) == ([50, 30, *TAIL], (7, 8), 43, None)


def test_a_close_that_begins_with_text_may_have_merged_with_the_turn() -> None:
    """The engine stopped at the 8 of 7, 8; the 7 was sampled as part of 57."""
    assert done(joined([57, 8], stops=[8])) == ([57, 8, *TAIL[2:]], (), None, None)
    for choice in OddStop:  # an unknown stop is shown by the template, or doubtful
        policy = Policy(odd_stop=choice)
        assert joined([57, 8], policy=policy) == Refusal(Reason.ODD_STOP, "the turn ended with 8, not (7,)")
        shown = joined([57, 8], policy=policy, tail=proof(TAIL, 2, sampled=2))
        assert done(shown) == ([57, 8, *TAIL[2:]], (), None, None)


@pytest.mark.parametrize(("speaks", "counted"), [(0, 0), (2, 2), (9, 7), (7, 7)])
def test_the_generation_prompt_is_no_more_than_what_follows_the_close(speaks: int, counted: int) -> None:
    found = joined([50], tail=proof(TAIL, 2, speaks), truncated=True)
    assert isinstance(found, NextPrompt)
    assert found.generation_prompt == counted
    runs = [(span.origin, span.stop - span.start) for span in found.ledger.spans]
    rest = [(Origin.ENVIRONMENT, 7 - counted), (Origin.GENERATION_PROMPT, counted)]
    assert runs[2:] == [(Origin.INSERTED_CLOSE, 2), *(run for run in rest if run[1])]


def test_a_turn_that_was_cut_has_no_stop() -> None:
    for truncated, stop in ((False, 6), (None, 6), (True, None)):
        for turn, last in (((5, 6), stop), ((), None)):
            sampled = ended(Ids.of([1, *turn]), turn, truncated=truncated)
            assert sampled.stop == last


@pytest.mark.parametrize(("policy", "kept"), [(Policy(), 2), (KEEP, 2), (REPLACE, 1)])
def test_what_was_sampled_and_what_was_not_is_in_the_ledger(policy: Policy, kept: int) -> None:
    """Where nobody knows how many were sampled, none counts as sampled; a replaced stop counts nowhere."""
    turn = [50, 7] if policy == Policy() else [50, 99]
    ids = Ids.of([1, 12, *turn])
    for count, prompt in ((2, 2), (1, 3), (0, 4)):
        sampled = SampledIds(
            ids=ids, turn=turn, count=count, prompt_ledger=Ledger.prompt(prompt), truncated=False, stops=()
        )
        found = join(sampled, proof(TAIL, 2), (7, 8), policy)
        assert isinstance(found, NextPrompt)
        assert sum(found.ledger.mask()) == max(count - (2 - kept), 0)
        assert found.ledger.spans[-1].stop == len(found.ids)


@pytest.mark.parametrize("truncated", [False, None])
def test_a_known_stop_in_the_close_must_have_been_sampled(truncated: bool | None) -> None:
    """Of a close that begins with text, such as a line break, the text alone closes nothing."""
    found = joined([50, 7], truncated=truncated, stops=[8])
    if truncated is None:
        assert done(found) == ([50, 7, *TAIL], (7, 8), None, None)
    else:
        assert found == Refusal(Reason.ODD_STOP, "the turn ended with 7, not (7,)")
