"""What makes two images the same."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core.normalization.compare import same
from tito_core.normalization.media import medium_of


def image(**fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", **fields}]}


DATA = "data:image/png;base64,aGk="


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"uuid": "cat", "crop": [0, 0, 100, 50]}, {"uuid": "cat", "crop": [0, 50, 0, 100]}),
        ({"uuid": "cat", "x": {"v": 1}, "y": {"v": 2}}, {"uuid": "cat", "x": {"v": 2}, "y": {"v": 1}}),
        ({"image_url": {"url": DATA, "detail": "low"}}, {"image_url": {"url": DATA, "detail": "high"}}),
        (
            {"image_url": {"url": "http://a/1.png"}, "caption": DATA},
            {"image_url": {"url": "http://a/2.png"}, "caption": DATA},
        ),
        ({"uuid": "cat"}, {"uuid": "dog"}),
    ],
)
def test_another_image_is_another(ours: Any, theirs: Any) -> None:
    assert same(image(**ours), image(**theirs)) is None
    assert same(image(**ours), image(**ours)) is not None


def test_details_count_wherever_a_client_puts_them() -> None:
    assert (
        same(image(image_url={"url": DATA, "detail": "low"}), image(image_url=DATA, detail="low")) is not None
    )


@pytest.mark.parametrize(
    ("part", "modality"),
    [
        ({"type": "video_url", "video_url": "x"}, "video"),
        ({"type": "picture", "image_url": "x"}, "image"),
        ({"image": "x"}, "image"),
        ({"image": None, "audio": "x"}, "audio"),
    ],
)
def test_the_type_names_the_modality_or_else_a_key(part: dict[str, Any], modality: str) -> None:
    assert medium_of(part).modality == modality


def test_what_is_no_image_video_or_audio_is_a_file() -> None:
    kinds = ("input_file", "document", "prompt_embeds")
    assert [medium_of({"type": kind}).modality for kind in kinds] == ["file"] * 3


@pytest.mark.parametrize("body", ["abcd-_-_", "aGk=AAAA", "", "a"])
def test_bytes_that_cannot_be_read_are_no_identity(body: str) -> None:
    assert medium_of({"type": "image", "url": f"data:image/png;base64,{body}"}).identity is None


def test_a_detail_is_named_by_all_keys_that_lead_to_it() -> None:
    part = {"type": "image_url", "image_url": {"url": DATA, "crop": {"size": [5, 7]}}}
    assert medium_of(part).details == (("crop.size.0", 5), ("crop.size.1", 7))
