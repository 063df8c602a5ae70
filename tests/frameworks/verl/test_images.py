"""Merges of conversations with images, beside verl's own builders and the processor's call for the whole."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from verl.utils.tokenizer import continuous_token_wiring as wiring
from verl.utils.tokenizer.continuous_token import (
    QwenVLContinuousTokenBuilder,
)

from tests.frameworks.verl.rollout import Rollout
from tests.processors.kinds import KINDS, processor_of
from tests.processors.shapes import SHAPES, Turn, drawn, names, showing, shown, whole
from tito_core import InputError
from tito_core.media.expansion import collapse
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.verl import TitoContinuousTokenBuilder, TitoImages, install

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
"""transformers 5.10 gives tensors to NumPy in a way that NumPy 2.4 deprecates."""
KINDS_HERE = ("qwen3-vl", "llava", "mllama")
TYPES = {"qwen3-vl": "qwen3_vl"}
"""The model types that verl knows; it has a default for others."""


@cache
def processor(name: str) -> Any:
    return processor_of(KINDS[name], pil=True)


def made(name: str, **options: Any) -> Any:
    """Return the builder that verl makes for a model."""
    given = processor(name)
    return wiring.create_continuous_token_builder(
        given.tokenizer, hf_model_type=TYPES.get(name), processor=given, **options
    )


def rollout_of(builder: Any, messages: list[Any]) -> Rollout:
    """Begin a rollout as verl's loops do."""
    images = [part["image"] for message in messages for part in message["content"] if "image" in part]
    return Rollout(builder, messages, images=images)


def played(builder: Any, given: Any, turns: Sequence[Turn]) -> tuple[Rollout, list[list[int]]]:
    """Play a conversation; return the prompts."""
    rollout, prompts = None, []
    for turn in turns:
        new = shown(turn.new)
        if rollout is None:
            rollout = rollout_of(builder, new)
        else:
            rollout.answer(*new)
        prompts.append(rollout.ids)
        stop = [] if turn.truncated else given.tokenizer.encode("<|im_end|>")
        rollout.sample([*given.tokenizer.encode(turn.text), *stop], dict(turn.said))
    assert rollout is not None
    return rollout, prompts


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", KINDS_HERE)
def test_prompts_are_those_of_the_processor(name: str, shape: str) -> None:
    given, turns = processor(name), SHAPES[shape]
    with install() as installation:
        builder = made(name)
        assert isinstance(builder, TitoImages)
        rollout, prompts = played(builder, given, turns)
    images: list[Any] = []
    for prompt, turn in zip(prompts, turns, strict=True):
        images += [drawn(one) for one in names(turn.new)]
        text = _collapsed(builder, given, prompt)
        assert prompt == whole(given, text, images, return_tensors="pt")
    assert rollout.trained() == rollout.sampled
    assert installation.built == ({"ids": len(turns) - 1} if len(turns) > 1 else {})
    assert not installation.refused


def _collapsed(builder: Any, given: Any, prompt: list[int]) -> str:
    """Return a prompt's text with placeholders."""
    media = builder.known.find(prompt) or ()
    return str(given.tokenizer.decode(collapse(prompt, media)[0]))


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_turns_are_merged_as_by_verl(shape: str) -> None:
    given, turns = processor("qwen3-vl"), SHAPES[shape]
    theirs = made("qwen3-vl")
    assert type(theirs) is QwenVLContinuousTokenBuilder
    _, expected = played(theirs, given, turns)
    with install(on_refusal="raise"):
        _, found = played(made("qwen3-vl"), given, turns)
    assert found[0] == expected[0]
    assert (found == expected) is (shape != "after a cut turn")  # verl leaves the close out


def test_two_images_that_share_an_id_are_merged_by_verl() -> None:
    """Gemma 3 writes line ends around an image; those of two images become one id."""
    given, turns = processor("gemma3"), SHAPES["two in one"]
    _, expected = played(made("gemma3"), given, turns)
    with install(on_refusal="rerender") as installation:
        _, found = played(made("gemma3"), given, turns)
    assert found == expected
    assert installation.refused == {"MULTIMODAL": 1}
    with install(), pytest.raises(RefusedError, match="the processor changes ids outside of the images"):
        played(made("gemma3"), given, turns)


FIRST, SAID = shown([showing("wide", "A?")]), {"role": "assistant", "content": "So."}
MORE = {"role": "user", "content": "B?"}


def begun(builder: Any, text: str = "So.<|im_end|>", images: Any = None) -> list[int]:
    """Return the ids of a first prompt with an image, and of a turn."""
    images = [drawn("wide")] if images is None else images
    return [*builder.build_initial_tokens(FIRST, images=images), *builder.tokenizer.encode(text)]


def test_images_may_have_another_size_than_in_their_messages() -> None:
    """The data set of verl resizes images (`process_vision_info`), and keeps those of its messages."""
    with install():
        builder = made("qwen3-vl")
        ids = begun(builder, images=[drawn("wide").resize((64, 64))])
        merged = builder.merge_context_tokens([*FIRST, SAID], [*FIRST, SAID, MORE], ids)
    assert merged.token_ids[: len(ids)] == ids
    (one,) = builder.known.find(ids)
    assert ids[one.offset : one.stop] == [builder.processor.image_token_id] * 4
    assert len(begun(builder)) > len(ids)


def test_only_new_images_are_processed(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    kind = type(processor("llava").image_processor)
    call = kind.__call__

    def watched(self: Any, images: Any, *rest: Any, **more: Any) -> Any:
        seen.append(sum(len(one) if isinstance(one, list) else 1 for one in images))
        return call(self, images, *rest, **more)

    monkeypatch.setattr(kind, "__call__", watched)
    with install():
        builder = made("llava")
        ids = begun(builder)
        new = shown([showing("tall", "small", "B?")])
        builder.merge_context_tokens([*FIRST, SAID], [*FIRST, SAID, *new], ids)
    assert seen == [1, 2, 1, 3]  # the first prompt, new images, the first alone, and beside an older one


def test_ids_that_were_made_elsewhere_are_merged_by_verl() -> None:
    theirs = made("qwen3-vl")
    ids = begun(theirs)
    messages = [*FIRST, SAID, MORE]
    expected = theirs.merge_context_tokens(messages[:-1], messages, ids)
    with install(on_refusal="rerender") as installation:
        assert made("qwen3-vl").merge_context_tokens(messages[:-1], messages, ids) == expected
    assert installation.refused == {"MULTIMODAL": 1}
    with install(), pytest.raises(RefusedError, match="it is not known where the images stand in the ids"):
        made("qwen3-vl").merge_context_tokens(messages[:-1], messages, ids)


@pytest.mark.parametrize(
    ("text", "new", "reason"),
    [
        ("See <|image_pad|>.<|im_end|>", MORE, "PLACEHOLDERS"),
        ("So.<|im_end|>", {"role": "user", "content": "Is <|image_pad|> one?"}, "PLACEHOLDERS"),
        ("So.<|im_end|>", *shown([showing("tall", "<|image_pad|>")]), "PLACEHOLDERS"),
        ("So.<|im_end|>", {"role": "user", "content": [{"type": "image", "image": "a.png"}]}, "MULTIMODAL"),
        ("So.<|im_end|>", {"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}, "MULTIMODAL"),
    ],
)
def test_what_cannot_be_merged_is_named(text: str, new: Any, reason: str) -> None:
    with install() as installation:
        builder = made("qwen3-vl")
        ids = begun(builder, text)
        with pytest.raises(RefusedError, match=reason):
            builder.merge_context_tokens([*FIRST, SAID], [*FIRST, SAID, new], ids)
    assert installation.refused == {reason: 1}


def test_a_changed_image_is_another_message() -> None:
    with install():
        builder = made("qwen3-vl")
        ids = begun(builder)
        other = shown([showing("tall", "A?")])
        with pytest.raises(RefusedError, match="ranges are not those of the history"):
            builder.merge_context_tokens([*other, SAID], [*other, SAID, MORE], ids)


def test_a_first_prompt_whose_images_are_unclear_is_named_at_the_next_turn() -> None:
    spelled = shown([showing("wide", "Is <|vision_pad|> one?")])
    with install():
        builder = made("llava")
        doubled = [*FIRST, *shown([showing("What is <image>?", "wide")])]
        builder.known.keep([1, 2], builder._placed(doubled, [drawn("wide")] * 2, [1, 2], None))
        with pytest.raises(RefusedError, match="PLACEHOLDERS"):
            builder.merge_context_tokens([*doubled, SAID], [*doubled, SAID, MORE], [1, 2, 3])
        builder.known.keep([5, 6], builder._placed(spelled, [drawn("wide")], [5, 6], None))
        with pytest.raises(RefusedError, match="it is not clear where the images stand"):
            builder.merge_context_tokens([*spelled, SAID], [*spelled, SAID, MORE], [5, 6, 7])


def test_an_image_of_the_data_set_may_be_bytes_beside_an_object_or_a_path() -> None:
    data = io.BytesIO()
    drawn("wide").save(data, "PNG")
    both = {"type": "image", "bytes": data.getvalue(), "image": drawn("wide")}
    path = {"type": "image", "image": "/data/wide.png"}
    for part in (both, path):
        first = [{"role": "user", "content": [part, {"type": "text", "text": "A?"}]}]
        with install():
            builder = made("qwen3-vl")
            ids = [*builder.build_initial_tokens(first, images=[drawn("wide")]), 57]
            assert ids[:-1] == builder.build_initial_tokens(FIRST, images=[drawn("wide")])
            merged = builder.merge_context_tokens([*first, SAID], [*first, SAID, MORE], ids)
        assert merged.inserted_token_ids == builder.tokenizer.encode("<|im_end|>\n")


def test_text_alone_is_merged_likewise() -> None:
    hello = {"role": "user", "content": "Hello."}
    with install() as installation:
        builder = made("qwen3-vl")
        ids = [*builder.build_initial_tokens([hello]), *builder.tokenizer.encode("So.")]
        merged = builder.merge_context_tokens([hello, SAID], [hello, SAID, MORE], ids)
        assert merged.inserted_token_ids == builder.tokenizer.encode("<|im_end|>\n")
        nothing = builder.merge_context_tokens([hello, SAID], [hello, SAID], ids)
        assert (nothing.token_ids, nothing.appended_token_count) == (ids, 0)
        with pytest.raises(InputError, match="previous_messages is empty"):
            builder.merge_context_tokens([], [MORE], [1])
    assert installation.built == {"ids": 1}


def test_other_methods_stay_those_of_the_family() -> None:
    with install():
        builder = made("qwen3-vl")
        assert isinstance(builder, QwenVLContinuousTokenBuilder)
        assert not isinstance(builder, TitoContinuousTokenBuilder)
        assert builder.supports_multimodal()
