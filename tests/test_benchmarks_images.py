"""The benchmark of images counts what it says, with an engine in which everything is known."""

from __future__ import annotations

import json

import pytest

from benchmarks.images import ImageResults, converse, image, line, new_message, png
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
    assert json.loads(json.dumps(results.data()))["images"] == len(results.images)


async def test_by_messages_nothing_is_kept() -> None:
    results, client = ImageResults(), client_of(Seeing(), media=None)
    await converse(client, results, 1, 3, {"max_tokens": 8})
    assert (results.turns, results.kept) == (3, 0)
