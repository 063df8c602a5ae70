"""A small processor that behaves as those of transformers do, and refuses what they refuse.

`ProcessorMixin.__call__` (transformers 5.23, processing_utils.py) replaces each image token in a text by what
`replace_image_token` gives, and tokenizes the result. `validate_inputs` raises `ValueError` where images and
image tokens differ in number. `ProcessorMixin.apply_chat_template` passes a text, and a list of its images.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from transformers import ProcessorMixin

from .kinds import TEMPLATE, Kind, tokenizer_of

Size = tuple[int, int]
Writer = Callable[[Sequence[Size], int], str]
"""Returns what is written for one of the images of a text, given its number."""

TOY = Kind(
    processor="",
    image_processor="",
    sizes={},
    tokens={
        "vision_start_token": "<start>",
        "image_token": "<image>",
        "boi_token": "<boi>",
        "fake_image_token": "<fake>",
        "bos_token": "<bos>",
    },
    others=("<pad>", "<row>"),
    image="<start><image>",
)


def run(images: Sequence[Size], number: int) -> str:
    """Write a run of one token, as Qwen-VL and LLaVA do."""
    return "<image>" * (images[number][0] // 30)


def rows(images: Sequence[Size], number: int) -> str:
    """Write rows of tokens and line ends, as SmolVLM does."""
    return "<row><pad><pad>\n" * (images[number][1] // 30) + "\n<pad>"


def apart(images: Sequence[Size], number: int) -> str:
    """Write line ends around an image, as Gemma 3 does (processing_gemma3.py, `full_image_sequence`)."""
    return f"\n\n<boi>{'<pad>' * (images[number][0] // 30)}\n\n"


def split_if_alone(images: Sequence[Size], _: int) -> str:
    """Write more for an image that is the only one, as LLaVA-OneVision does (`replace_image_token`)."""
    return "<pad>" * (9 if len(images) == 1 else 4)


def fewer_of_many(images: Sequence[Size], _: int) -> str:
    """Write fewer tokens for each image if there are three or more."""
    return "<pad>" * (9 if len(images) < 3 else 4)


class ToyProcessor(ProcessorMixin):
    """A processor whose images are their sizes.

    Attributes:
        write: What it writes for an image.
        change: What it does to the text afterwards.
        calls: How many images each call had.
    """

    def __init__(
        self,
        write: Writer = run,
        change: Callable[[str], str] = str,
        image: str = TOY.image,
        begin: str = "",
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # theirs
        self.tokenizer = tokenizer_of(TOY)
        self.chat_template: str = (
            TEMPLATE.strip().replace("IMAGE", image).replace("{{- bos_token }}", begin, 1)
        )
        self.image_processor = object()
        self.image_token = "<image>"  # noqa: S105  # a token of texts
        self.write = write
        self.change = change
        self.calls: list[int] = []

    def __call__(self, text: str, images: list[list[Size]] | None = None, **options: Any) -> dict[str, Any]:
        shown = [one for batch in images or [] for one in batch]
        self.calls.append(len(shown))
        if text.count("<image>") != len(shown):
            raise ValueError(f"Found total {text.count('<image>')} <image> tokens and {len(shown)} images.")
        first, *after = text.split("<image>")
        whole = first + "".join(self.write(shown, number) + one for number, one in enumerate(after))
        answer = dict(self.tokenizer([self.change(whole)], **options))
        return {**answer, "pixel_values": [list(size) for size in shown], "sizes": shown}
