"""Media in ids: ranges, placeholders, collapsing and expanding."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core import example
from tests.core.example import Recorder, shown
from tests.core.pictures import (
    CLOSE,
    END,
    PAD,
    PLACEHOLDERS,
    START,
    first_step,
    image,
    numbering,
    showing,
    tokenize,
)
from tito_core import (
    Bridge,
    Extension,
    Ids,
    InputError,
    Message,
    OddStop,
    Origin,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    TokenizeFn,
    suffix_ids,
    try_stitch,
)
from tito_core.data import from_data, to_data
from tito_core.media.expansion import collapse, echoed, expand, pieces_in, to_send
from tito_core.media.expansion import expanded as expanded_prompt
from tito_core.media.ranges import Media, MediaRange, Placeholders
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.profile import Profile
from tito_core.trajectory import Trajectory

SUFFIX = suffix_ids(tokenize)


def cat(offset: int, length: int, collapsed: tuple[int, ...] = (PAD,)) -> MediaRange:
    return MediaRange(modality="image", identity="cat", offset=offset, length=length, collapsed=collapsed)


@st.composite
def expanded(draw: st.DrawFn) -> tuple[list[int], list[MediaRange]]:
    """Ids with media at any places, also side by side, at the beginning and at the end."""
    ids: list[int] = []
    ranges = []
    for gap, size, placeholder in draw(
        st.lists(
            st.tuples(
                st.integers(0, 3), st.integers(1, 5), st.lists(st.integers(0, 9), min_size=1, max_size=3)
            )
        )
    ):
        ids += draw(st.lists(st.integers(0, 9), min_size=gap, max_size=gap))
        ranges.append(cat(len(ids), size, tuple(placeholder)))
        ids += draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    return ids + draw(st.lists(st.integers(0, 9), max_size=3)), ranges


@given(expanded())
def test_expanding_is_the_inverse_of_collapsing(case: tuple[list[int], list[MediaRange]]) -> None:
    ids, ranges = case
    pieces = [ids[one.offset : one.stop] for one in ranges]
    collapsed, places = collapse(ids, ranges)
    assert expand(collapsed, places, pieces) == (ids, ranges)
    assert [tuple(collapsed[one.offset : one.stop]) for one in places] == [one.collapsed for one in ranges]


@given(expanded(), st.lists(st.integers(0, 9), max_size=2))
def test_what_is_given_as_engine_ids_is_believed_only_whole(
    case: tuple[list[int], list[MediaRange]], more: list[int]
) -> None:
    ids, ranges = case
    collapsed, places = collapse(ids, ranges)
    try:
        pieces = pieces_in(collapsed, places, [*ids, *more])
    except InputError:
        return
    assert expand(collapsed, places, pieces)[0] == [*ids, *more]


@pytest.mark.parametrize(
    ("ranges", "text"),
    [
        ([cat(1, 3), cat(3, 1)], r"media\[1\] begins at 3, inside of the range before it"),
        ([cat(0, 1), "cat"], r"media\[1\] is 'cat': give a MediaRange"),
        (5, "media is 5: give a list of MediaRange"),
    ],
)
def test_ranges_that_overlap_are_an_error(ranges: list[MediaRange], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Media.of(ranges)


def test_a_range_outside_of_the_prompt_is_an_error() -> None:
    with pytest.raises(InputError, match=r"media\[0\] ends at 4, prompt_ids has 3"):
        Step(prompt=[], completion=[], prompt_ids=[1, 2, 3], completion_ids=[4], media=[cat(1, 3)])


@pytest.mark.parametrize(("values", "text"), [((-1, 1), "offset"), ((0, 0), "length"), ((True, 1), "offset")])
def test_a_range_of_nothing_is_an_error(values: tuple[int, int], text: str) -> None:
    with pytest.raises(InputError, match=f"{text} of a media range is"):
        cat(*values)


def test_a_step_says_which_ids_are_media() -> None:
    step = first_step(showing("What?", "cat"), keys=["cat"], size=3)
    (span,) = [span for span in step.prompt_ledger.spans if span.origin is Origin.MEDIA]
    assert (span.start, span.stop) == (step.media[0].offset, step.media[0].stop)
    assert step.prompt_ids[span.start : span.stop] == [PAD] * 3


def stitched(step: Step, *new: dict[str, object]) -> Stitched:
    found = try_stitch([step], [*step.messages, *new], SUFFIX, tokenize, media=PLACEHOLDERS)
    assert isinstance(found, Stitched), found
    return found


def test_the_bridge_of_an_image_is_its_placeholder() -> None:
    step = first_step(showing("What?", "cat"), keys=["cat"])
    found = stitched(step, showing("And this?", "dog", "cow"))
    rest = tokenize([showing("And this?", "dog", "cow")], add_generation_prompt=True)
    assert found.ids == [*step.ids, *encode_close(), *rest]
    assert [(one.identity, one.length) for one in found.media] == [("cat", 4), ("dog", 1), ("cow", 1)]
    assert found.unexpanded == 2


def encode_close() -> list[int]:
    return list(b"\n")


def test_what_goes_to_the_engine_has_one_placeholder_for_each_image() -> None:
    step = first_step(showing("What?", "cat"), keys=["cat"])
    found = stitched(step, showing("And this?", "dog"))
    whole = [*step.messages, showing("And this?", "dog")]
    assert to_send(found) == tokenize(whole, add_generation_prompt=True)


def test_the_echo_is_the_next_prompt() -> None:
    step = first_step(showing("What?", "cat"), keys=["cat"])
    found = stitched(step, showing("And this?", "dog"))
    sent = to_send(found)
    echo, ranges = expand(sent, collapse(found.ids, found.media)[1], [(PAD,) * 4, (PAD,) * 6])
    prompt = echoed(found, echo, [(one.offset, one.length) for one in ranges])
    assert prompt.ids == echo
    assert prompt.media == ranges
    assert not prompt.unexpanded
    assert prompt == echoed(found, echo)  # and where the engine names no ranges
    assert [prompt.ledger.spans[i].origin for i in (1, -3)] == [Origin.MEDIA, Origin.MEDIA]
    assert len(prompt.ledger) == len(echo)
    again = stitched(
        prompt.then(
            completion=[{"role": "assistant", "content": "A dog."}], completion_ids=[*b"A dog.", CLOSE]
        ),
        SURE,
    )
    assert again.ids[: len(echo)] == echo
    assert again.media == ranges
    assert not again.unexpanded


@pytest.mark.parametrize(
    ("change", "error", "unnamed"),
    [
        ("an older image grew", r"media\[0\] is at 7 with 5 ids, expected 7 with 4 ids", "another prompt"),
        ("a text id changed", r"id 72 is 11, expected 10", r"outside of the media .*: id 72 is 11"),
        ("an id more", r"\d+ ids, expected \d+$", r"outside of the media .*: \d+ ids, expected \d+$"),
        ("no range", "1 media ranges, expected 2", ""),
        ("a range outside", r"media\[1\] is at 900 with 6 ids, which is no range of \d+ ids", ""),
        ("an empty range", r"media\[0\] is at 7 with 0 ids, which is no range of \d+ ids", ""),
    ],
)
def test_another_echo_is_an_error(change: str, error: str, unnamed: str) -> None:
    step = first_step(showing("What?", "cat"), keys=["cat"])
    found = stitched(step, showing("And this?", "dog"))
    pieces = [(PAD,) * (5 if change == "an older image grew" else 4), (PAD,) * 6]
    echo, places = expand(to_send(found), collapse(found.ids, found.media)[1], pieces)
    ranges = [(one.offset, one.length) for one in places]
    if change == "a text id changed":
        echo[-1] += 1
    if change == "an id more":
        echo.append(5)
    if change == "no range":
        ranges.pop()
    if change == "a range outside":
        ranges[1] = 900, 6
    if change == "an empty range":
        ranges[0] = ranges[0][0], 0
    with pytest.raises(InputError, match=f"another prompt than the one that was sent: {error}"):
        echoed(found, echo, ranges)
    if unnamed:
        with pytest.raises(InputError, match=unnamed):
            echoed(found, echo)


def test_a_prompt_with_placeholders_makes_no_step() -> None:
    found = stitched(first_step(showing("What?", "cat"), keys=["cat"]), showing("And this?", "dog"))
    with pytest.raises(InputError, match="1 media are placeholders still"):
        found.then(completion=[], completion_ids=[])


def refused(step: Step, *new: dict[str, object], tokenize_fn: object = tokenize, **known: object) -> Refusal:
    given = {"media": PLACEHOLDERS, **known}
    found = try_stitch([step], [*step.messages, *new], SUFFIX, tokenize_fn, **given)  # type: ignore[arg-type]
    assert isinstance(found, Refusal)
    return found


STEP = first_step(showing("What?", "cat"), keys=["cat"])
PLAIN = first_step({"role": "user", "content": "?"})
SURE: dict[str, object] = {"role": "user", "content": "Sure?"}
SPELLED = showing("What is <pad>?", "dog")
IN_RESULT = first_step(
    {"role": "user", "content": "?"}, STEP.completion[0], showing("x", "cat", role="tool"), keys=["cat"]
)
FURTHER_BACK = first_step(showing("What?", "cat"), STEP.completion[0], SURE, keys=["cat"])


def parts_of(message: Message) -> list[dict[str, Any]]:
    return message["content"] if isinstance(message["content"], list) else []


def images_in(message: Message) -> int:
    return sum(part["type"] == "image" for part in parts_of(message))


def with_parts(change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> TokenizeFn:
    """Return a template that changes the parts of messages."""
    return shown(
        lambda messages: [{**m, "content": change(parts_of(m))} if parts_of(m) else m for m in messages],
        tokenize,
    )


def marked(mark: Callable[[Sequence[Message]], str]) -> TokenizeFn:
    """Return a template that writes a mark before each message, which may depend on all up to it."""

    def marking(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for place, message in enumerate(messages, 1):
            ids += [*mark(messages[:place]).encode(), *tokenize([message], add_generation_prompt=False)]
        return ids + tokenize([], add_generation_prompt=add_generation_prompt)

    return marking


def result_with_images(message: Message) -> bool:
    return message["role"] == "tool" and bool(parts_of(message))


def seen_until(count: int) -> Step:
    """Return a step whose conversation showed so many images."""
    keys = [f"image {number}" for number in range(count)]
    turns = [message for key in keys for message in (showing("?", key), STEP.completion[0])]
    return first_step(*turns[:-1], keys=keys)


counts_results = marked(
    lambda until: str(sum(map(result_with_images, until))) if result_with_images(until[-1]) else ""
)
REFUSED: dict[str, tuple[Any, Step, dict[str, object], Reason]] = {
    "sampled": (
        tokenize,
        attrs.evolve(PLAIN, completion_ids=[PAD, CLOSE]),
        showing("And this?", "dog"),
        Reason.PLACEHOLDERS,
    ),
    "spelled beside an image": (tokenize, STEP, SPELLED, Reason.PLACEHOLDERS),
    "spelled alone": (tokenize, STEP, {**SURE, "content": "What is <pad>?"}, Reason.PLACEHOLDERS),
    "a text spells the image that is dropped": (
        with_parts(lambda parts: [part for part in parts if part["type"] == "text"]),
        PLAIN,
        SPELLED,
        Reason.PLACEHOLDERS,
    ),
    "images in another order": (
        with_parts(lambda parts: parts[::-1]),
        STEP,
        {"role": "user", "content": [image("dog"), {"type": "text", "text": "x"}, image("cow")]},
        Reason.PLACEHOLDERS,
    ),
    "numbered": (numbering, STEP, showing("And this?", "dog"), Reason.UNPROVEN_TAIL),
    "further back": (numbering, FURTHER_BACK, showing("And this?", "dog"), Reason.UNPROVEN_TAIL),
    "counted in results": (
        counts_results,
        IN_RESULT,
        showing("y", "dog", role="tool"),
        Reason.UNPROVEN_TAIL,
    ),
    **{
        f"left out after {limit}": (
            marked(
                lambda until, limit=limit: (  # type: ignore[misc]  # the default binds the loop's value
                    "omitted" * (images_in(until[-1]) > 0 and sum(map(images_in, until)) > limit)
                )
            ),
            seen_until(limit),
            showing("And this?", "dog"),
            Reason.UNPROVEN_TAIL,
        )
        for limit in (1, 3, 4, 6)
    },
}


def test_a_refusal_counts_placeholders_and_media() -> None:
    assert refused(STEP, SPELLED).detail == "2 placeholders stand for 1 media of the new messages"


@pytest.mark.parametrize("name", REFUSED)
def test_a_placeholder_that_is_not_shown_to_be_an_image_is_refused(name: str) -> None:
    tokenize_fn, step, new, reason = REFUSED[name]
    assert refused(step, new, tokenize_fn=tokenize_fn).reason is reason


def test_a_sampled_placeholder_is_found_after_turns_that_were_checked() -> None:
    step = stitched(STEP, SURE).then(
        completion=[{"role": "assistant", "content": "."}], completion_ids=[PAD, CLOSE]
    )
    assert refused(step, SURE).reason is Reason.PLACEHOLDERS


def test_a_placeholder_without_marks_around_it_is_found() -> None:
    def unmarked(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = tokenize(messages, add_generation_prompt=add_generation_prompt)
        return [index for index in ids if index not in (START, END)]

    step = first_step({"role": "user", "content": "?"})
    prompt = [*step.messages, showing("x", "dog", "cow")]
    found = try_stitch([step], prompt, SUFFIX, unmarked, media=PLACEHOLDERS)
    assert isinstance(found, Stitched)
    assert [found.ids[one.offset] for one in found.media] == [PAD, PAD]


def test_images_in_the_result_of_a_call_are_found() -> None:
    """What the template writes after the arguments of a call is no part of the turn's close."""
    calling = shown(
        lambda messages: [
            {**one, "content": "".join(f"({call['function']['arguments']})" for call in example.calls([one]))}
            if "tool_calls" in one
            else one
            for one in messages
        ],
        tokenize,
    )
    asked = {"role": "user", "content": "?"}
    step = Step(
        prompt=[asked],
        completion=[example.CALLING],
        prompt_ids=tokenize([asked], add_generation_prompt=True),
        completion_ids=[*b"({})", CLOSE],
    )
    prompt = [*step.messages, {**showing("y", "dog", "cow", role="tool"), "tool_call_id": "c"}]
    found = try_stitch([step], prompt, SUFFIX, calling, media=PLACEHOLDERS)
    assert isinstance(found, Stitched), found
    assert [found.ids[one.offset] for one in found.media] == [PAD, PAD]


def test_texts_beside_an_image_stay_texts_where_a_template_writes_lists_otherwise() -> None:
    marking = shown(
        lambda messages: [
            {**one, "content": f"*{parts_of(one)[0]['text']}"} if len(parts_of(one)) == 1 else one
            for one in messages
        ],
        tokenize,
    )
    text = {"role": "user", "content": "y"}
    prompt = [*STEP.messages, text, showing("x", "dog"), showing("x", "cow"), text]
    assert isinstance(try_stitch([STEP], prompt, SUFFIX, marking, media=PLACEHOLDERS), Stitched)


def test_several_numbered_images_go_by_ids_where_a_profile_asks_about_the_whole_history() -> None:
    new = showing("And these?", "dog", "cow", "hen")
    profile = GrowingProfile(Profile(suffix=SUFFIX))
    found = None
    for _ in range(2):
        found = try_stitch(
            [STEP], [*STEP.messages, new], SUFFIX, numbering, profile=profile, media=PLACEHOLDERS
        )
    assert isinstance(found, Stitched)
    assert [one.identity for one in found.media] == ["cat", "dog", "cow", "hen"]
    tail = numbering([*STEP.messages, new], add_generation_prompt=True)[-len(found.added) :]
    assert list(found.added) == tail


@pytest.mark.parametrize(
    ("new", "known"),
    [
        (showing("And this?", "dog"), {"media": None}),
        ({"role": "user", "content": [{"type": "audio_url", "uuid": "song"}]}, {}),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]}, {}),
        ({"role": "user", "content": "?", "images": ["x"]}, {}),
    ],
    ids=["no placeholder known", "audio", "an address", "beside the content"],
)
def test_media_that_cannot_be_named_are_refused(new: dict[str, object], known: dict[str, object]) -> None:
    assert refused(STEP, new, **known).reason is Reason.MULTIMODAL


def test_a_step_without_ranges_is_not_continued() -> None:
    step = Step(
        prompt=STEP.prompt,
        completion=STEP.completion,
        prompt_ids=STEP.prompt_ids,
        completion_ids=STEP.completion_ids,
    )
    detail = "the step has the ranges of 0 media, its messages 1"
    assert refused(step, SURE) == Refusal(Reason.MULTIMODAL, detail)


def test_the_range_of_another_image_is_an_error() -> None:
    ids, ranges = STEP.prompt_ids, [attrs.evolve(STEP.media[0], identity="dog")]
    text = r"media\[0\] is the image 'dog', where the prompt shows the image 'cat'"
    with pytest.raises(InputError, match=text):
        Step(prompt=STEP.prompt, completion=[], prompt_ids=ids, completion_ids=[5], media=ranges)
    found = extended(STEP, {"role": "user", "content": "?"}, media=ranges, history=STEP.prompt)
    assert isinstance(found, Refusal)


def test_another_image_is_another_message() -> None:
    prompt = [showing("What?", "lion"), STEP.completion[0], SURE]
    found = try_stitch([STEP], prompt, SUFFIX, tokenize, media=PLACEHOLDERS)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.NO_PREFIX


def test_the_same_bytes_are_the_same_image_however_they_are_written() -> None:
    url = "data:image/png;base64,aGk="
    key = "sha256:8f434346648f6b96df89dda901c5176b10a6d83961dd3c1ac88b59b2dc327aa4"
    shown = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
    step = first_step(shown, keys=[key])
    keyed = {"type": "image_url", "image_url": None, "uuid": key}
    for part in (keyed, {"type": "image", "url": "DATA:image/gif;BASE64,aGk="}):
        prompt = [{"role": "user", "content": [part]}, *step.completion, SURE]
        assert isinstance(try_stitch([step], prompt, SUFFIX, tokenize, media=PLACEHOLDERS), Stitched)


def test_ranges_survive_storage() -> None:
    found = stitched(STEP, SURE)
    steps = Trajectory([STEP]).append(
        found.then(completion=[{"role": "assistant", "content": "."}], completion_ids=[46])
    )
    for loaded in (pickle.loads(pickle.dumps(steps)), from_data(to_data(steps), Trajectory)):  # noqa: S301  # our own bytes
        assert [one.media for one in loaded] == [STEP.media, STEP.media]
        assert loaded[1].media.parent is not None or loaded[1].media is loaded[0].media
    assert from_data(to_data(STEP), Step) == STEP


def test_branches_of_a_step_that_is_absent_share_its_ranges_in_storage() -> None:
    branches = []
    for key in ("dog", "cow"):
        prompt = expanded_prompt(stitched(STEP, showing("And this?", key)), [(PAD,) * 3])
        branches.append(prompt.then(completion=[{"role": "assistant", "content": "."}], completion_ids=[46]))
    steps = Trajectory(branches)
    for loaded in (pickle.loads(pickle.dumps(steps)), from_data(to_data(steps), Trajectory)):  # noqa: S301  # our own bytes
        assert loaded == steps
        assert [[one.identity for one in step.media] for step in loaded] == [["cat", "dog"], ["cat", "cow"]]
        assert loaded[0].media.parent is loaded[1].media.parent is not None


def test_steps_without_media_are_stored_as_before() -> None:
    step = first_step({"role": "user", "content": "?"})
    assert "media" not in to_data(step)
    assert "media" not in to_data(Trajectory([step]))["steps"][0]


def extended(step: Step, *new: dict[str, object], **known: object) -> Extension | Refusal:
    bridge = Bridge(tokenize, [CLOSE], media=PLACEHOLDERS)
    return bridge.extend(step.ids, list(new), **known)  # type: ignore[arg-type]


def test_the_bridge_gives_what_a_stitch_gives() -> None:
    new = showing("And this?", "dog")
    found = stitched(STEP, new)
    for known in (
        {"media": STEP.media},
        {"media": STEP.media, "turn": STEP.completion[0], "history": STEP.prompt, "sampled": 6},
    ):
        extension = extended(STEP, new, **known)
        assert isinstance(extension, Extension)
        assert (extension.ids, extension.media, extension.unexpanded) == (found.ids, found.media, 1)


def test_a_bridge_asks_nothing_about_images_where_the_history_has_none() -> None:
    step, new = first_step({"role": "user", "content": "?"}), [{"role": "user", "content": "!"}]
    counts = []
    for media in (None, PLACEHOLDERS):
        recorder = Recorder(tokenize)
        bridge = Bridge(recorder, [CLOSE], media=media)
        found = bridge.extend(step.ids, new, turn=step.completion[0], history=step.prompt)
        assert isinstance(found, Extension)
        counts.append(len(recorder.asked))
    assert counts[0] == counts[1] > 0


def test_the_spans_of_a_bridge_grow_with_its_images() -> None:
    extension = extended(STEP, showing("And this?", "dog"), showing("And?", "cow"), media=STEP.media)
    assert isinstance(extension, Extension)
    assert isinstance(extension.spans, tuple)
    grown = expanded_prompt(extension, [(PAD,) * 5, (PAD,) * 3])
    assert isinstance(grown.spans, tuple)
    for before, after, more in zip(extension.spans, grown.spans, (4, 2), strict=True):
        assert after.content_stop - after.content_start == before.content_stop - before.content_start + more
        assert grown.added[after.start] == extension.added[before.start]


@pytest.mark.parametrize("known", [{}, {"media": STEP.media, "history": [showing("?", "cat", "dog")]}])
def test_a_bridge_refuses_images_without_ranges(known: dict[str, object]) -> None:
    assert isinstance(extended(STEP, SURE, **known), Refusal)


def test_placeholders_are_checked() -> None:
    with pytest.raises(InputError, match="without ids"):
        Placeholders.of({"image": []})
    with pytest.raises(InputError, match=r"media\['image'\]\[0\] is -1"):
        Placeholders.of({"image": [-1]})
    assert [Placeholders(runs).longest for runs in ((), (("image", (7, 8)),))] == [0, 2]
    with pytest.raises(InputError, match="media is a list"):
        Placeholders.of([5])  # type: ignore[arg-type]


def test_a_placeholder_of_a_range_is_made_of_ids() -> None:
    with pytest.raises(InputError, match=r"^collapsed\[1\] is -1"):
        cat(0, 1, (7, -1))


@pytest.mark.parametrize("name", ["images", "img", "", 7, None])
def test_a_modality_that_no_message_has_is_an_error(name: Any) -> None:
    known = f"^a modality is {name!r}: give one of image, video, audio, file$"
    with pytest.raises(InputError, match=known):
        Bridge(tokenize, [CLOSE], media={name: [7]})
    with pytest.raises(InputError, match=known):
        MediaRange(modality=name, identity="cat", offset=0, length=1, collapsed=(7,))
    for right in ("image", "video", "audio", "file"):
        assert Placeholders.of({right: [7]})


def test_an_echo_that_puts_an_older_image_elsewhere_is_an_error() -> None:
    found = stitched(STEP, SURE)
    (one,) = found.media
    with pytest.raises(InputError, match="another prompt"):
        echoed(found, found.ids, [(one.offset, one.length - 1)])
    assert echoed(found, found.ids, [(one.offset, one.length)]) is found


@pytest.mark.parametrize("older", [True, False])
def test_a_prompt_that_was_stored_is_expanded_as_the_same(*, older: bool) -> None:
    step = STEP if older else first_step({"role": "user", "content": "?"})
    extension = extended(step, showing("And this?", "dog"), **({"media": step.media} if older else {}))
    for prompt in (stitched(step, showing("And this?", "dog")), extension):
        assert isinstance(prompt, Stitched | Extension)
        again = pickle.loads(pickle.dumps(prompt))  # noqa: S301  # our own bytes
        for found in (again, copy.deepcopy(prompt)):
            new, old = (expanded_prompt(one, [(PAD,) * 3]) for one in (found, prompt))
            assert new == old
            assert [new.ids, new.media, new.ledger] == [old.ids, old.media, old.ledger]


def test_a_placeholder_is_looked_for_where_ids_are_joined() -> None:
    def close_by_ten(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = tokenize(messages, add_generation_prompt=add_generation_prompt)
        return [run for index in ids for run in ([50, 10] if index == PAD else [index])]

    step = first_step(showing("What?", "cat"), keys=["cat"])
    pair = attrs.evolve(step.media[0], collapsed=(50, 10))
    cut = Step(
        prompt=step.prompt,
        completion=step.completion,
        prompt_ids=step.prompt_ids,
        completion_ids=[65, 50],
        media=[pair],
        truncated=True,
    )
    prompt = [*cut.messages, SURE]
    found = try_stitch([cut], prompt, (10,), close_by_ten, media={"image": [50, 10]})
    assert isinstance(found, Refusal)
    bridge = Bridge(close_by_ten, media={"image": [50, 10]}, suffix=(10,))
    assert isinstance(bridge.extend(cut.ids, prompt[2:], media=[pair], truncated=True), Refusal)
    assert Placeholders.of({"image": [50, 10]}).spans(Ids.of([65, 50, 10]), 2)  # type: ignore[union-attr]
    assert not Placeholders.of({"image": [50, 10]}).spans(Ids.of([50, 10, 65]), 2)  # type: ignore[union-attr]


def test_what_was_checked_counts_for_the_same_placeholders_only() -> None:
    first = first_step(showing("What?", "cat"), keys=["cat"])
    prompt = stitched(first, SURE)
    step = prompt.then(completion=[{"role": "assistant", "content": "."}], completion_ids=[777, CLOSE])
    later = stitched(step, SURE)
    last = later.then(completion=[{"role": "assistant", "content": "."}], completion_ids=[46, CLOSE])
    more = refused(last, {"role": "user", "content": "?"}, media={**PLACEHOLDERS, "video": [777]})
    assert more.reason is Reason.PLACEHOLDERS


@pytest.mark.parametrize(
    "ranges",
    [[("a", 1)], [(None, 1)], [(2.0, 3)], [(1, 2, 3)], 5, [(-1, 1)], ["ab"]],
)
def test_malformed_ranges_are_an_input_error(ranges: object) -> None:
    found = stitched(STEP, SURE)
    with pytest.raises(InputError, match="ranges"):
        echoed(found, found.ids, ranges)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [None, [1.0], [-1], "ab"])
def test_malformed_ids_are_an_input_error(ids: object) -> None:
    found = stitched(STEP, showing("And this?", "dog"))
    with pytest.raises(InputError, match=r"^ids"):
        echoed(found, ids)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"pieces\[0\]"):
        expanded_prompt(found, [ids])  # type: ignore[list-item]


def test_a_range_that_was_changed_is_an_error() -> None:
    prompt = stitched(STEP, SURE)
    step = prompt.then(completion=[], completion_ids=[46, CLOSE])
    (one,) = step.media
    for other in (attrs.evolve(one, identity="fox"), attrs.evolve(one, modality="video")):
        with pytest.raises(InputError, match="where the prompt shows the image 'cat'"):
            attrs.evolve(step, media=[other])


def test_ranges_of_other_ids_say_nothing_about_these() -> None:
    media = stitched(STEP, SURE).media
    ids = Ids.of([PAD, *STEP.prompt_ids, *[5] * 50])
    assert Placeholders.of(PLACEHOLDERS).stray(ids, media) == 0  # type: ignore[union-attr]


def test_a_placeholder_that_leaves_its_range_stands_for_no_medium() -> None:
    placeholders = Placeholders.of({"image": [7, 8]})
    assert placeholders is not None
    assert placeholders.stray(Ids.of([7, 8, 7, 8, 9]), Media.of([cat(0, 3, (7, 8))])) == 2
    assert placeholders.stray(Ids.of([7, 8, 7, 8, 9]), Media.of([cat(0, 4, (7, 8))])) is None


def test_a_replaced_stop_leaves_images_in_the_ledger() -> None:
    """Also where the caller does not say how many ids were sampled."""
    step = first_step(showing("?", "cat"), keys=["cat"])
    bridge = Bridge(tokenize, [CLOSE, 600], policy=Policy(odd_stop=OddStop.REPLACE), media=PLACEHOLDERS)
    odd = [*step.ids[:-1], 600]
    found = bridge.extend(odd, [{"role": "user", "content": "b"}], media=step.media)
    assert isinstance(found, Extension)
    assert found.replaced_stop == 600
    shown = [place for place, origin in enumerate(found.ledger) if origin is Origin.MEDIA]
    assert shown == list(range(step.media[0].offset, step.media[0].stop))
