"""The benchmark of images counts what it says, with an engine in which everything is known."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from benchmarks.image_rows import usable, write_rows
from benchmarks.images import ImageResults, converse, image, line, new_message, png, turns_of
from tests.core.pictures import PAD
from tests.io.client.seeing import Seeing
from tests.io.client.test_images import client_of
from tito_core.normalization.media import media_of

pytestmark = pytest.mark.anyio


def test_images_differ_and_come_again() -> None:
    assert png(1)[:8] == b"\x89PNG\r\n\x1a\n"
    assert png(1) == png(1)
    seen = [[one.identity for one in media_of([new_message(2, turn)])] for turn in range(5)]
    assert [len(one) for one in seen] == [1, 2, 0, 1, 1]
    assert seen[3] == seen[0]
    assert new_message(2, 4)["role"] == "tool"
    assert len(image(7)["image_url"]["url"]) > len(png(7))


async def test_turns_are_counted() -> None:
    results, client = ImageResults(), client_of(Seeing())
    steps = await converse(client, results, 1, 6, {"max_tokens": 8})
    assert len(steps) == results.turns == results.image_turns == 6
    assert (results.kept, results.moved, results.without_logprobs) == (5, 0, 0)
    assert len(results.images) == len({one.identity for step in steps for one in step.media})
    assert "prompts that keep the ids before: 5" in line("ids", results)
    assert (results.failed, results.expanded_twice, results.same_first_prompts(results)) == (0, 0, 1)
    assert json.loads(json.dumps(results.data()))["images"] == len(results.images)


async def test_by_messages_nothing_is_kept() -> None:
    results, client = ImageResults(), client_of(Seeing(), media=None)
    await converse(client, results, 1, 3, {"max_tokens": 8})
    assert (results.turns, results.kept) == (3, 0)


async def test_a_turn_after_another_prompt_has_failed() -> None:
    results = ImageResults()
    await converse(client_of(Seeing(spoils=True)), results, 1, 3, {"max_tokens": 8})
    assert (results.failed, results.turns, results.conversations) == (1, 0, [[]])


async def test_an_image_that_is_expanded_anew_is_counted() -> None:
    results = ImageResults()
    (step, *_) = await converse(client_of(Seeing()), results, 1, 2, {"max_tokens": 8})
    longer = [attrs.evolve(step.media[0], length=step.media[0].length - 1)]
    results.add(attrs.evolve(step, media=longer), None, 0.0)
    assert results.expanded_twice == 1
    results.add(attrs.evolve(step, prompt=[{"role": "user", "content": "Hi"}]), None, 0.0)
    assert results.expanded_twice == 2


def test_conversations_have_all_lengths() -> None:
    assert {turns_of(number, 12) for number in range(11)} == set(range(2, 13))
    assert turns_of(5, 2) == 2


class Marking:
    """A processor that takes an id for an image's."""

    def create_mm_token_type_ids(self, ids: list[list[int]]) -> list[list[int]]:
        return [[{PAD: 1, 500: 2}.get(index, 0) for index in row] for row in ids]


async def test_rows_have_the_bytes_of_their_images(tmp_path: Path) -> None:
    results, file = ImageResults(), tmp_path / "rows.jsonl"
    steps = await converse(client_of(Seeing()), results, 1, 2, {"max_tokens": 8})
    write_rows(file, results.conversations)
    (row,) = map(json.loads, file.read_text().splitlines())
    assert row["ids"] == list(steps[-1].ids)
    assert set(row["images"]) == {one["identity"] for one in row["media"]}
    assert usable(Marking(), row)["kinds"].count(1) == sum(one["length"] for one in row["media"])


def test_a_row_is_used_up_to_a_sampled_placeholder() -> None:
    media = [{"identity": "cat", "offset": 1, "length": 2}, {"identity": "dog", "offset": 7, "length": 1}]
    row = {"ids": [5, PAD, PAD, 500, 6, PAD, 6, PAD], "logprobs": [None] * 3 + [-1.0] * 5, "media": media}
    found = usable(Marking(), row)
    assert found["ids"] == [5, PAD, PAD, 500, 6]
    assert found["last"] == [PAD]
    assert found["logprobs"] == [None, None, None, -1.0, -1.0, -1.0]
    assert found["kinds"] == [0, 1, 1, 0, 0]
    assert [one["identity"] for one in found["media"]] == ["cat"]
