"""Laws of images: every id that the engine saw stays, and no image is taken for another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.pictures import (
    CLOSE,
    OPEN,
    PAD,
    PLACEHOLDERS,
    counting,
    first_step,
    in_lists,
    numbering,
    ranges_of,
    showing,
    tokenize,
)
from tests.profiles import tries
from tito_core import (
    Bridge,
    Extension,
    Message,
    Refusal,
    Step,
    Stitched,
    TokenizeFn,
    Trajectory,
    suffix_ids,
    try_stitch,
)
from tito_core.media.expansion import collapse, echoed, expand, to_send
from tito_core.media.ranges import MediaRange
from tito_core.normalization.media import media_of
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe

SUFFIX = suffix_ids(tokenize)
TEMPLATES: tuple[TokenizeFn, ...] = (tokenize, numbering, counting, in_lists)
KNOWN: dict[TokenizeFn, GrowingProfile] = {one: GrowingProfile(probe(one)) for one in TEMPLATES}
SIZES = {"cat": 1, "dog": 3, "cow": 3}
"""Images, and how many ids an engine makes of each."""
TEXTS = st.sampled_from(("?", "How many?", "And this?", "<vision>", "", "</turn>", "<pad>"))
NEW = st.builds(
    lambda role, text, keys: showing(text, *keys, role=role),
    st.sampled_from(("user", "tool")),
    TEXTS,
    st.lists(st.sampled_from(sorted(SIZES)), max_size=2),
)
SAMPLED = st.lists(st.sampled_from((500, 501, 502, PAD)), min_size=1, max_size=3)


def keys_in(messages: Sequence[Message]) -> list[str]:
    """Return the images of a conversation, in order."""
    return [medium.identity or "" for medium in media_of(messages)]


def seen_by_engine(ids: Sequence[int], keys: Sequence[str]) -> tuple[list[int], list[MediaRange]]:
    """Return what an engine makes of collapsed ids: the first placeholders are the images."""
    offsets = [place for place, index in enumerate(ids) if index == PAD][: len(keys)]
    media = [
        MediaRange(modality="image", identity=key, offset=place, length=1, collapsed=(PAD,))
        for key, place in zip(keys, offsets, strict=True)
    ]
    return expand(ids, media, [(PAD,) * SIZES[key] for key in keys])


def written(messages: Sequence[Message], sampled: Sequence[Sequence[int]]) -> list[int]:
    """Return the collapsed prompt as the template and the model wrote it."""
    turns, ids = iter(sampled), list[int]()
    for message in messages:
        if message["role"] == "assistant":
            ids += [OPEN, *b"assistant\n", *next(turns), *b"\n"]
        else:
            ids += tokenize([message], add_generation_prompt=False)
    return [*ids, OPEN, *b"assistant\n"]


@given(st.lists(st.tuples(NEW, SAMPLED), min_size=2, max_size=5))
@tries(2)
def test_a_conversation_with_images_keeps_every_id(talk: list[tuple[dict[str, Any], list[int]]]) -> None:
    steps, sampled, messages = Trajectory(), list[list[int]](), list[Message]()
    prompt: list[int]
    for new, turn in talk:
        messages = [*messages, new]
        keys, right = keys_in(messages), written(messages, sampled)
        if not steps:
            if right.count(PAD) != len(keys):
                return
            prompt, media = expand(right, ranges_of(right, keys), [(PAD,) * SIZES[key] for key in keys])
            ledger = {}
        else:
            found = try_stitch(steps, messages, SUFFIX, tokenize, media=PLACEHOLDERS)
            assert (
                try_stitch(steps, messages, SUFFIX, tokenize, media=PLACEHOLDERS, profile=KNOWN[tokenize])
                == found
            )
            stray = right.count(PAD) != len(keys)
            if isinstance(found, Refusal):
                assert stray, found
                return
            assert not (stray and keys)
            assert to_send(found) == right
            saw, ranges = seen_by_engine(right, keys)
            found = echoed(found, saw, [(one.offset, one.length) for one in ranges])
            assert found.ids[: steps[-1].ids.length] == steps[-1].ids
            prompt, media, ledger = found.ids.tolist(), list(found.media), {"prompt_ledger": found.ledger}
            assert media == ranges
            assert collapse(prompt, media)[0] == right
            agrees_with_bridge(steps[-1], found, new)
        sampled.append([*turn, CLOSE])
        answer = {"role": "assistant", "content": "So."}
        step = Step(
            prompt=messages,
            completion=[answer],
            prompt_ids=prompt,
            completion_ids=sampled[-1],
            media=media,
            **ledger,  # type: ignore[arg-type]  # one value, or nothing
        )
        assert sum(step.ledger.mask()) == len(sampled[-1]) + sum(map(len, sampled[:-1]))
        steps, messages = steps.append(step), [*messages, answer]


@given(
    st.sampled_from(TEMPLATES),
    st.lists(st.sampled_from(sorted(SIZES)), max_size=3),
    st.lists(NEW, min_size=1, max_size=2),
)
@tries(2)
def test_a_profile_says_of_images_what_a_fresh_proof_says(
    template: TokenizeFn, before: list[str], new: list[dict[str, Any]]
) -> None:
    step = first_step(showing("What is it?", *before), keys=before)
    prompt = [*step.messages, *new]
    fresh = try_stitch([step], prompt, SUFFIX, template, media=PLACEHOLDERS)
    known = try_stitch([step], prompt, SUFFIX, template, media=PLACEHOLDERS, profile=KNOWN[template])
    if isinstance(known, Stitched):
        in_parts = [*step.prompt, showing("Seen.", role="assistant"), *new]
        real = list(template(in_parts, add_generation_prompt=True))
        assert tuple(real[-len(known.added) :]) == known.added
    # Only the real history says which number an image has: a proof in short ones is refused.
    if isinstance(fresh, Stitched) or (isinstance(known, Stitched) and template is not numbering):
        assert known == fresh


def agrees_with_bridge(step: Step, found: Stitched, new: Message) -> None:
    """Check that a bridge, which knows the ids alone, says the same or refuses."""
    bridge = Bridge(tokenize, [CLOSE], media=PLACEHOLDERS)
    extension = bridge.extend(step.ids, [new], media=step.media, sampled=step.completion_ids.length)
    if isinstance(extension, Extension):
        ranges = [(one.offset, one.length) for one in found.media]
        assert echoed(extension, found.ids, ranges).ids == found.ids
