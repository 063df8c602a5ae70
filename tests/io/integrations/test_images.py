"""Images in messages of frameworks: their names, and prompts that are extended by them."""

from __future__ import annotations

import base64
import hashlib
import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.processors.shapes import SIZES, names, showing
from tests.processors.toy import ToyProcessor, run, split_if_alone
from tito_core import Extension, InputError, Reason, Refusal
from tito_core.media.expansion import collapse
from tito_io.families import Family
from tito_io.families.images import CollapsedPrompt, WithImages, ranges_in
from tito_io.integrations.attribution import attributed
from tito_io.integrations.images import Shown, digest
from tito_io.integrations.known_media import KnownMedia
from tito_io.integrations.next_prompts import NextPrompts, RefusedError
from tito_io.integrations.processors import items, opened, processor_of, repeated
from tito_io.integrations.shared_prompts import SharedPrompts

DATA = base64.b64encode(b"pixels").decode()
OF_BYTES = f"sha256:{hashlib.sha256(b'pixels').hexdigest()}"
ASKED = showing("wide", "A?")
SAID = {"role": "assistant", "content": "So."}


class Drawing:
    """What is read of an image of PIL: `mode`, `size`, `tobytes`, `convert` (PIL/Image.py)."""

    def __init__(self, pixels: bytes, mode: str = "RGB", size: tuple[int, int] = (2, 1)) -> None:
        self.pixels, self.mode, self.size = pixels, mode, size

    def tobytes(self) -> bytes:
        return self.pixels

    def convert(self, mode: str) -> Drawing:
        return Drawing(self.pixels[::-1], mode, self.size)


def named(part: Any) -> str | None:
    """Return the name of an image in a content part."""
    (found,) = Shown.of([{"role": "user", "content": [part]}]).messages[0]["content"]
    assert found.keys() <= {"type", "uuid"}
    name: str | None = found.get("uuid")
    return name


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "image": b"pixels"},
        {"type": "image", "image": bytearray(b"pixels"), "text": None},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "image_url", "image_url": f"DATA:;base64,{DATA}"},
        {"type": "image", "url": f"data:image/gif;base64,{DATA}"},
    ],
)
def test_bytes_name_an_image_however_they_are_given(part: Any) -> None:
    assert named(part) == OF_BYTES


def test_pixels_size_and_mode_name_an_image() -> None:
    one = named({"type": "image", "image": Drawing(b"abc")})
    assert one is not None
    assert one.startswith("pixels:")
    assert one == named({"type": "image_url", "image_url": Drawing(b"abc")})
    others = [Drawing(b"abd"), Drawing(b"abc", "L"), Drawing(b"abc", size=(1, 2)), Drawing(b"abc", "P")]
    assert len({one, *map(digest, others)}) == 5
    assert digest(Drawing(b"abc", "P")) == digest(Drawing(b"cba", "RGBA"))


def test_the_callers_key_comes_first_and_an_address_is_no_name() -> None:
    assert named({"type": "image", "image": Drawing(b"abc"), "uuid": "mine"}) == "mine"
    for address in ("cat.png", "https://example.com/cat.png"):
        assert named({"type": "image_url", "image_url": {"url": address}}) is None
    assert named({"type": "image"}) is None


def test_an_image_without_a_name_has_that_of_the_frameworks_object() -> None:
    parts = [{"type": "image", "image": "a.png"}, {"type": "image", "image": b"pixels"}, {"type": "image"}]
    messages = [{"role": "user", "content": parts}]
    shown = Shown.of(messages, [b"pixels", b"other"], names=["x", "y", "z"])
    assert [part["uuid"] for part in shown.messages[0]["content"]] == [OF_BYTES, OF_BYTES, "z"]
    assert shown.images == ["a.png", b"pixels", None]


def test_other_parts_and_messages_stay() -> None:
    other = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "audio", "audio": "x"}]}
    text = {"role": "system", "content": "Be brief."}
    shown = Shown.of([text, other])
    assert (shown.messages, shown.images) == ([text, other], [])
    assert shown.messages[0] is not text


# Processors


class Image:
    """Stands for `PIL.Image`: bytes are an image if they are `b"pixels"`."""

    Image = Drawing

    @staticmethod
    def open(file: Any) -> Drawing:
        if file.read() != b"pixels":
            raise OSError("cannot identify image file")
        return Drawing(b"pixels", "P")


@pytest.fixture
def pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", SimpleNamespace(Image=Image))
    monkeypatch.setitem(sys.modules, "PIL.Image", Image)


@pytest.mark.usefixtures("pillow")
def test_an_image_is_opened_from_what_frameworks_have() -> None:
    drawing = Drawing(b"abc")
    assert opened(drawing) is drawing
    for given in (b"pixels", bytearray(b"pixels"), f"data:image/png;base64,{DATA}"):
        assert (opened(given).mode, opened(given).tobytes()) == ("RGB", b"slexip")
    for wrong, text in (
        ("cat.png", "an image is an address"),
        (3, "an image is 'int'"),
        (b"?", "not readable: cannot identify"),
        ("data:;base64,a", "is not in base64"),
        ("data:,a", "an image is an address"),
    ):
        with pytest.raises(InputError, match=text):
            opened(wrong)


def test_arrays_are_told_apart_by_their_first_axis() -> None:
    assert items({"a": [1, 2, 3]}, 1) == [{"a": [1, 2, 3]}]
    assert items({"a": [1, 2], "b": [[3], [4]]}, 2) == [{"a": [1], "b": [[3]]}, {"a": [2], "b": [[4]]}]
    assert items({"a": [1, 2], "b": [1, 2, 3]}, 2) is None
    assert items({"a": 7}, 2) is None
    assert repeated([1, 2, 3, 4], [(0, 1, 2), (2, 2, 1)]) == [1, 1, 2, 3]


class Loader:
    """Stands for `transformers.AutoProcessor` (`from_pretrained`)."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def from_pretrained(self, name: str) -> Any:
        assert name == "folder"
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


def looked_for(monkeypatch: pytest.MonkeyPatch, found: Any, template: Any, name: str = "folder") -> Any:
    monkeypatch.setattr("transformers.AutoProcessor", Loader(found), raising=False)
    return processor_of(SimpleNamespace(name_or_path=name, chat_template=template))


def test_a_processor_is_looked_for_if_the_template_has_images(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    processor = SimpleNamespace(image_processor=object(), tokenizer=None)
    assert looked_for(monkeypatch, processor, "{{ 'image' }}") is processor
    assert processor.tokenizer.name_or_path == "folder"
    assert looked_for(monkeypatch, processor, {"default": "", "rag": "image"}) is processor
    assert looked_for(monkeypatch, processor, "{{ messages }}") is None
    assert looked_for(monkeypatch, processor, "image", name="") is None
    assert looked_for(monkeypatch, SimpleNamespace(), "image") is None
    with caplog.at_level(logging.WARNING, "tito.integrations"):
        assert looked_for(monkeypatch, ImportError("needs torchvision"), "image") is None
        assert looked_for(monkeypatch, KeyError("unknown"), "image") is None
    assert "images will be refused: no processor can be loaded: needs torchvision" in caplog.text


# Prompts


def first(prompts: NextPrompts) -> Any:
    return prompts.family.first_prompt([ASKED], [SIZES["wide"]])


def ids_after(prompts: NextPrompts, ids: Any) -> list[int]:
    return [*ids, *prompts.family.encode("So.<|im_end|>")]


def test_a_prompt_is_extended_with_images_and_counted() -> None:
    prompts = NextPrompts.of(ToyProcessor(run))
    begun = first(prompts)
    new, ids = showing("tall", "B?"), ids_after(prompts, begun.ids)
    found = prompts.extend_with_images(
        ids, [new], [SIZES["tall"]], turn=SAID, history=[ASKED], media=begun.media
    )
    assert isinstance(found, WithImages)
    assert found.prompt.ids.tolist()[: len(ids)] == ids
    assert [one.identity for one in found.prompt.media] == ["wide", "tall"]
    assert found.inputs["sizes"] == [SIZES["tall"]]
    assert (dict(prompts.built), prompts.refused) == ({"ids": 1}, {})


def test_without_images_placeholders_stay() -> None:
    prompts = NextPrompts.of(ToyProcessor(run))
    begun = prompts.family.collapsed_prompt([ASKED])
    assert isinstance(begun, CollapsedPrompt)
    found = prompts.extend_with_images(
        ids_after(prompts, begun.ids),
        [showing("tall", "B?")],
        None,
        history=[ASKED],
        turn=SAID,
        media=begun.media,
    )
    assert isinstance(found, WithImages)
    assert [one.length for one in found.prompt.media] == [1, 1]
    assert isinstance(found.prompt, Extension)
    assert found.prompt.unexpanded == 1


@pytest.mark.parametrize("choice", ["rerender", "raise"])
def test_what_the_processor_does_otherwise_is_refused_and_counted(choice: Any) -> None:
    prompts = NextPrompts.of(ToyProcessor(split_if_alone), on_refusal=choice)
    begun = first(prompts)
    given: dict[str, Any] = {"turn": SAID, "history": [ASKED], "media": begun.media}
    new, ids = showing("tall", "B?"), ids_after(prompts, begun.ids)
    if choice == "raise":
        with pytest.raises(
            RefusedError, match="what the processor makes of an image depends on other images"
        ):
            prompts.extend_with_images(ids, [new], [SIZES["tall"]], **given)
    else:
        assert isinstance(prompts.extend_with_images(ids, [new], [SIZES["tall"]], **given), Refusal)
        given["media"] = ()
        assert isinstance(prompts.extend_with_images(ids, [new], [SIZES["tall"]], **given), Refusal)
    assert prompts.refused["MULTIMODAL"] == (1 if choice == "raise" else 2)
    assert not prompts.built


def test_a_tokenizer_has_no_placeholders() -> None:
    prompts = NextPrompts.of(ToyProcessor(run).tokenizer, template="{{ messages[0].content }}")
    assert prompts.placeholders() == {}


def test_shared_prompts_extend_with_images() -> None:
    shared, processor = SharedPrompts(), ToyProcessor(run)
    prompts = shared.of(processor, {})
    begun = first(prompts)
    found = shared.extend_with_images(
        prompts,
        ids_after(prompts, begun.ids),
        [showing("B?")],
        [],
        turn=SAID,
        history=[ASKED],
        media=begun.media,
    )
    assert isinstance(found, WithImages)
    assert shared.built == {"ids": 1}


def test_images_are_found_in_the_ids_of_a_processor() -> None:
    processor = ToyProcessor(run)
    prompts = NextPrompts.of(processor)
    messages = [showing("wide", "and", "tall", "?")]
    begun = prompts.family.collapsed_prompt(messages)
    whole = prompts.family.first_prompt(messages, [SIZES[name] for name in names(messages)])
    assert isinstance(begun, CollapsedPrompt)
    assert not isinstance(whole, Refusal)
    calls = list(processor.calls)
    assert ranges_in(begun, whole.ids) == whole.media
    assert collapse(whole.ids, whole.media)[0] == list(begun.ids)
    assert ranges_in(begun, [1, *whole.ids]) is None
    assert processor.calls == calls
    assert whole.positions == {}


class Marking(ToyProcessor):
    """Says of each id whether it is an image's, as Gemma 3 does (processing_gemma3.py: `token_type_ids`)."""

    def __call__(self, text: str, images: Any = None, **options: Any) -> dict[str, Any]:
        told = super().__call__(text, images, **options)
        image = self.tokenizer.convert_tokens_to_ids("<image>")
        return {**told, "token_type_ids": [[int(index == image) for index in told["input_ids"][0]]]}


def test_what_a_processor_says_of_each_id_is_kept_apart_from_images() -> None:
    found = Family.of(Marking(run)).first_prompt([ASKED], [SIZES["wide"]])
    assert not isinstance(found, Refusal)
    assert found.positions.keys() == {"token_type_ids"}
    assert found.inputs.keys() == {"pixel_values", "sizes"}
    (one,) = found.media
    marks = found.positions["token_type_ids"]
    assert [place for place, mark in enumerate(marks) if mark] == list(range(one.offset, one.stop))


def test_a_prompt_may_end_with_its_last_message() -> None:
    family = Family.of(ToyProcessor(run))
    whole, opened_too = (
        family.first_prompt([ASKED], [SIZES["wide"]], add_generation_prompt=opened)
        for opened in (False, True)
    )
    assert not isinstance(whole, Refusal)
    assert not isinstance(opened_too, Refusal)
    assert opened_too.ids == [*whole.ids, *family.encode("<|im_start|>assistant\n")]


def test_the_ids_of_an_image_are_its_messages() -> None:
    family = Family.of(ToyProcessor(run))
    parts = [{"type": "text", "text": "See"}, {"type": "image"}, {"type": "text", "text": "and say."}]
    said = {"role": "assistant", "content": "So."}
    found = attributed(family, [{"role": "user", "content": parts}, said])
    text = [
        family.decode([index]) for index, place in zip(found.ids, found.owners, strict=True) if place == 0
    ]
    content = [index for index, on in zip(found.ids, found.content, strict=True) if on]
    assert "".join(text) == "<|im_start|>user\nSee<start><image>and say.<|im_end|>\n"
    assert family.decode(content) == "See<start><image>and say.So.<|im_end|>"
    assert sum(found.sampled) == len(family.encode("So.<|im_end|>"))


def test_the_longest_known_prompt_is_found() -> None:
    known = KnownMedia(most=2)
    refusal = Refusal(Reason.MULTIMODAL, "it is not clear")
    known.keep([1], ())
    known.keep([1, 2], refusal)
    assert known.find([1, 2, 3]) is refusal
    assert known.find([1, 3]) == ()
    assert known.find([2]) is None
    known.keep([5], ())
    assert known.find([1, 3]) is None
