"""Rows of conversations with images."""

from __future__ import annotations

import attrs
import pytest

from tests.core.pictures import PAD, first_step, showing
from tito_core import Step
from tito_core.media.ranges import MediaRange
from tito_core.samples import Cut, Forest, SampleOptions, StoredCall, make_rows
from tito_core.samples.whole_row import row_of


def seen(key: str) -> Step:
    return first_step(showing("What?", key), keys=[key])


def after(step: Step, *keys: str) -> Step:
    """Return a step that goes on from another, with more images."""
    ids, ranges = [*step.ids, 5], list(step.media)
    for key in keys:
        ranges.append(MediaRange(modality="image", identity=key, offset=len(ids), length=3, collapsed=(PAD,)))
        ids += [PAD] * 3
    prompt = [*step.messages, showing("And?", *keys)]
    return Step(prompt=prompt, completion=[], prompt_ids=ids, completion_ids=[9, 9], media=ranges)


def forest(**steps: Step) -> Forest:
    return Forest.of(
        StoredCall(name=name, step=step, order=i) for i, (name, step) in enumerate(steps.items())
    )


def parents(found: Forest) -> dict[str, str | None]:
    return {node.name: node.parent for node in found.nodes}


def test_a_call_continues_the_one_that_showed_the_same_image() -> None:
    cat, dog = seen("cat"), seen("dog")
    assert cat.ids == dog.ids
    found = forest(a=cat, b=dog, c=after(cat), d=after(dog, "cow"))
    assert parents(found) == {"a": None, "b": None, "c": "a", "d": "b"}
    assert parents(Forest.of(reversed(found.calls))) == parents(found)


def test_other_images_make_no_retry() -> None:
    assert [node.kind.name for node in forest(a=seen("cat"), b=seen("dog"), c=seen("cat")).nodes] == [
        "UNRELATED",
        "UNRELATED",
        "RETRIES",
    ]


def test_a_row_says_where_its_images_stand() -> None:
    step = after(seen("cat"), "dog")
    (row,) = make_rows(forest(a=seen("cat"), b=step), SampleOptions()).rows
    assert row.media == tuple(step.media)
    assert [one.identity for one in row.media] == ["cat", "dog"]
    assert not any(any(row.loss_mask[one.offset : one.stop]) for one in row.media)


@pytest.mark.parametrize("inside", [-1, 0, 1, 2, 3, 4])
def test_a_row_holds_no_part_of_an_image(inside: int) -> None:
    step = after(seen("cat"), "dog")
    cut = step.media[1].offset + inside
    calls = forest(a=seen("cat"), b=step)
    (row,) = make_rows(calls, SampleOptions(max_length=cut, cut=Cut.INSIDE)).rows
    assert len(row) == (step.media[1].offset if inside in (1, 2) else cut)
    assert row.media == tuple(step.media[: 2 if inside >= 3 else 1])


def test_log_probabilities_are_those_of_the_call_that_showed_the_same_image() -> None:
    cat, dog = (
        attrs.evolve(seen(key), logprobs=[value] * 6) for key, value in (("cat", -0.1), ("dog", -5.0))
    )
    second = attrs.evolve(after(cat), logprobs=[-0.2, -0.2])
    row = row_of(second, [cat, dog])
    assert [value for value in row.logprobs if value is not None] == [-0.1] * 6 + [-0.2] * 2
