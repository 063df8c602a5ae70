"""A processor in memory expands the images of a prompt, and nothing else in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.processors.shapes import HELLO, SHAPES, SIZES, showing, verdicts
from tests.processors.toy import (
    ToyProcessor,
    apart,
    fewer_of_many,
    rows,
    run,
    split_if_alone,
)
from tito_core import (
    Extension,
    InputError,
    Origin,
    Reason,
    Refusal,
    Step,
    Stitched,
    try_stitch,
)
from tito_core.media.expansion import to_send
from tito_core.media.ranges import MediaRange
from tito_core.media.wider_ranges import wider_ranges
from tito_io.families import Family, TokenizerFamily
from tito_io.families.images import ExpandedPrompt, WithImages

ALL = tuple(SHAPES)
LATER = ("third turn", "two in one", "same twice", "after a cut turn", "after reasoning")
SIDE_BY_SIDE = ("two in the first turn", "two in one")


def with_begin(text: str) -> str:
    """Write what begins a sequence where it is missing, as Mllama does (`build_string_from_input`)."""
    return text if text.startswith("<bos>") else f"<bos>{text}"


def with_end(text: str) -> str:
    """Append a token to a text, as Chameleon does (processing_chameleon.py: the `sep_token`)."""
    return f"{text}<fake>"


def one_border(text: str) -> str:
    """Write one token between two images, as Idefics2 does (processing_idefics2.py)."""
    return text.replace("<fake><fake>", "<fake>")


def bordered(images: Sequence[tuple[int, int]], number: int) -> str:
    return f"<fake>{'<pad>' * (images[number][0] // 30)}<fake>"


PROCESSORS: dict[str, tuple[Callable[[], ToyProcessor], tuple[str, ...]]] = {
    "a run": (lambda: ToyProcessor(run), ()),
    "rows": (lambda: ToyProcessor(rows), ()),
    "rows without a border": (lambda: ToyProcessor(rows, image="<image>"), ()),
    "line ends": (lambda: ToyProcessor(apart), ()),
    "line ends that merge": (lambda: ToyProcessor(apart, image="<image>"), SIDE_BY_SIDE),
    "split if alone": (lambda: ToyProcessor(split_if_alone), LATER),
    "fewer of many": (lambda: ToyProcessor(fewer_of_many), ("two in one",)),
    "writes a beginning": (lambda: ToyProcessor(run, with_begin), ALL),
    "writes a missing beginning": (lambda: ToyProcessor(run, with_begin, begin="<bos>"), ()),
    "writes an end": (lambda: ToyProcessor(run, with_end), ALL),
    "one border for two": (lambda: ToyProcessor(bordered, one_border, "<image>"), SIDE_BY_SIDE),
}
"""Processors, and the conversations that they make impossible."""


@pytest.mark.parametrize("name", PROCESSORS)
def test_each_prompt_is_what_the_processor_makes_of_the_whole_conversation(name: str) -> None:
    make, refused = PROCESSORS[name]
    words = {shape: verdict.word for shape, verdict in verdicts(make(), image=tuple).items()}
    assert words == {shape: "refused" if shape in refused else "exact" for shape in SHAPES}


PLAIN = (
    "{% for m in messages %}{{ m.role }}: {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text if part.type == 'text' else '<image>' }}{% endfor %}"
    "{% endif %}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"
)
"""A template without special tokens."""


OPEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text if part.type == 'text' else '<image>' }}{% endfor %}{% endif %}"
    "{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '\n<|im_start|>assistant ' }}{% endif %}"
)
"""A template that closes a user's message by the generation prompt alone."""


def first_step(family: TokenizerFamily, *parts: str, said: str = "I see.") -> Step:
    message = showing(*parts)
    first = family.first_prompt([message], [SIZES[part] for part in parts if part in SIZES])
    assert isinstance(first, ExpandedPrompt), first
    return Step(
        prompt=[message],
        completion=[{"role": "assistant", "content": said}],
        prompt_ids=first.ids,
        completion_ids=[*family.encode(said), *family.suffix()[:1]],
        media=first.media,
    )


def stitched(family: TokenizerFamily, step: Step, *new: Any) -> Stitched:
    prompt = [*step.messages, *new]
    found = try_stitch([step], prompt, family.suffix(), family.tokenize_fn(), media=family.placeholders())
    assert isinstance(found, Stitched), found
    return found


def grown(family: TokenizerFamily, found: Stitched, *names: str) -> Stitched:
    result = family.expand(found, [SIZES[name] for name in names])
    assert isinstance(result, WithImages), result
    return result.prompt


def test_the_placeholder_is_the_token_that_the_template_writes_for_each_image() -> None:
    processor = ToyProcessor()
    family = Family.of(processor)
    assert family.placeholders() == {"image": family.encode("<image>")}
    assert Family.of(processor.tokenizer, template=processor.chat_template).placeholders() == {}


@pytest.mark.parametrize(
    ("image", "known"), [("", {}), ("<row>", {}), ("<image><image>", {}), ("<start>", {"image": "<start>"})]
)
def test_a_token_that_nothing_names_is_no_placeholder(image: str, known: dict[str, str]) -> None:
    family = Family.of(ToyProcessor(image=image))
    assert family.placeholders() == {name: family.encode(one) for name, one in known.items()}


def test_a_template_that_rejects_images_has_no_placeholder() -> None:
    processor = ToyProcessor()
    processor.chat_template = PLAIN.replace("'<image>'", "raise_exception('no images')")
    assert Family.of(processor).placeholders() == {}


def test_images_of_a_class_with_its_own_apply_chat_template_are_placeholders() -> None:
    class Own(ToyProcessor):  # as SmolVLMProcessor, which adds options for videos
        def apply_chat_template(self, conversation: Any, *args: Any, **options: Any) -> Any:
            return super().apply_chat_template(conversation, *args, **options)

    family = Family.of(Own())
    message = showing("wide", "What is it?")
    ids = family.tokenize_fn()([{**message, "content": [{"type": "image"}]}], add_generation_prompt=True)
    assert ids.count(family.encode("<image>")[0]) == 1


def test_the_processor_is_asked_about_new_images_alone() -> None:
    processor = ToyProcessor()
    family = Family.of(processor)
    step = first_step(family, "wide", "small", "A?")
    assert processor.calls == [2]
    found = stitched(family, step, showing("tall", "B?"))
    prompt = grown(family, found, "tall")
    assert processor.calls == [2, 1, 3]
    assert prompt.ids[: len(step.ids)] == step.ids
    assert family.expand(prompt, []) == WithImages(prompt=prompt, inputs={})
    assert processor.calls == [2, 1, 3]


def test_what_belongs_to_images_is_passed_through() -> None:
    family = Family.of(ToyProcessor())
    step = first_step(family, "wide", "A?")
    result = family.expand(stitched(family, step, showing("tall", "small", "B?")), [(40, 120), (30, 30)])
    assert isinstance(result, WithImages)
    assert result.inputs == {"pixel_values": [[40, 120], [30, 30]], "sizes": [(40, 120), (30, 30)]}


def test_further_arguments_go_to_the_processor() -> None:
    family = Family.of(ToyProcessor())
    found = stitched(family, first_step(family, "A?"), showing("tall", "B?"))
    result = family.expand(found, [(40, 120)], processor_args={"return_tensors": "np"})
    assert isinstance(result, WithImages)
    assert result.prompt.ids == grown(family, found, "tall").ids
    assert set(result.inputs) == {"pixel_values", "sizes"}
    for name in ("text", "images", "add_special_tokens"):
        with pytest.raises(InputError, match=f"{name}: is given by the family itself"):
            family.expand(found, [(40, 120)], processor_args={name: 1})


@pytest.mark.parametrize("images", [[], [(30, 30)] * 2])
def test_another_number_of_images_is_an_error(images: list[tuple[int, int]]) -> None:
    family = Family.of(ToyProcessor())
    found = stitched(family, first_step(family, "wide", "A?"), showing("tall", "B?"))
    with pytest.raises(InputError, match=f"images has {len(images)} items, the new messages have 1"):
        family.expand(found, images)
    with pytest.raises(InputError, match=f"images has {len(images)} items"):
        family.first_prompt([showing("tall", "B?")], images)


def test_a_tokenizer_takes_no_images() -> None:
    processor = ToyProcessor()
    family = Family.of(processor.tokenizer, template=processor.chat_template)
    with pytest.raises(InputError, match="a TokenizersBackend takes none; make the family of a processor"):
        family.first_prompt([showing("tall", "B?")], [(30, 30)])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]},
            "MULTIMODAL",
        ),
        ({"role": "user", "content": [{"type": "audio", "uuid": "song"}]}, "MULTIMODAL"),
        (showing("tall", "What is <image>?"), "PLACEHOLDERS"),
    ],
)
def test_a_first_prompt_whose_images_are_not_clear_is_refused(message: Any, reason: str) -> None:
    found = Family.of(ToyProcessor()).first_prompt([message], [(30, 30)])
    assert isinstance(found, Refusal)
    assert found.reason is Reason[reason]


@pytest.mark.parametrize("text", ["Look: <image>", "Look:"])
def test_an_image_that_the_template_drops_is_refused(text: str) -> None:
    processor = ToyProcessor()
    template = processor.chat_template
    processor.chat_template = template.replace(
        "part.type == 'image'", "part.type == 'image' and loop.index != 2"
    )
    found = Family.of(processor).first_prompt([showing(text, "tall")], [(30, 30)])
    assert isinstance(found, Refusal)
    assert found.reason is Reason.PLACEHOLDERS


def test_an_error_of_the_processor_passes_through() -> None:
    def broken(*_: object) -> str:
        raise OSError("image file is truncated")

    processor = ToyProcessor()
    family = Family.of(processor)
    found = stitched(family, first_step(family, "A?"), showing("tall", "B?"))
    processor.write = broken
    with pytest.raises(OSError, match="truncated"):
        family.expand(found, [(40, 120)])


def merging() -> TokenizerFamily:
    return Family.of(ToyProcessor(apart, image="<image>"))


def test_an_id_that_an_image_shares_with_the_template_belongs_to_the_image() -> None:
    family = merging()
    found = stitched(family, first_step(family, "wide", "A?"), showing("tall", "B?"))
    prompt = grown(family, found, "tall")
    line, image = family.encode("\n") + family.encode("<image>")
    assert [one.collapsed for one in prompt.media] == [(line, image)] * 2
    assert to_send(prompt) == to_send(found)
    for one in prompt.media:
        assert family.decode(prompt.ids[one.offset : one.stop]).startswith("\n\n\n<boi><pad>")
    spans = [span for span in prompt.ledger.spans if span.origin is Origin.MEDIA]
    assert [(span.start, span.stop) for span in spans] == [(one.offset, one.stop) for one in prompt.media]
    assert len(prompt.ledger) == len(prompt.ids)
    again = prompt.then(
        completion=[{"role": "assistant", "content": "I see."}],
        completion_ids=[*family.encode("I see."), *family.suffix()[:1]],
    )
    assert stitched(family, again, HELLO).media == prompt.media


@pytest.mark.parametrize("make", [merging, lambda: Family.of(ToyProcessor(rows))])
def test_a_bridge_gives_what_a_stitch_gives(make: Callable[[], TokenizerFamily]) -> None:
    family = make()
    step = first_step(family, "wide", "A?")
    new = showing("tall", "B?")
    bridge = family.bridge(media=family.placeholders())
    found = bridge.extend(step.ids, [new], media=step.media, turn=step.completion[0], history=step.prompt)
    assert isinstance(found, Extension), found
    result = family.expand(found, [SIZES["tall"]])
    assert isinstance(result, WithImages)
    prompt = result.prompt
    assert prompt.ids == grown(family, stitched(family, step, new), "tall").ids
    assert isinstance(prompt.spans, tuple)
    (span,) = prompt.spans
    one = prompt.media[-1].moved(len(prompt.added) - len(prompt.ids))
    assert span.start <= span.content_start <= one.offset
    assert one.stop <= span.content_stop <= span.stop
    assert family.decode(prompt.added[one.stop : span.content_stop]) == "B?"


def test_a_range_does_not_grow_into_the_generation_prompt() -> None:
    processor = ToyProcessor(apart)
    processor.chat_template = OPEN
    family = Family.of(processor)
    found = stitched(family, first_step(family, "A?"), showing("So:", "tall"))
    assert family.decode(found.added[-found.generation_prompt - 1 :]).startswith("<image>\n")
    refused = family.expand(found, [SIZES["tall"]])
    assert isinstance(refused, Refusal), refused.prompt.ledger
    assert refused.reason is Reason.MULTIMODAL


def test_ranges_that_would_meet_do_not_grow() -> None:
    one = MediaRange(modality="image", identity="cat", offset=1, length=1, collapsed=(7,))
    for other, widths in ((one.moved(1), [1]), (one.moved(2), [1, 2, 2])):
        found = list(wider_ranges([5, 7, 7, 7, 6], [one, other]))
        assert [ranges[0].length for ranges in found] == widths


def test_without_a_special_token_before_an_image_its_first_id_is_not_certain() -> None:
    processor = ToyProcessor(apart)
    processor.chat_template = PLAIN
    family = Family.of(processor)
    found = family.bridge(media=family.placeholders()).extend(family.encode("a\n"), [showing("So:", "tall")])
    assert isinstance(found, Extension), found
    refused = family.expand(found, [SIZES["tall"]])
    assert isinstance(refused, Refusal)
    assert "may change with the older text" in refused.detail
