"""A whole prompt with images: each placeholder is shown to be the one of its image, or there is no prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.core.example import shown
from tests.core.pictures import CLOSE, PAD, PLACEHOLDERS, encode, numbering, showing, text_of, tokenize
from tito_core import InputError, Message, Origin, Reason, Refusal, Stitched, TemplateRefused, try_stitch
from tito_core.media.expansion import echoed, expand, to_send
from tito_core.media.first_prompt import FirstPrompt, first_prompt
from tito_core.media.ranges import MediaRange
from tito_core.seams.suffix import suffix_ids

SYSTEM = {"role": "system", "content": "Look."}


def found(*messages: Message, tokenize_fn: Any = tokenize) -> FirstPrompt:
    prompt = first_prompt(messages, tokenize_fn, PLACEHOLDERS)
    assert isinstance(prompt, FirstPrompt), prompt
    return prompt


def refused(*messages: Message, tokenize_fn: Any = tokenize) -> Reason:
    prompt = first_prompt(messages, tokenize_fn, PLACEHOLDERS)
    assert isinstance(prompt, Refusal)
    return prompt.reason


def expansion(prompt: FirstPrompt) -> tuple[list[int], list[MediaRange]]:
    """Return what an engine makes of a prompt: three ids of each image."""
    return expand(to_send(prompt), list(prompt.media), [(PAD,) * 3] * len(prompt.media))


def test_a_prompt_has_the_ids_of_its_render_and_a_range_for_each_image() -> None:
    messages = [SYSTEM, showing("What?", "cat", "dog"), showing("7", "cow", role="tool")]
    prompt = found(*messages)
    assert prompt.ids == tokenize(messages, add_generation_prompt=True)
    assert [one.identity for one in prompt.media] == ["cat", "dog", "cow"]
    assert [prompt.ids[one.offset] for one in prompt.media] == [PAD] * 3
    assert [span.origin for span in prompt.ledger.spans].count(Origin.MEDIA) == 3
    assert prompt.unexpanded == 3


def test_numbered_images_have_ranges_though_each_number_depends_on_those_before() -> None:
    messages = [showing("What?", "cat", "dog"), showing("7", "cow", role="tool")]
    prompt = found(*messages, tokenize_fn=numbering)
    assert prompt.ids == numbering(messages, add_generation_prompt=True)
    assert [(one.identity, prompt.ids[one.offset]) for one in prompt.media] == [
        (key, PAD) for key in ("cat", "dog", "cow")
    ]


def test_it_is_shown_without_what_was_said() -> None:
    assert "What?" not in repr(found(showing("What?", "cat")))


def test_a_step_of_it_has_the_engine_s_ids_and_can_be_continued() -> None:
    prompt = found(showing("What?", "cat"))
    with pytest.raises(InputError, match="1 media are placeholders still"):
        prompt.then(completion=[], completion_ids=[])
    ids, ranges = expansion(prompt)
    grown = echoed(prompt, ids, [(one.offset, one.length) for one in ranges])
    answer = {"role": "assistant", "content": "A cat."}
    with pytest.raises(InputError, match=r"^completion_ids\[0\] is 'A'"):
        grown.then(completion=[answer], completion_ids=["A"])  # type: ignore[list-item]  # what callers may do
    step = grown.then(completion=[answer], completion_ids=[*b"A cat.", CLOSE], key="k")
    assert step.prompt_ids == ids
    assert step.media == ranges
    assert step.key == "k"
    messages = [*step.messages, showing("And?", "dog")]
    longer = try_stitch([step], messages, suffix_ids(tokenize), tokenize, key="k", media=PLACEHOLDERS)
    assert isinstance(longer, Stitched)
    assert to_send(longer) == tokenize(messages, add_generation_prompt=True)


def test_an_engine_that_saw_other_ids_is_an_error() -> None:
    prompt = found(showing("What?", "cat"))
    ids, _ = expansion(prompt)
    with pytest.raises(InputError):
        echoed(prompt, [*ids, 5])


def test_a_text_that_spells_a_placeholder_is_refused() -> None:
    assert refused(showing("What is <pad>?", "cat")) is Reason.PLACEHOLDERS
    assert refused({"role": "user", "content": "What is <pad>?"}) is Reason.PLACEHOLDERS


def test_a_dropped_image_is_refused_although_a_text_spells_one() -> None:
    dropping = shown(
        lambda messages: [
            {**m, "content": [one for one in m["content"] if one["type"] == "text"]} for m in messages
        ],
        tokenize,
    )
    assert refused(showing("What is <pad>?", "cat"), tokenize_fn=dropping) is Reason.PLACEHOLDERS


def test_placeholders_are_as_many_as_media() -> None:
    def dropping(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = tokenize(messages, add_generation_prompt=add_generation_prompt)
        return [index for index in ids if index != PAD]

    prompt = first_prompt([showing("What?", "cat")], dropping, PLACEHOLDERS)
    detail = "0 placeholders stand for 1 media of the prompt"
    assert prompt == Refusal(Reason.PLACEHOLDERS, detail)


def test_media_that_cannot_be_named_are_refused() -> None:
    assert refused({"role": "user", "content": [{"type": "audio_url", "uuid": "a"}]}) is Reason.MULTIMODAL
    assert refused({"role": "user", "content": [{"type": "image"}]}) is Reason.MULTIMODAL


def test_what_the_template_rejects_is_refused() -> None:
    def rejecting(messages: Sequence[Message], **_: bool) -> list[int]:
        raise TemplateRefused(f"no images in {len(messages)} messages")

    assert refused(showing("What?", "cat"), tokenize_fn=rejecting) is Reason.TEMPLATE_REFUSED
    assert refused(SYSTEM, showing("What?", "cat"), tokenize_fn=rejecting) is Reason.TEMPLATE_REFUSED


@pytest.mark.parametrize("rejects", [True, False], ids=["rejects texts", "drops texts"])
def test_a_template_that_takes_lists_alone_is_given_lists(rejects: bool) -> None:
    def lists_alone(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if rejects and any(m["content"] and isinstance(m["content"], str) for m in messages):
            raise TemplateRefused("a list")
        kept = [m if isinstance(m["content"], list) else {**m, "content": ""} for m in messages]
        names = "".join(call["function"]["name"] for m in messages for call in m.get("tool_calls", ()))
        return [*tokenize(kept, add_generation_prompt=add_generation_prompt), *names.encode()]

    call = {"type": "function", "id": "c", "function": {"name": "look", "arguments": {}}}
    calling: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
    messages: list[Message] = [SYSTEM, calling, showing("What?", "cat")]
    prompt = found(*messages, tokenize_fn=lists_alone)
    assert prompt.ids == [*tokenize(messages, add_generation_prompt=True), *b"look"]


def test_a_template_that_takes_texts_and_lists_is_given_both() -> None:
    def texts_of_systems(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if any(m["role"] == "system" and isinstance(m["content"], list) for m in messages):
            raise TemplateRefused("a text")
        return tokenize(messages, add_generation_prompt=add_generation_prompt)

    messages = [SYSTEM, showing("What?", "cat")]
    assert found(*messages, tokenize_fn=texts_of_systems).ids == tokenize(
        messages, add_generation_prompt=True
    )


def test_an_empty_text_stays_a_text() -> None:
    """Templates ask whether there is one, and an empty list of a text is one."""

    def asking(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        marks = "".join("*" for m in messages if m["content"])
        return [*encode(marks), *tokenize(messages, add_generation_prompt=add_generation_prompt)]

    prompt = found({"role": "assistant", "content": ""}, showing("What?", "cat"), tokenize_fn=asking)
    assert list(prompt.ids).count(ord("*")) == 1


def test_two_ways_to_write_a_text_are_refused() -> None:
    def marking(messages: Sequence[Message], **_: bool) -> list[int]:
        marks = "".join("*" for m in messages if isinstance(m["content"], list))
        return encode(marks + text_of(messages))

    assert refused(SYSTEM, showing("What?", "cat"), tokenize_fn=marking) is Reason.UNPROVEN_TAIL


def test_placeholders_are_needed() -> None:
    with pytest.raises(InputError, match="media is None"):
        first_prompt([SYSTEM], tokenize, None)  # type: ignore[arg-type]  # the mistake
