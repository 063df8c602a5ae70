"""Conversations with images: ids, beside the processor's own and those of renderers written by hand."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from renderers import Qwen35RendererConfig
from renderers.base import MultimodalRenderer, build_training_sample, is_multimodal
from renderers.qwen3_vl import Qwen3VLRenderer
from renderers.qwen35 import Qwen35Renderer

from tests.frameworks.renderers.models import CHOSEN, OWN, model
from tests.model_folders import FAMILIES, needs_families
from tests.processors.kinds import KINDS, processor_of, tokenizer_of
from tests.processors.kinds import real as real_processor
from tests.processors.shapes import SHAPES, Turn, drawn, names, picture, showing, shown, whole
from tito_core import InputError
from tito_core.media.expansion import collapse
from tito_io.integrations.images import Shown, digest
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.renderers import StitchedConfig, StitchedRenderer

SMALL = ("llava", "idefics3", "qwen3-vl")
"""Processors of which an image has many of the placeholder's ids."""
WAYS = ("with processing", "without")
THOUGHT = "\n</think>\n\n"


def url(image: Any) -> str:
    data = io.BytesIO()
    image.save(data, "PNG")
    return f"data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"


@cache
def processor(name: str) -> Any:
    return processor_of(KINDS[name], pil=True)


def renderer_of(given: Any, **options: Any) -> StitchedRenderer:
    config = StitchedConfig(**{"thinking_retention": "all", **options})
    return StitchedRenderer(given.tokenizer, config, processor=given)


@cache
def learned(name: str) -> StitchedRenderer:
    """Return a renderer that has learned its template, for conversations in which nothing is refused."""
    return renderer_of(processor(name))


def played(renderer: Any, given: Any, turns: Sequence[Turn], way: str, before: str = "") -> list[Any]:
    """Return what a renderer makes of each turn; None where it bridges none, and then the end."""
    prompts: list[Any] = []
    completion: list[int] = []
    for turn in turns:
        options: dict[str, Any] = {} if way == WAYS[0] else {"process_multimodal": False}
        new = shown(turn.new)
        if not prompts:
            prompts.append(renderer.render(new, add_generation_prompt=True, **options))
        else:
            if way == WAYS[0]:
                options["previous_multi_modal_data"] = prompts[-1].multi_modal_data
            last = prompts[-1].token_ids
            prompts.append(renderer.bridge_to_next_turn(last, completion, new, **options))
        if prompts[-1] is None:
            break
        stop = [] if turn.truncated else given.tokenizer.encode("<|im_end|>", add_special_tokens=False)
        completion = [*given.tokenizer.encode(before + turn.text, add_special_tokens=False), *stop]
    return prompts


def test_the_protocol_for_images_is_kept() -> None:
    renderer = renderer_of(processor("llava"))
    assert isinstance(renderer, MultimodalRenderer)
    assert is_multimodal(renderer)
    assert renderer.mm_token_type_id_map == {processor("llava").image_token_id: 1}
    text = model(OWN).renderer()
    assert (is_multimodal(text), text.mm_token_type_id_map, text.supports_process_multimodal) == (
        False,
        {},
        False,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", [*SMALL, "gemma3"])
def test_prompts_are_those_of_the_processor(name: str, shape: str) -> None:
    given, turns = processor(name), SHAPES[shape]
    if shape in KINDS[name].refused:
        assert_refused(renderer_of(given), given, turns)
        return
    prompts = played(learned(name), given, turns, WAYS[0])
    images: list[Any] = []
    for prompt, turn in zip(prompts, turns, strict=True):
        images += [drawn(one) for one in names(turn.new)]
        data = prompt.multi_modal_data
        assert (data is None) == (not images)
        if data is None:
            continue
        spans = data.mm_placeholders["image"]
        assert data.mm_hashes["image"] == [digest(one) for one in images]
        assert len(spans) == len(data.mm_items["image"]) == len(images)
        text = given.tokenizer.decode(_collapsed(learned(name), prompt))
        assert prompt.token_ids == whole(given, text, images, return_tensors="np")
        for found, image in zip(data.mm_items["image"], images, strict=True):
            alone = given.image_processor(images=[image], return_tensors="np")
            assert found.keys() <= alone.keys()
            assert all(np.array_equal(value, alone[key]) for key, value in found.items())


def assert_refused(renderer: Any, given: Any, turns: Sequence[Turn]) -> None:
    """Assert that the last prompt is refused: a render raises, a bridge is None."""
    if len(turns) == 1:
        with pytest.raises(RefusedError, match="the processor changes ids outside of the images"):
            played(renderer, given, turns, WAYS[0])
    else:
        assert played(renderer, given, turns, WAYS[0])[-1] is None
    assert renderer.prompts.refused == {"MULTIMODAL": 1}


def _collapsed(renderer: Any, prompt: Any) -> list[int]:
    """Return a prompt's ids with placeholders; Gemma 3's line ends around them are the image's."""
    ranges: Any = renderer._prior(prompt.token_ids, prompt.multi_modal_data, None, process_multimodal=True)
    if renderer.supports_process_multimodal:
        return collapse(prompt.token_ids, ranges)[0]
    around = renderer.prompts.family.encode("\n\n<start_of_image>")
    assert around  # the text of a tool result or a question goes before it
    pieces = renderer.prompts.family.decode(prompt.token_ids).split("\n\n<start_of_image>")
    rest = [piece.partition("<end_of_image>\n\n")[2] for piece in pieces[1:]]
    return list(renderer.prompts.family.encode("<start_of_image>".join([pieces[0], *rest])))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["idefics3"])
def test_placeholders_are_those_of_the_template(name: str, shape: str) -> None:
    given, turns = processor(name), SHAPES[shape]
    ways = [played(learned(name), given, turns, way) for way in WAYS]
    for full, bare in zip(*ways, strict=True):
        ranges: Any = learned(name)._prior(
            full.token_ids, full.multi_modal_data, None, process_multimodal=True
        )
        assert bare.token_ids == collapse(full.token_ids, ranges)[0]
        assert bare.multi_modal_data is None
        assert [place for place in bare.message_indices if place >= 0]


BARE = ("third turn", "two in one", "tool result", "after a cut turn")
"""Conversations whose prompts of placeholders are compared, too."""
CASES = [
    pytest.param(family, shape, way, marks=needs_families)
    for family, folder in (("qwen3-vl", "qwen3"), ("qwen3.5", "qwen3.5"))
    for shape in SHAPES
    for way in WAYS[: 1 + (shape in BARE)]
    if folder in CHOSEN and (family, shape) != ("qwen3.5", "after a cut turn")  # cut in its reasoning
]


@pytest.mark.parametrize(("family", "shape", "way"), CASES)
def test_prompts_are_those_of_the_renderer_by_hand(family: str, shape: str, way: str) -> None:
    given, own, hand, before = BY_HAND[family]()
    found, expected = (played(one, given, SHAPES[shape], way, before) for one in (own, hand))
    assert len(found) == len(expected) == len(SHAPES[shape])
    for one, other in zip(found, expected, strict=True):
        assert one.token_ids == other.token_ids
        assert one.message_indices == other.message_indices
        assert one.sampled_mask == other.sampled_mask
        if way == WAYS[0] and other.multi_modal_data is not None:
            assert one.multi_modal_data.mm_placeholders == other.multi_modal_data.mm_placeholders
            items = (each.multi_modal_data.mm_items["image"] for each in (one, other))
            for mine, theirs in zip(*items, strict=True):
                assert mine.keys() == theirs.keys()
                assert all(np.array_equal(mine[key], theirs[key]) for key in theirs)
    assert not own.prompts.refused
    assert own.mm_token_type_id_map.items() <= hand.mm_token_type_id_map.items()


@cache
def qwen3_vl() -> tuple[Any, Any, Any, str]:
    """Return a processor, its renderers, and what a turn begins with."""
    given = real_processor("qwen3-vl", FAMILIES, pil=True)
    own = renderer_of(given, parser="qwen3-vl")
    return given, own, Qwen3VLRenderer(given.tokenizer, processor=given), ""


@cache
def qwen35() -> tuple[Any, Any, Any, str]:
    """Return the same for Qwen3.5, whose turns begin with reasoning."""
    kind, folder = KINDS["qwen3-vl"], FAMILIES / "qwen3.5"
    tokenizer = tokenizer_of(kind, (folder / "tokenizer.json").read_text())
    template = (folder / "chat_template.jinja").read_text()
    given = processor_of(kind, pil=True, tokenizer=tokenizer, template=template)
    config = Qwen35RendererConfig(thinking_retention="all")
    own = renderer_of(given, parser="qwen3.5")
    return given, own, Qwen35Renderer(tokenizer, config, processor=given), THOUGHT


BY_HAND = {"qwen3-vl": qwen3_vl, "qwen3.5": qwen35}


# Whose the ids are


def test_ids_of_images_are_their_messages_and_never_trained() -> None:
    renderer = renderer_of(processor("idefics3"))
    answer = {"role": "assistant", "content": "I see."}
    messages = [*shown([showing("Say", "wide", "and", "small", ".")]), answer]
    rendered = renderer.render(messages)
    spans = rendered.message_token_spans()
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    for one in rendered.multi_modal_data.mm_placeholders["image"]:
        assert spans[0][0] <= one.offset < one.offset + one.length <= spans[0][1]
        assert not any(rendered.is_content[one.offset : one.offset + one.length])
    sample = build_training_sample(renderer, messages, content_sft_roles={"user"})
    assert sample.token_ids == rendered.token_ids
    assert sample.loss_mask == rendered.is_content
    assert sum(sample.mm_token_type_ids) == sum(
        one.length for one in rendered.multi_modal_data.mm_placeholders["image"]
    )
    trained = [index for index, on in zip(sample.token_ids, sample.loss_mask, strict=True) if on]
    assert processor("idefics3").image_token_id not in trained
    assert processor("idefics3").tokenizer.decode(trained).endswith("I see.<|im_end|>")


# What an image is


@pytest.mark.parametrize("way", WAYS)
def test_it_does_not_count_how_an_image_is_given(way: str) -> None:
    given, image = processor("llava"), drawn("wide")
    data = io.BytesIO()
    image.save(data, "PNG")
    forms = [
        {"type": "image", "image": image},
        {"type": "image_url", "image_url": {"url": url(image)}},
        {"type": "image_url", "image_url": image},
        {"type": "image", "image": data.getvalue()},
        {"type": "image", "image": image, "text": None},
    ]
    options: dict[str, Any] = {} if way == WAYS[0] else {"process_multimodal": False}
    prompts = [renderer_of(given).render([{"role": "user", "content": [form]}], **options) for form in forms]
    assert all(prompt.token_ids == prompts[0].token_ids for prompt in prompts)


def test_pixels_decide_which_image_it_is() -> None:
    one, other = drawn("wide"), drawn("wide")
    assert digest(one) == digest(other)
    other.putpixel((5, 5), (1, 1, 1))
    assert digest(one) != digest(other) != digest(picture((60, 150)))
    assert digest(one.convert("L")) != digest(one.convert("1"))
    library: Any = import_module("PIL.Image")  # whose types are not installed where types are checked
    first, second = (library.new("P", (2, 2)) for _ in range(2))
    first.putpalette([1, 2, 3] * 256)
    second.putpalette([3, 2, 1] * 256)
    assert first.tobytes() == second.tobytes()
    assert digest(first) != digest(second)
    assert digest(np.zeros((2, 3))) != digest(np.zeros((3, 2)))
    part = {"type": "image", "image": one, "uuid": "mine"}
    assert Shown.of([{"role": "user", "content": [part]}]).messages[0]["content"] == [
        {"type": "image", "uuid": "mine"}
    ]


def test_an_address_is_not_fetched() -> None:
    renderer = renderer_of(processor("llava"))
    for address in ("https://example.com/cat.png", "cat.png"):
        message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}
        with pytest.raises(InputError, match="an image is an address: give an image of PIL, its bytes, or"):
            renderer.render([message])
        with pytest.raises(RefusedError, match="neither bytes, in a data URL, nor a `uuid`"):
            renderer.render([message], process_multimodal=False)
    with pytest.raises(InputError, match="an image is not readable"):
        renderer.render([{"role": "user", "content": [{"type": "image", "image": b"..."}]}])


def test_only_new_images_are_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    given = processor_of(KINDS["llava"], pil=True)
    seen: list[list[Any]] = []
    call = type(given.image_processor).__call__

    def watched(self: Any, images: Any, *rest: Any, **more: Any) -> Any:
        seen.append(
            [digest(one) for batch in images for one in (batch if isinstance(batch, list) else [batch])]
        )
        return call(self, images, *rest, **more)

    monkeypatch.setattr(type(given.image_processor), "__call__", watched)
    renderer = renderer_of(given)
    assert renderer.is_multimodal
    assert seen == []
    played(renderer, given, SHAPES["third turn"], WAYS[0])
    wide, tall = digest(drawn("wide")), digest(drawn("tall"))
    assert seen == [[wide], [tall], [tall, tall]]  # the last asks whether an older image makes a difference


# Refusals


def prompt_of(renderer: Any, *parts: str, **options: Any) -> Any:
    return renderer.render(shown([showing(*parts)]), add_generation_prompt=True, **options)


def test_images_of_a_prompt_must_be_given() -> None:
    given = processor("llava")
    renderer = renderer_of(given)
    prompt = prompt_of(renderer, "wide", "A?")
    after = [{"role": "user", "content": "B?"}]
    assert renderer.bridge_to_next_turn(prompt.token_ids, [900], after) is None
    assert renderer.prompts.refused == {"MULTIMODAL": 1}
    data = prompt.multi_modal_data
    data.mm_placeholders["video"] = data.mm_placeholders["image"]
    bridge = renderer.bridge_to_next_turn
    assert bridge(prompt.token_ids, [900], after, previous_multi_modal_data=data) is None
    del data.mm_placeholders["video"]
    data.mm_hashes["image"] = ["another"]
    assert bridge(prompt.token_ids, [900], after, previous_multi_modal_data=data) is None
    data.mm_hashes["image"] = []
    assert bridge(prompt.token_ids, [900], after, previous_multi_modal_data=data) is None
    assert renderer.prompts.refused == {"MULTIMODAL": 4}
    strict = renderer_of(given, on_refusal="raise")
    with pytest.raises(RefusedError, match="previous_multi_modal_data is None"):
        strict.bridge_to_next_turn(prompt.token_ids, [900], after)


@pytest.mark.parametrize("way", WAYS)
def test_a_placeholder_that_is_no_images_is_refused(way: str) -> None:
    given = processor("qwen3-vl")
    renderer = renderer_of(given)
    options: dict[str, Any] = {} if way == WAYS[0] else {"process_multimodal": False}
    spelled = shown([showing("wide", "What is <|image_pad|>?")])
    with pytest.raises(RefusedError, match="PLACEHOLDERS"):
        renderer.render(spelled, add_generation_prompt=True, **options)
    prompt = prompt_of(renderer, "wide", "A?", **options)
    if way == WAYS[0]:
        options["previous_multi_modal_data"] = prompt.multi_modal_data
    sampled = given.tokenizer.encode("See <|image_pad|>.<|im_end|>")
    bridge = renderer.bridge_to_next_turn
    assert bridge(prompt.token_ids, sampled, [{"role": "user", "content": "B?"}], **options) is None
    said = given.tokenizer.encode("So.<|im_end|>")
    assert bridge(prompt.token_ids, said, spelled, **options) is None
    assert renderer.prompts.refused == {"PLACEHOLDERS": 3}


def test_a_model_with_two_ids_has_no_prompts_of_placeholders() -> None:
    renderer = renderer_of(processor("gemma3"))
    tokenizer = processor("gemma3").tokenizer
    assert renderer.mm_token_type_id_map == {tokenizer.convert_tokens_to_ids("<image_soft_token>"): 1}
    assert not renderer.supports_process_multimodal
    with pytest.raises(InputError, match="renderers has one id for placeholders and images"):
        prompt_of(renderer, "wide", process_multimodal=False)
    after = shown([showing("wide", "B?")])
    text = renderer.render([{"role": "user", "content": "A?"}], add_generation_prompt=True)
    with pytest.raises(InputError, match="renderers has one id for placeholders and images"):
        renderer.bridge_to_next_turn(text.token_ids, [900], after, process_multimodal=False)


def test_videos_are_refused() -> None:
    renderer = renderer_of(processor("qwen3-vl"))
    message = {"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}
    with pytest.raises(RefusedError, match="no placeholder is given for video parts"):
        renderer.render([message])


@needs_families
def test_a_template_that_counts_pictures_counts_on() -> None:
    given, *_ = qwen3_vl()
    renderer = renderer_of(given, parser="qwen3-vl", add_vision_id=True)
    first, *_ = played(renderer, given, SHAPES["third turn"][:1], WAYS[1])
    assert "Picture 1: " in given.tokenizer.decode(first.token_ids)
    last = played(renderer, given, SHAPES["same twice"], WAYS[1])[-1]
    assert last is not None
    text = given.tokenizer.decode(last.token_ids)
    assert [text.count(f"Picture {number}: ") for number in (1, 2, 3)] == [1, 1, 0]


@pytest.mark.parametrize("way", WAYS)
def test_a_history_that_is_forgotten_makes_no_difference(way: str) -> None:
    given = processor("llava")
    forgetful = renderer_of(given, remembered=0)
    found, expected = (
        played(one, given, SHAPES["third turn"], way) for one in (forgetful, renderer_of(given))
    )
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert len(found) == 3
