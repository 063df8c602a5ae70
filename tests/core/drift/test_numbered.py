"""Numbered ids: a number stands for each medium in place of its ids, and of a template's placeholders."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from tests.core.drift.conversations import START, assistant, user
from tests.core.drift.test_media import (
    PLACEHOLDER,
    SEEING,
    SIZE,
    Seeing,
    audited,
    by_ids,
    by_messages,
    showing,
    the_break,
)
from tito_core import Message
from tito_core.drift.numbered import NumberedMedia
from tito_core.samples import Forest


@pytest.mark.parametrize("lists", ["refused", "blank", "any"])
def test_texts_are_given_as_lists_to_templates_that_take_only_those(lists: str) -> None:
    found = audited(by_ids(), Seeing(lists=lists))
    assert (found.breaks, found.tally.compared_prompts) == ((), 2)


def test_texts_stay_texts_where_a_template_writes_lists_otherwise() -> None:
    class Marking(Seeing):
        def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
            marked = [
                {**one, "content": [{"type": "text", "text": f"*{one['content'][0]['text']}"}]}
                if isinstance(one["content"], list) and len(one["content"]) == 1
                else one
                for one in messages
            ]
            return super().write(marked, key, opener=opener)

    assert audited(by_ids(), Marking()).breaks == ()


def test_ids_of_images_are_not_decoded() -> None:
    class Strict(Seeing):
        def text(self, ids: Sequence[int]) -> str:
            assert PLACEHOLDER not in ids
            return super().text(ids)

    one = the_break(by_messages([showing("dog"), assistant(), user()]), Strict())
    assert one.before.endswith(START + "user\n")


def test_numbers_are_runs_and_text_is_one_word_per_image() -> None:
    (first, second) = by_ids()
    numbered = NumberedMedia.of(SEEING, Forest.of([first, second]))
    ids = numbered.used(second.step.prompt_ids, second.step.media)
    assert len(set(ids[first.step.media[0].offset :][:SIZE])) == 1
    assert numbered.medium_at(ids, second.step.media[1].offset + 7) == second.step.media[1]
    shifted = attrs.evolve(first.step.media[0], offset=0)
    assert numbered.medium_at(ids[first.step.media[0].offset :], 0) == shifted
    assert numbered.shown(ids.tolist()).count("[image]") == 2
    assert numbered.text(ids.tolist()) == numbered.shown(ids.tolist()).replace("[image]", "\ufffc" * SIZE)
