"""Which placeholder stands for a medium: the only one where the tail changes with it."""

from __future__ import annotations

import pytest

from tests.core.pictures import image, showing
from tito_core.seams.placeholders import WORD, is_alone, replaced


@pytest.mark.parametrize(
    ("place", "start", "stop", "alone"),
    [
        (3, 3, 5, True),
        (3, 2, 5, True),  # the template marks it
        (3, 3, 6, True),
        (3, 4, 5, False),  # a part of it
        (3, 3, 4, False),
        (3, 3, 7, False),  # the next one begins at 6
        (6, 6, 8, True),
        (6, 5, 8, True),  # the one before ends at 5
        (6, 4, 8, False),
        (8, 8, 10, True),  # right after another one
        (6, 6, 9, False),
        (8, 7, 10, False),
        (3, 6, 8, False),
    ],
)
def test_a_placeholder_is_a_medium_s_where_it_changes_alone(
    place: int, start: int, stop: int, *, alone: bool
) -> None:
    found = [(3, "image"), (6, "image"), (8, "image")]
    assert is_alone(place, 2, found, start, stop) is alone


def test_a_word_replaces_each_medium_from_one_on() -> None:
    messages = (showing("and", "cat", "dog"), {"role": "tool", "content": "text"}, showing("this", "cow"))
    for number, kept in enumerate(((), ("cat",), ("cat", "dog"), ("cat", "dog", "cow"))):
        changed = replaced(messages, number)
        parts = [part for message in changed for part in message["content"] if isinstance(part, dict)]
        assert [part for part in parts if part["type"] == "image_url"] == list(map(image, kept))
        assert parts.count(WORD) == 3 - number
        assert len(parts) == 5
