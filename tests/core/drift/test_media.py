"""Conversations with images are compared, and a difference that begins in an image is named so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tests.core.drift.conversations import END, Family, assistant, causes_of, user
from tito_core import Message, Step, TemplateRefused
from tito_core.drift import Audited, Break, Cause, audit
from tito_core.drift.diff import Hunk, packed
from tito_core.drift.media import media_detail
from tito_core.drift.numbered import NumberedMedia
from tito_core.media.ranges import MediaRange
from tito_core.samples import Forest, StoredCall
from tito_core.testing.toys.local import CHATML

SIGN = "~"
"""What the template writes for an image; no text has it."""
SIZE = 300
"""How many ids the engine makes of an image."""
(PLACEHOLDER,) = CHATML.encode(SIGN)


@attrs.frozen
class Seeing(Family):
    """Writes a placeholder for each image; `order` may put the images of a message elsewhere.

    Attributes:
        order: What is done to the parts of a message.
        lists: Whether only lists of parts are written.
    """

    order: str = "kept"
    lists: str = "any"

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        written = []
        for message in messages:
            content = message["content"]
            if isinstance(content, str) and self.lists == "refused":
                raise TemplateRefused("lists only")
            if isinstance(content, str) and self.lists == "blank":
                content = ""
            parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
            written.append({**message, "content": "".join(map(self.part, self.ordered(parts)))})
        return super().write(written, key, opener=opener)

    def ordered(self, parts: Sequence[Any]) -> Sequence[Any]:
        if self.order == "last":
            return sorted(parts, key=lambda part: part["type"] == "image")
        if self.order == "dropped":
            return [part for part in parts if part["type"] != "image"]
        if self.order == "twice":
            return [one for part in parts for one in [part] * (1 + (part["type"] == "image"))]
        return parts

    def part(self, part: Any) -> str:
        assert set(part) <= {"type", "text"}  # a template is asked with bare kinds, never with data
        return SIGN if part["type"] == "image" else str(part["text"])


SEEING = Seeing()


def image(key: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "https://example.org/" + key}, "uuid": key}


def showing(*keys: str) -> dict[str, Any]:
    return {"role": "user", "content": [*map(image, keys), {"type": "text", "text": "what is it?"}]}


def sent(
    messages: Sequence[Message], before: Sequence[int] = (), size: int = SIZE
) -> tuple[list[int], list[MediaRange]]:
    """Return the ids of a prompt with all of its images expanded, after ids that are kept."""
    keys = [
        part["uuid"]
        for m in messages
        if isinstance(m["content"], list)
        for part in m["content"]
        if "uuid" in part
    ]
    bare = [
        {**m, "content": [{"type": "image"} if "uuid" in part else part for part in m["content"]]}
        if isinstance(m["content"], list)
        else m
        for m in messages
    ]
    ids, media = list(before), list[MediaRange]()
    for index in SEEING.ids(bare, None, add_generation_prompt=True):
        if index == PLACEHOLDER:
            media.append(MediaRange(modality="image", identity=keys[len(media)], offset=len(ids), length=size,
                                    collapsed=(PLACEHOLDER,)))  # fmt: skip
            ids += [PLACEHOLDER] * size
        else:
            ids.append(index)
    return ids, media


def turn(
    order: int,
    messages: Sequence[Message],
    ids: Sequence[int],
    media: Sequence[MediaRange],
    said: str = "yes",
) -> StoredCall:
    step = Step(
        prompt=messages,
        completion=[assistant(said)],
        prompt_ids=ids,
        completion_ids=SEEING.encode(said + END),
        media=media,
    )
    return StoredCall(name=f"t{order}", order=order, step=step)


def by_ids() -> list[StoredCall]:
    """Return two turns, the second one by ids and with a second image."""
    first = turn(0, [showing("cat")], *sent([showing("cat")]))
    ids = [*first.ids.tolist(), *SEEING.encode("\n")]
    more, media = sent([showing("dog")], ids)
    return [first, turn(1, [*first.step.messages, showing("dog")], more, [*first.step.media, *media])]


def by_messages(prompt: Sequence[Message], size: int = SIZE) -> list[StoredCall]:
    """Return two turns, the second one sent as messages."""
    first = turn(0, [showing("cat")], *sent([showing("cat")]))
    return [first, turn(1, prompt, *sent(prompt, size=size))]


def audited(calls: Sequence[StoredCall], family: Family = SEEING) -> Audited:
    return audit(Forest.of(calls), family)


def the_break(calls: Sequence[StoredCall], family: Family = SEEING) -> Break:
    (one,) = audited(calls, family).breaks
    return one


def test_images_that_a_template_writes_at_their_place_are_no_drift() -> None:
    found = audited(by_ids())
    assert found.breaks == ()
    tally = found.tally
    assert (tally.compared_prompts, tally.prompts_with_media) == (2, 0)
    assert tally.mergeable_ids == tally.sampled_ids
    assert tally.ids_lost_to_merging == 0
    assert tally.prompt_ids > 2 * SIZE


def test_an_image_that_the_engine_made_other_ids_of_is_named() -> None:
    first = [showing("cat"), assistant(), user()]
    one = the_break(by_messages(first, size=SIZE - 20))
    assert (one.cause, one.happened) == (Cause.MEDIA, True)
    assert one.detail == "other number of placeholder ids: image cat has 300 in use, 280 in the rendering"
    assert (one.used_ids, one.rendered_ids, one.sampled_ids) == (20, 0, 0)
    (piece,) = one.used
    assert (piece.id, piece.text, piece.ids) == (PLACEHOLDER, "[image]", 20)
    assert piece.medium is not None
    assert (piece.medium.identity, piece.medium.length) == ("cat", SIZE)
    assert one.before.count("[image]") == 1


def test_another_image_is_named_and_so_is_the_edit() -> None:
    one = the_break(by_messages([showing("dog"), assistant(), user()]))
    assert (one.cause, one.also) == (Cause.MEDIA, (Cause.EDITED,))
    assert one.detail == "changed image: image cat is in use, the rendering has image dog"
    assert [piece.ids for piece in (*one.used, *one.rendered)] == [SIZE, SIZE]


def test_images_in_another_order_are_named() -> None:
    both = [showing("cat", "dog")]
    first = turn(0, both, *sent(both))
    other = [showing("dog", "cat"), assistant(), user()]
    found = audited([first, turn(1, other, *sent(other))])
    assert {one.cause for one in found.breaks} == {Cause.MEDIA}
    assert found.breaks[0].detail.startswith("range moved: image ")


def test_an_image_that_the_template_moves_or_leaves_out_is_named() -> None:
    first = by_ids()[:1]
    assert the_break(first, Seeing(order="dropped")).detail == "image cat is missing in the rendering"
    small = [turn(0, [showing("cat")], *sent([showing("cat")], size=3))]
    moved = audited(small, Seeing(order="last")).breaks
    assert [one.cause for one in moved][:1] == [Cause.MEDIA]
    assert moved[0].detail.startswith("range moved: image cat begins at id ")
    twice = audited(first, Seeing(order="twice")).breaks
    assert twice[0].cause is Cause.MEDIA
    assert twice[0].detail == "the rendering has another number of placeholders than the messages have media"


def test_an_image_that_the_ids_in_use_lack_is_named() -> None:
    (call,) = by_ids()[:1]
    numbered, (cat,) = NumberedMedia.of(SEEING, Forest.of([call])), call.step.media
    rendered = numbered.used(call.step.prompt_ids, call.step.media)
    used = packed([*rendered[: cat.offset], *rendered[cat.stop :]])
    hunk = Hunk(cat.offset, cat.offset, cat.offset, cat.stop)
    assert media_detail(numbered, used, rendered, hunk) == "image cat is missing in the ids in use"
    used = packed([*used, *rendered[cat.offset : cat.stop]])
    moved = f"range moved: image cat begins at id {len(used) - SIZE} of the ids in use"
    assert media_detail(numbered, used, rendered, hunk) == moved


def test_text_beside_an_image_differs_as_text() -> None:
    calls = by_messages(
        [
            {**showing("cat"), "content": [image("cat"), {"type": "text", "text": "what else?"}]},
            assistant(),
            user(),
        ]
    )
    assert causes_of(audited(calls)) == [("t0", "PROMPT", "EDITED")]


def test_images_of_unknown_place_are_counted_and_not_compared() -> None:
    ids, media = sent([showing("cat", "dog")])
    for known in ([], media[:1]):
        tally = audited([turn(0, [showing("cat", "dog")], ids, known)]).tally
        assert (tally.prompts_with_media, tally.compared_prompts, tally.mergeable_ids) == (1, 0, 0)
