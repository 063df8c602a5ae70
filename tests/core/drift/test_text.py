"""Hunks that are split by their text, and the text that differs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.core.drift.conversations import (
    END,
    TOY,
    letters,
)
from tests.core.drift.random_turns import TEXTS, replayed
from tito_core.drift.diff import Hunk, packed
from tito_core.drift.text import compare, split_affixes, text_difference


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


def test_removed_text_is_not_cut_inside_its_first_id() -> None:
    """`<t` begins both sides, and yet the thinking is what is gone, not `hink></think><t`."""
    used, rendered = packed(TOY.encode("<think></think><tool_call>")), packed(letters("<tool_call"))
    rendered = packed([*rendered, 100 + ord(">")])
    difference = text_difference(TOY.text, used, rendered, Hunk(0, len(used), 0, len(rendered)))
    assert (difference.used, difference.rendered) == ("<think></think>", "")


def test_text_that_was_dropped_is_all_that_differs_though_it_begins_as_what_follows() -> None:
    """`ca` is gone before `cd`, and not `ac`."""
    parts = {1: "b", 2: "c", 3: "a", 4: "cd"}

    def text(ids: Iterable[int]) -> str:
        return "".join(parts[index] for index in ids)

    whole, shorter = packed([1, 2, 3, 4]), packed([1, 4])
    dropped = text_difference(text, whole, shorter, Hunk(1, 3, 1, 1))
    assert (dropped.used, dropped.rendered, dropped.respelled) == ("ca", "", False)
    inserted = text_difference(text, shorter, whole, Hunk(1, 1, 1, 3))
    assert (inserted.used, inserted.rendered, inserted.respelled) == ("", "ca", False)


def test_an_id_is_read_with_what_follows_it() -> None:
    """A character may be several ids: here its first byte differs, and its last one follows."""

    def text(ids: Iterable[int]) -> str:
        return bytes(ids).decode(errors="replace")

    used, rendered = packed([*"\u00e9".encode()]), packed([*"\u0129".encode()])
    assert used[1] == rendered[1]
    difference = text_difference(text, used, rendered, Hunk(0, 1, 0, 1))
    assert (difference.used, difference.rendered) == ("\u00e9", "\u0129")
    other = packed([rendered[0], ord("A")])
    assert text_difference(text, used, other, Hunk(0, 1, 0, 1)).same  # here other ids follow: it is not known


def test_a_hunk_is_split_between_characters_and_not_inside_one() -> None:
    """Bytes are ids here. Id 300 is `é`, which has two bytes."""

    def text(ids: Iterable[int]) -> str:
        return b"".join("é".encode() if one == 300 else bytes([one]) for one in ids).decode(errors="replace")

    used, rendered = packed([*"aéb".encode()]), packed([ord("a"), 300, ord("c")])
    assert split_affixes(text, used, rendered, Hunk(0, 4, 0, 3)) == [Hunk(1, 3, 1, 2), Hunk(3, 4, 2, 3)]


def test_a_hunk_is_not_split_where_its_ids_have_another_text_alone() -> None:
    """Some decoders leave white space out at the ends of a text."""

    def text(ids: Iterable[int]) -> str:
        return "".join("_a bc"[one] for one in ids).strip()

    used, rendered = packed([1, 2, 3]), packed([1, 2, 4])
    assert split_affixes(text, used, rendered, Hunk(0, 3, 0, 3)) == [Hunk(0, 3, 0, 3)]


def test_a_beginning_that_ends_inside_a_later_id_is_cut_first() -> None:
    def text(ids: Iterable[int]) -> str:
        return "".join({1: "a", 2: "bcb", 3: "b"}[one] for one in ids)

    difference = text_difference(text, packed([1, 2]), packed([1, 3]), Hunk(0, 2, 0, 2))
    assert (difference.used, difference.rendered) == ("cb", "")


def test_an_id_is_read_with_what_stands_before_it() -> None:
    used, rendered = packed([*"\u00e9".encode()]), packed([*"\u00e8".encode()])
    difference = text_difference(
        lambda ids: bytes(ids).decode(errors="replace"), used, rendered, Hunk(1, 2, 1, 2)
    )
    assert (difference.used, difference.rendered) == ("\u00e9", "\u00e8")


def test_four_replacement_characters_are_no_incomplete_one() -> None:
    """No character has more than four bytes."""

    def text(ids: Iterable[int]) -> str:
        return "".join({1: "a", 2: "b"}.get(one, "\ufffd") for one in ids)

    hunks = split_affixes(text, packed([7, 7, 7, 7, 1]), packed([8, 8, 8, 8, 2]), Hunk(0, 5, 0, 5))
    assert hunks == [Hunk(0, 4, 0, 4), Hunk(4, 5, 4, 5)]


def test_a_last_id_whose_text_is_on_both_sides_is_spelled_otherwise() -> None:
    letters = {1: "a", 2: "b", 3: "c", 4: "b"}
    found = text_difference(
        lambda ids: "".join(letters[one] for one in ids), packed([1, 2]), packed([3, 4]), Hunk(0, 2, 0, 2)
    )
    assert (found.used, found.rendered, found.respelled) == ("a", "c", True)
