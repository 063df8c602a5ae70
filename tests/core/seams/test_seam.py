"""Where an assistant's text ends in a render, on ids small enough to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core import example
from tito_core import Message, Stitched, answer, stitch_questions, suffix_ids
from tito_core.seams.seam import (
    LONGER,
    LONGER_TOO,
    SHORT,
    Seam,
    Unlocated,
    after,
    find_seam,
    grown,
    insertions,
    seam_questions,
)
from tito_core.testing.toys.tokenizer import Tokenizer


@pytest.mark.parametrize(
    ("text", "ids", "rest"),
    [
        ([5, 6], [1, 5, 6, 2], [2]),
        ([5, 6], [5, 6, 2, 3], [2, 3]),
        ([5, 6], [1, 5, 6], []),
        ([5, 6], [5, 6], []),
        ([5, 6], [1, 5, 7, 5, 6], []),
    ],
)
def test_the_ids_after_a_text(text: list[int], ids: list[int], rest: list[int]) -> None:
    assert after(text, ids) == tuple(rest)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ([5, 6], [1, 5, 2]),
        ([5, 6], [1, 2, 5]),  # cut off
        ([5, 6], [6]),
        ([5, 6], []),
        ([5], [5, 1, 5]),
        ([5, 5], [5, 5, 5]),  # it overlaps itself
        ([], [1, 2]),
        ([], []),
    ],
)
def test_a_text_that_does_not_stand_there_once_is_followed_by_nothing(
    text: list[int], ids: list[int]
) -> None:
    assert after(text, ids) is None


def test_a_seam_is_where_the_longer_render_goes_on() -> None:
    seam = find_seam([1, 50, 9, 2], [1, 50, 51, 9, 2])
    assert seam == Seam(ids=(1, 50, 9, 2), place=2)
    assert seam.tail == (9, 2)


@pytest.mark.parametrize(
    ("short", "longer"),
    [
        ([1, 50, 2], [1, 50, 2]),  # nothing was added
        ([1, 50, 9, 2], [1, 50, 2]),  # less came of more
        ([50, 2], [7, 50, 51, 2]),  # nothing of the text stands before the place
        ([1, 50, 9, 2], [1, 50, 51, 8, 2]),  # something else changed with it
    ],
)
def test_a_text_that_was_not_just_lengthened_has_no_seam(short: list[int], longer: list[int]) -> None:
    assert find_seam(short, longer) is None


def test_another_render_ends_with_the_text_and_the_tail() -> None:
    seam = find_seam([1, 50, 9, 2], [1, 50, 51, 9, 2])
    assert seam is not None
    assert (seam.said, seam.text) == (LONGER, (50, 51))
    assert seam.ends((8, 8, 50, 51, 9, 2))
    assert not seam.ends((8, 8, 50, 52, 9, 2))  # the text ends otherwise: a merge would not be seen
    assert not seam.ends((8, 50, 51, 7, 51, 9, 2))  # something stands between that ends like the text
    assert not seam.ends((9, 2))
    assert not seam.ends((50, 51, 9, 3))


def test_what_another_turn_has_before_the_tail_is_its_rest() -> None:
    seam = Seam((1, 50, 9, 2), 2, "a", (50, 51))
    assert seam.rest((8, 50, 51, 9, 2), 1) == (9,)
    assert seam.rest((8, 50, 51, 50, 51, 7, 9, 2), 1) == (7, 9)
    assert seam.rest((8, 50, 51, 7, 2), 1) is None  # another id before the tail: it may have merged
    assert seam.rest((8, 50, 7, 9, 2), 1) is None
    assert seam.rest((8, 50, 51, 9, 3), 1) is None


@pytest.mark.parametrize(
    ("short", "longer", "places"),
    [
        ([1, 9, 2], [1, 5, 9, 2], [1]),
        ([1, 9, 2], [1, 9, 8, 9, 2], [1, 2]),  # 9 8 before the 9, or 8 9 after it
        ([9, 9], [9, 9, 9], [0, 1, 2]),
        ([], [1], [0]),
        ([1, 2], [1, 2], []),  # nothing was inserted
        ([1, 2], [2], []),
        ([1, 2], [1, 3, 4], []),  # the 2 is gone
    ],
)
def test_where_a_run_of_ids_can_have_been_inserted(
    short: list[int], longer: list[int], places: list[int]
) -> None:
    found = insertions(short, longer)
    assert list(found) == places
    for place in found:  # as defined: the longer is the shorter with ids at that place
        size = len(longer) - len(short)
        assert longer[:place] + longer[place + size :] == short


def test_a_place_that_one_render_leaves_open_is_decided_by_another() -> None:
    short, longer, other = [1, 50, 9, 2], [1, 50, 9, 51, 9, 2], [1, 50, 8, 51, 9, 2]
    assert find_seam(short, longer) is None
    assert find_seam(short, longer, other) == find_seam(short, other) == Seam((1, 50, 9, 2), 2)
    assert find_seam(short, longer, longer) is None
    assert find_seam(short, longer, [1, 50, 9, 2, 7]) is None  # they contradict each other
    assert find_seam(short, other, short) is None  # one of them added nothing


@pytest.mark.parametrize(
    ("short", "longer", "count", "found"),
    [
        ((1, 9), (1, 7, 7, 9), 1, True),
        ((1, 9), (1, 7, 8, 7, 8, 9), 1, True),
        ((1, 9), (1, 9), 1, False),  # nothing grew
        ((1, 9), (1,), 1, False),
        ((1, 9), (1, 7, 9), 1, False),  # half a word twice
        ((1, 9), (1, 7, 7, 8, 8, 9), 1, False),  # something else stands beside the words
        ((1, 9), (1, 7, 7, 8), 1, False),  # the end is another
        ((1, 9, 2, 9), (1, 7, 7, 9, 2, 7, 7, 7, 7, 9), 2, True),
        ((1, 9, 2, 9), (1, 7, 8, 7, 8, 9, 2, *(7, 8) * 4, 9), 2, True),
        ((1, 9, 2, 9), (1, 7, 7, 9, 2, 8, 8, 8, 8, 9), 2, False),  # other ids in the second
        ((1, 9, 2, 9), (1, 7, 7, 7, 7, 9, 2, 7, 7, 9), 2, False),  # they changed places
        ((1, 9, 2, 9), (1, 7, 7, 9, 2, 7, 7, 9), 2, False),  # the first is written in place of the second
        ((1, 9, 2, 9), (1, *(7,) * 6, 9, 2, 9), 2, True),  # both in one place, as with two empty contents
        ((1, 2), (7, 7, 1, *(7,) * 4, 2, *(7,) * 6), 3, True),
        ((), (7,) * 6, 2, True),
        ((1, 9), (1, 9, 7), 0, False),
        ((1, 9), (1, 9), 0, False),
    ],
)
def test_a_tail_has_grown_by_a_run_twice_then_four_times(
    short: tuple[int, ...], longer: tuple[int, ...], count: int, found: bool
) -> None:
    """The first message by two runs, the second by four, so that none stands for another."""
    assert grown(short, longer, count) is found


CHARACTERS = Tokenizer(specials=("<o>", "<c>"))
"""Each character is one id, but for what opens and closes a turn."""


def spaced(close: str) -> Callable[..., list[int]]:
    """Return a template that writes `close` after a content."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        turns = [f"<o>{message['role']}:{message['content']}{close}" for message in messages]
        return CHARACTERS.encode("".join(turns) + "<o>assistant:" * add_generation_prompt)

    return tokenize


def counted(tokenize: Any) -> tuple[list[str], Any]:
    """Return a list of the texts that a turn is asked about with, and a function that fills it."""
    asked: list[str] = []

    def counting(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        asked.append(messages[0]["content"])
        ids: list[int] = tokenize(messages, add_generation_prompt=add_generation_prompt)
        return ids

    return asked, counting


@pytest.mark.parametrize(
    ("close", "texts"),
    [
        ("<c>", [SHORT, LONGER]),
        (" <c>", [SHORT, LONGER, LONGER_TOO]),  # the longer text goes on with a space, too
        (" m<c>", [SHORT, LONGER, LONGER_TOO]),
        (", <c>", [SHORT, LONGER]),
    ],
)
def test_a_close_that_goes_on_as_the_longer_text_does_takes_one_more_question(
    close: str, texts: list[str]
) -> None:
    asked, counting = counted(spaced(close))
    seam = answer(seam_questions(lambda text: [example.assistant(text)]), counting)
    assert isinstance(seam, Seam)
    assert CHARACTERS.decode(seam.tail) == f"{close}<o>assistant:"
    assert asked == texts


def test_a_text_that_is_written_twice_or_measured_is_not_located() -> None:
    def twice(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return spaced("<c>")([*messages, *messages], add_generation_prompt=add_generation_prompt)

    def measured(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = spaced("<c>")(messages, add_generation_prompt=add_generation_prompt)
        return [len(messages[0]["content"]), *ids]

    for tokenize in (twice, measured):
        found = answer(seam_questions(lambda text: [example.assistant(text)]), tokenize)
        assert found is Unlocated.UNCLEAR


def test_a_seam_without_what_makes_the_model_speak_is_asked_for_as_such() -> None:
    seam = answer(seam_questions(lambda text: [example.assistant(text)], speaking=False), spaced("<c>"))
    assert isinstance(seam, Seam)
    assert CHARACTERS.decode(seam.tail) == "<c>"
    first = next(seam_questions(lambda text: [example.assistant(text)], since=SHORT))
    assert (first.since, first.add_generation_prompt) == (SHORT, True)


def test_a_template_that_writes_a_space_before_its_close_is_stitched() -> None:
    tokenize = spaced(" <c>")
    suffix = suffix_ids(tokenize)
    assert CHARACTERS.decode(suffix) == " <c>"
    start = tokenize([example.user()], add_generation_prompt=True)
    for end in (suffix, suffix[:1], ()):
        sampled = [*CHARACTERS.encode("hello"), *end]
        step = example.step(prompt_ids=start, sampled=sampled, truncated=not end)
        found = answer(stitch_questions([step], example.prompt(step), suffix), tokenize)
        assert isinstance(found, Stitched)
        assert found.ids == tokenize(example.prompt(step), add_generation_prompt=True)
