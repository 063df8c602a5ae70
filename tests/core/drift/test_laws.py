"""Laws of the audit, over conversations in which anything may go wrong at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.core.drift.drifting import (
    END,
    OTHER_END,
    TOY,
    Family,
    Talk,
    Voice,
    closing,
    forgetful,
    letters,
    says,
    shouting,
    spoken,
    trimming,
    user,
)
from tests.forests import CALLS
from tito_core.drift.audit import Audited, Auditor, audit
from tito_core.drift.breaks import Break, BreakSelection, Cause
from tito_core.drift.diff import Hunk, find_hunks, packed
from tito_core.drift.predecessor import By, find_predecessors
from tito_core.drift.renderings import ComparedRendering, PromptRenderings
from tito_core.drift.tally import Tally
from tito_core.drift.text import compare
from tito_core.samples import Forest, StoredCall

VOICES: tuple[Voice, ...] = (spoken, forgetful, trimming, shouting, closing)
TEXTS = ("abba", "yes", "<think>ab</think>yes", "no \n", "<think>", "", "yes, yes, yes, ab", "7<tool_call>ab")
IDS = st.lists(st.integers(1, 4), max_size=14)


@attrs.frozen
class Turn:
    """What goes wrong in a turn."""

    text: str
    spelled: bool
    stop: str
    parsed: str
    edit: int
    tools: bool
    by_ids: bool
    back: int


TURNS = st.lists(
    st.builds(
        Turn,
        text=st.sampled_from(TEXTS),
        spelled=st.booleans(),
        stop=st.sampled_from((END, END, END, OTHER_END, "")),
        parsed=st.sampled_from(("as it is", "as it is", "stripped", "thinking apart", "thinking lost")),
        edit=st.sampled_from((-1, -1, -1, 0, 1)),
        tools=st.sampled_from((False, False, False, True)),
        by_ids=st.sampled_from((True, True, False)),
        back=st.sampled_from((0, 0, 0, 1)),
    ),
    min_size=1,
    max_size=6,
)
FAMILIES = st.builds(
    Family,
    voice=st.sampled_from(VOICES),
    opening=st.sampled_from(("", "", "Hi. ")),
    end=st.sampled_from((END, END, OTHER_END)),
)


def message(turn: Turn) -> dict[str, object]:
    before, mark, after = turn.text.partition("</think>")
    if turn.parsed == "thinking apart" and mark:
        return says(after, reasoning_content=before.removeprefix("<think>"))
    if turn.parsed == "thinking lost" and mark:
        return says(after)
    return says(turn.text.strip() if turn.parsed == "stripped" else turn.text)


def talked(turns: Sequence[Turn]) -> list[StoredCall]:
    """Take turns, some of which go back to an earlier one."""
    made: list[StoredCall] = []
    for number, turn in enumerate(turns):
        base = made[-1 - turn.back] if len(made) > turn.back else None
        talk = Talk(calls=[] if base is None else [base], by_ids=turn.by_ids)
        spell = letters if turn.spelled else TOY.encode
        prompt = [*(base.step.messages if base else ()), user(f"go on {number}")]
        if 0 <= turn.edit < len(prompt):
            prompt[turn.edit] = {**prompt[turn.edit], "content": "edited"}
        talk.turn(
            "",
            message(turn),
            ids=spell(turn.text + turn.stop),
            truncated=not turn.stop,
            prompt=prompt,
            asked=[user(f"go on {number}")],
            tools=[{"name": "f"}] if turn.tools else [],
        )
        made.append(attrs.evolve(talk.calls[-1], name=f"t{number}", order=number))
    return made


def replayed(used: Sequence[int], rendered: Sequence[int], found: Sequence[Hunk]) -> list[int]:
    """Put what a rendering has into the places where it differs."""
    ids, at = [], 0
    for hunk in found:
        ids += [*used[at : hunk.start], *rendered[hunk.begin : hunk.end]]
        at = hunk.stop
    return [*ids, *used[at:]]


@given(IDS, IDS, st.sets(st.integers(1, 2)))
def test_hunks_are_all_that_differs_and_only_that(
    used: list[int], rendered: list[int], markers: set[int]
) -> None:
    ours, theirs = packed(used), packed(rendered)
    found = find_hunks(ours, theirs, markers)
    assert replayed(used, rendered, found) == rendered
    assert bool(found) == (used != rendered)
    assert all(one.stop <= other.start and one.end <= other.begin for one, other in pairwise(found))
    for one in found:
        left, right = used[one.start : one.stop], rendered[one.begin : one.end]
        assert left[:1] != right[:1] or not (left and right)
        assert left[-1:] != right[-1:] or not (left and right)


@given(IDS, IDS, IDS, st.sets(st.integers(1, 2)))
def test_an_open_end_compares_no_further_than_the_ids_in_use(
    used: list[int], rendered: list[int], more: list[int], markers: set[int]
) -> None:
    assert find_hunks(packed(used), packed(used + more), markers, open_end=True) == []
    found = find_hunks(packed(used), packed(rendered), markers, open_end=True)
    made = replayed(used, rendered, found)
    assert made == rendered[: len(made)]
    assert bool(found) == (rendered[: len(used)] != used)


@given(
    st.lists(st.sampled_from(TEXTS), max_size=4), st.lists(st.sampled_from(TEXTS), max_size=4), st.booleans()
)
def test_parted_by_text_they_are_still_all_that_differs(
    ours: list[str], theirs: list[str], spelled: bool
) -> None:
    used = packed((letters if spelled else TOY.encode)("".join(text + END for text in ours)))
    rendered = packed(TOY.encode("".join(text + END for text in theirs)))
    found = compare(TOY.text, TOY.markers, used, rendered)
    assert replayed(used, rendered, found) == rendered.tolist()
    assert all(one.stop <= other.start and one.end <= other.begin for one, other in pairwise(found))
    assert all(used[one.start : one.stop] != rendered[one.begin : one.end] for one in found)
    if ours == theirs:
        assert all(TOY.text(used[h.start : h.stop]) == TOY.text(rendered[h.begin : h.end]) for h in found)


@given(TURNS, FAMILIES)
def test_every_prompt_is_compared_whole_though_none_is_compared_twice(
    turns: list[Turn], family: Family
) -> None:
    """What is taken over from the prompt before, and what is new, are together all that differs."""
    compared: list[tuple[ComparedRendering, bool]] = []

    class Watched(Auditor):
        def _compare(self, renderings: PromptRenderings, earlier: object) -> object:  # type: ignore[override]  # looks on
            found = super()._compare(renderings, earlier)  # type: ignore[arg-type]  # hands on what it got
            if found is not None:
                compared.append((found[0], renderings.open_end))
            return found

    list(Watched(Forest.of(talked(turns)), family, "", 16).run())
    assert len(compared) == len(turns)
    for view, open_end in compared:
        made = replayed(view.used.tolist(), view.rendered.tolist(), view.hunks)
        assert made == view.rendered.tolist()[: len(made)]
        assert open_end or made == view.rendered.tolist()


@given(TURNS, FAMILIES)
def test_drift_is_found_exactly_where_a_prompt_is_not_restated(turns: list[Turn], family: Family) -> None:
    calls = talked(turns)
    audited, follows = audit(Forest.of(calls), family), find_predecessors(Forest.of(calls))
    by_ids = [call for call in calls if call.name not in follows or follows[call.name].by is By.IDS]
    restated = [
        list(family.ids(call.step.prompt, call.step.key, add_generation_prompt=True)) == call.step.prompt_ids
        for call in by_ids
    ]
    if len(by_ids) == len(calls):
        assert bool(audited.breaks) != all(restated)
    else:
        assert audited.breaks or all(restated)


@given(TURNS, FAMILIES)
def test_counts_hold_together(turns: list[Turn], family: Family) -> None:
    calls = talked(turns)
    audited = audit(Forest.of(calls), family, block=4)
    tally = audited.tally
    assert tally.breaks == len(audited.breaks) == sum(tally.causes.values()) == sum(tally.parts.values())
    assert tally.calls == tally.compared == len(calls)
    assert tally.sampled_ids == sum(len(call.step.completion_ids) for call in calls) == tally.merged_ids
    assert 0 <= tally.changed_ids <= tally.followed_ids <= tally.sampled_ids
    assert 0 <= tally.broken_turns <= tally.turns < len(calls) or len(calls) == 1
    assert 0 <= tally.lost_ids <= tally.merged_ids
    assert tally.cached_by_ids % 4 == tally.cached_by_messages % 4 == 0
    assert tally.cached_by_messages <= tally.prompt_ids
    assert len({one.key for one in audited.breaks}) == len(audited.breaks)
    for one in audited.breaks:
        assert one.used_ids + one.rendered_ids > 0
        assert one.sampled_ids <= one.used_ids
        assert one.cause not in one.also
        order = list(Cause)
        assert sorted((one.cause, *one.also), key=order.index) == [one.cause, *one.also]


@given(TURNS, FAMILIES, st.randoms(use_true_random=False))
def test_the_order_of_the_calls_does_not_matter(turns: list[Turn], family: Family, dice: object) -> None:
    calls = talked(turns)
    mixed = list(calls)
    dice.shuffle(mixed)  # type: ignore[attr-defined]  # hypothesis' own Random
    assert audit(Forest.of(mixed), family) == audit(Forest.of(calls), family)


class Lettered(Family):
    """Any id is a letter."""

    def text(self, ids: Sequence[int]) -> str:
        return "".join(chr(number + 64) for number in ids)


@given(CALLS)
def test_no_forest_is_too_wild(calls: list[StoredCall]) -> None:
    """Whatever ids and messages tell, every call is looked at and nothing is raised."""
    tally = audit(Forest.of(calls), Lettered(), block=2).tally
    assert tally.compared + tally.wordless == len(calls)
    assert tally.changed_ids <= tally.followed_ids


def _audits(lists: Sequence[Sequence[Turn]]) -> list[Audited]:
    return [audit(Forest.of(talked(turns)), Family(forgetful), name=f"c{i}") for i, turns in enumerate(lists)]


@given(st.lists(TURNS, min_size=3, max_size=3), st.permutations(range(3)), st.integers(0, 3))
def test_adding_is_commutative_and_associative(lists: list[list[Turn]], order: list[int], most: int) -> None:
    audits = _audits(lists)
    values = [(one.tally, BreakSelection(most).with_breaks(one.breaks)) for one in audits]
    (a, x), (b, y), (c, z) = values
    (d, u), (e, v), (f, w) = (values[place] for place in order)
    assert (a + b) + c == a + (b + c) == (d + e) + f
    assert (x + y) + z == x + (y + z) == (u + v) + w
    assert a + Tally() == a
    assert x + BreakSelection(most) == x


@given(st.lists(TURNS, min_size=1, max_size=3), st.integers(1, 4))
def test_what_is_shown_is_bounded_and_has_every_cause_first(lists: list[list[Turn]], most: int) -> None:
    breaks: list[Break] = [one for audited in _audits(lists) for one in audited.breaks]
    shown = BreakSelection(most).with_breaks(breaks).shown
    causes = [cause for cause in Cause if any(one.cause is cause for one in breaks)]
    assert len(shown) == min(most, len(breaks))
    assert {one.cause for one in shown} >= set(causes[:most]) or len(shown) < len(causes)
    for one in shown[:1]:
        assert one.key == min(other.key for other in breaks if other.cause is one.cause)
