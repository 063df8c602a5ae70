"""Expand images with a processor in memory: it is asked about the new ids alone.

A processor replaces each placeholder in a text and then tokenizes the text. It may change what stands around
an image, and may make something else of an image if there are others. So its answer is believed only if
everything outside of the images is kept id for id, and if older images make no difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import attrs

from tito_core import InputError, Reason, Refusal
from tito_core.join import NextPrompt
from tito_core.media.expansion import expand, expanded
from tito_core.media.ranges import MediaRange, Placeholders
from tito_core.media.wider_ranges import widened, wider_ranges
from tito_core.message import is_media
from tito_core.normalization.media import Medium

from .chat_tokenizer import ChatTokenizer, one_list

P = TypeVar("P", bound=NextPrompt)
Ids = tuple[int, ...]
Pieces = list[Ids]

_OURS = ("text", "images", "add_special_tokens")
"""Arguments of a processor's call that are not for callers to give."""
_OF_TEXT = {"input_ids", "attention_mask"}
"""What every tokenizer says of each id."""
WORD = {"type": "text", "text": "Zebra"}
"""What stands in place of an image, to see which placeholders are those of images."""


@attrs.frozen(kw_only=True)
class WithImages(Generic[P]):
    """A prompt with the ids of its new images, and what a model needs beside ids.

    Attributes:
        prompt: The prompt, without placeholders.
        inputs: What the processor made of the new images, such as `pixel_values`, under its own names. What
            belongs to positions in the text is left out.
    """

    prompt: P
    inputs: Mapping[str, Any] = attrs.field(repr=False, eq=False)


@attrs.frozen(kw_only=True)
class ExpandedPrompt:
    """The ids of a conversation that continues no step, as `Step` takes them.

    Attributes:
        ids: Ids with those of images.
        media: Where the images stand in them.
        inputs: What the processor made of the images, such as `pixel_values`, under its own names.
        positions: What it says of each id, such as `mm_token_type_ids`: a list of as many values.
    """

    ids: list[int]
    media: tuple[MediaRange, ...]
    inputs: Mapping[str, Any] = attrs.field(repr=False, eq=False)
    positions: Mapping[str, list[Any]] = attrs.field(factory=dict, repr=False, eq=False)


@attrs.frozen(kw_only=True)
class CollapsedPrompt:
    """The ids of a conversation that continues no step, with a placeholder for each image.

    Attributes:
        text: The text that the template writes.
        ids: Its ids.
        media: Where the placeholders stand in them.
    """

    text: str = attrs.field(repr=False)
    ids: Ids
    media: tuple[MediaRange, ...]

    @classmethod
    def of(cls, text: str, ids: Ids, media: Sequence[Medium], placeholders: Placeholders) -> Self | Refusal:
        """Return which placeholder in `ids` stands for which medium; `text` has no others."""
        places = placeholders.find(ids)
        if [name for _, name in places] != [one.modality for one in media]:
            return Refusal(Reason.PLACEHOLDERS, f"{len(places)} placeholders stand for {len(media)} images")
        ranges = (_range(one, place, placeholders) for one, (place, _) in zip(media, places, strict=True))
        return cls(text=text, ids=ids, media=tuple(ranges))


@attrs.frozen
class Answer:
    """The output of a processor for a text with images.

    Attributes:
        ranges: Where the images stand in the collapsed ids.
        pieces: The ids of each.
        inputs: What else it says about the images.
        positions: What it says of each id of the text.
    """

    ranges: Sequence[MediaRange]
    pieces: Pieces
    inputs: Mapping[str, Any]
    positions: Mapping[str, list[Any]]


@attrs.frozen(eq=False)
class ImageCall:
    """The calls of one processor that are made for the images of one prompt.

    Attributes:
        tokenizer: The processor and its tokenizer.
        options: Further arguments of the processor's call.
    """

    tokenizer: ChatTokenizer
    options: Mapping[str, Any]

    def __attrs_post_init__(self) -> None:
        """Check the arguments."""
        if not self.tokenizer.takes_images:
            raise InputError(
                f"images: a {type(self.tokenizer.given).__name__} takes none; make the family of a processor"
            )
        for name in self.options.keys() & set(_OURS):
            raise InputError(f"{name}: is given by the family itself; leave it out")

    def expand(self, found: P, images: Sequence[Any]) -> WithImages[P] | Refusal:
        """Return a prompt with the ids of its new images."""
        _check_count(images, found.unexpanded)
        if not images:
            return WithImages(prompt=found, inputs={})
        base = found.ids.length - len(found.added)
        new = [one.moved(-base) for one in found.media[len(found.media) - found.unexpanded :]]
        text = self._text_of(found.added)
        if text is None:
            return Refusal(Reason.MULTIMODAL, "the new ids are not those of their own text")
        answer = self._answer(self._begin, text, images, found.added, new)
        if isinstance(answer, Refusal):
            return answer
        wide = widened(found, answer.ranges)
        if wide is None or self._may_merge(found.added, answer):
            return Refusal(Reason.MULTIMODAL, "what stands before the image may change with the older text")
        older = len(found.media) - found.unexpanded
        if older and not self._independent(older, found.added, images, answer):
            return Refusal(Reason.MULTIMODAL, "what the processor makes of an image depends on other images")
        return WithImages(prompt=expanded(wide, answer.pieces), inputs=answer.inputs)

    def first(self, prompt: CollapsedPrompt, images: Sequence[Any]) -> ExpandedPrompt | Refusal:
        """Return the ids of a whole conversation with those of its images."""
        _check_count(images, len(prompt.media))
        answer = self._answer("", prompt.text, images, prompt.ids, prompt.media)
        if isinstance(answer, Refusal):
            return answer
        ids, ranges = expand(prompt.ids, answer.ranges, answer.pieces)
        return ExpandedPrompt(ids=ids, media=tuple(ranges), inputs=answer.inputs, positions=answer.positions)

    def _answer(
        self, begin: str, text: str, images: Sequence[Any], ids: Ids, media: Sequence[MediaRange]
    ) -> Answer | Refusal:
        """Return what the processor makes of the text of collapsed `ids`, which `begin` stands before."""
        given = self._call(begin + text, images)
        whole = self._ids_after(begin, given)
        said = _split(given, len(one_list(given, "the processor")))
        for ranges in wider_ranges(ids, media):
            pieces = pieces_between(ids, ranges, whole)
            if pieces is not None:
                return Answer(ranges, pieces, *said)
        pieces = [self._alone(one, image) for one, image in zip(media, images, strict=True)]
        if all(pieces) and expand(ids, media, pieces)[0] == list(whole):
            return Answer(media, pieces, *said)
        return Refusal(Reason.MULTIMODAL, "the processor changes ids outside of the images")

    def _alone(self, one: MediaRange, image: Any) -> Ids:
        """Return the ids of an image that stands alone; they say where one ends beside another."""
        answer = self._call(self._begin + self.tokenizer.decode(one.collapsed), [image])
        return self._ids_after(self._begin, answer)

    def _independent(self, older: int, ids: Ids, images: Sequence[Any], answer: Answer) -> bool:
        """Return whether the new images have the same ids as one image alone, and after `older` ones.

        Older images were expanded when they were fewer, so that their number must not count either.
        """
        first = answer.ranges[0]
        whole = tuple(expand(ids, answer.ranges, answer.pieces)[0])
        if len(images) > 1:
            alone = self._call(self._begin + self.tokenizer.decode(ids[: first.stop]), images[:1])
            if self._ids_after(self._begin, alone) != whole[: first.offset + len(answer.pieces[0])]:
                return False
        before = self.tokenizer.decode(first.collapsed) * older
        text = self._begin + before + self.tokenizer.decode(ids)
        beside = self._call(text, [*[images[0]] * older, *images])
        kept = whole[first.offset :]
        return tuple(one_list(beside, "the processor"))[-len(kept) :] == kept

    def _may_merge(self, ids: Sequence[int], answer: Answer) -> bool:
        """Return whether an image's first id may depend on the text before the new ids.

        A tokenizer splits a text at added tokens first, so that one of them keeps the two apart.
        """
        borders = getattr(self.tokenizer.encodes, "added_tokens_decoder", {})
        before = ids[: answer.ranges[0].offset]
        return answer.pieces[0][0] not in borders and not any(index in borders for index in before)

    def _text_of(self, ids: Sequence[int]) -> str | None:
        """Return a text that has these ids, None without one."""
        text = self.tokenizer.decode(ids)
        return text if self.tokenizer.encode(text) == list(ids) else None

    @property
    def _begin(self) -> str:
        """The text that begins a sequence: some processors write it where a text has none."""
        return getattr(self.tokenizer.encodes, "bos_token", None) or ""

    def _ids_after(self, begin: str, answer: Mapping[str, Any]) -> Ids:
        """Return the ids in an answer that come after those of the text's beginning."""
        return tuple(one_list(answer, "the processor"))[len(self.tokenizer.encode(begin)) :]

    def _call(self, text: str, images: Sequence[Any]) -> Mapping[str, Any]:
        # as transformers' own ProcessorMixin.apply_chat_template calls it
        shown = {"images": [list(images)]} if images else {}
        answer = self.tokenizer.given(text=text, **shown, add_special_tokens=False, **self.options)
        if not isinstance(answer, Mapping):
            raise InputError(f"the processor answers with {type(answer).__name__}: it must give a mapping")
        return answer


def ranges_in(prompt: CollapsedPrompt, whole: Sequence[int]) -> tuple[MediaRange, ...] | None:
    """Return where images stand in the ids that a processor made of a prompt; None unless that is clear.

    Nothing is processed: what stands around the images must be the same, and at one place only.
    """
    for ranges in wider_ranges(prompt.ids, prompt.media):
        pieces = pieces_between(prompt.ids, ranges, whole)
        if pieces is not None:
            return tuple(expand(prompt.ids, ranges, pieces)[1])
    return None


def pieces_between(ids: Sequence[int], media: Sequence[MediaRange], whole: Sequence[int]) -> Pieces | None:
    """Return the ids of each medium in `whole`, given collapsed `ids`; None unless they are clear.

    What stands around the media must be in `whole` too, and at one place only.

    >>> cat, dog = (MediaRange(modality="image", identity=key, offset=at, length=1, collapsed=(7,))
    ...             for key, at in [("cat", 1), ("dog", 3)])
    >>> pieces_between([5, 7, 6, 7, 4], [cat, dog], [5, 7, 7, 6, 8, 7, 4])
    [(7, 7), (8, 7)]
    >>> pieces_between([5, 7, 6, 7, 4], [cat, dog], [5, 7, 6, 6, 7, 4]) is None
    True
    """
    if not media:
        return [] if tuple(ids) == tuple(whole) else None
    texts = list(_texts_around(tuple(ids), media))
    first = _spans(tuple(whole), texts)
    last = _spans(tuple(whole[::-1]), [text[::-1] for text in texts[::-1]])
    if first is None or last is None:
        return None
    turned = [(len(whole) - stop, len(whole) - start) for start, stop in last[::-1]]
    return [tuple(whole[start:stop]) for start, stop in first] if first == turned else None


def _texts_around(ids: Ids, media: Sequence[MediaRange]) -> Iterator[Ids]:
    end = 0
    for one in media:
        yield ids[end : one.offset]
        end = one.stop
    yield ids[end:]


def _spans(whole: Ids, texts: Sequence[Ids]) -> list[tuple[int, int]] | None:
    """Return from where to where each medium goes, each as short as the texts around it allow."""
    start, last = len(texts[0]), len(whole) - len(texts[-1])
    if whole[:start] != texts[0] or whole[last:] != texts[-1]:
        return None
    found = []
    for text in texts[1:-1]:
        stop = next((at for at in range(start + 1, last) if whole[at : at + len(text)] == text), last)
        found.append((start, stop))
        start = stop + len(text)
    return [*found, (start, last)] if start < last else None


def wordy(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a word in place of each medium."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    return {**message, "content": [WORD if is_media(part) else part for part in content]}


def _range(medium: Medium, place: int, placeholders: Placeholders) -> MediaRange:
    run = placeholders.ids(medium.modality) or ()
    return MediaRange(
        modality=medium.modality,
        identity=medium.identity or "",
        offset=place,
        length=len(run),
        collapsed=run,
    )


def _check_count(images: Sequence[Any], count: int) -> None:
    if len(images) != count:
        raise InputError(f"images has {len(images)} items, the new messages have {count}: give those alone")


def _split(answer: Mapping[str, Any], count: int) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return what a processor says about images, and what it says of each of the text's `count` ids."""
    images: dict[str, Any] = {}
    positions: dict[str, list[Any]] = {}
    for name, value in answer.items():
        shape = tuple(getattr(value, "shape", ()))
        if isinstance(value, list) and len(value) == 1 and hasattr(value[0], "__len__"):
            shape = (1, len(value[0]))
        if shape[:2] == (1, count):
            positions[name] = value[0].tolist() if hasattr(value[0], "tolist") else list(value[0])
        else:
            images[name] = value
    for name in _OF_TEXT & positions.keys():
        del positions[name]
    return images, positions
