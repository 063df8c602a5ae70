"""What a template writes for an image is found in a model folder, or nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.io.families.family_folder import CONFIG, load, tiny_folder, tiny_tokenizer
from tito_core import InputError
from tito_io.families import image_placeholder
from tito_io.families.folder import FolderError

IMAGE = tiny_tokenizer().token_to_id("<image>")
BOS = tiny_tokenizer().token_to_id("<bos>")
TEMPLATE = (
    "{% for m in messages %}{% for part in m.content %}"
    "{% if part.type == 'image' %}PLACEHOLDER{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endfor %}"
)


def found(path: Path, written: str, **files: Any) -> dict[str, list[int]]:
    """Return the placeholder of a folder whose template writes `written` for an image."""
    chosen = TEMPLATE.replace("PLACEHOLDER", written)
    tiny_folder(path, chosen, **{f"{name}__json": value for name, value in files.items()})
    return image_placeholder(load(path))


@pytest.mark.parametrize(
    "files",
    [
        {"config": {"image_token_id": IMAGE}},
        {"config": {"image_token_index": IMAGE}},
        {"config": {"image_token_id": BOS}, "processor_config": {"image_token": "<image>"}},
        {"config": {"image_token_id": BOS}, "tokenizer_config": {**CONFIG, "boi_token": "<image>"}},
        {"tokenizer_config": {**CONFIG, "extra_special_tokens": {"image_token": {"content": "<image>"}}}},
    ],
)
def test_the_candidate_that_the_template_writes_is_taken(tmp_path: Path, files: Any) -> None:
    assert found(tmp_path, "<bos><bos><image><eos>", **files) == {"image": [IMAGE]}


def test_a_placeholder_may_have_several_ids(tmp_path: Path) -> None:
    ids = tiny_tokenizer().encode("[IMG]").ids
    assert len(ids) > 1
    assert found(tmp_path, "<bos>[IMG]<eos>", processor_config={"image_token": "[IMG]"}) == {"image": ids}


@pytest.mark.parametrize(
    ("written", "files"),
    [
        ("<image><image>", {"config": {"image_token_id": IMAGE}}),
        ("", {"config": {"image_token_id": IMAGE}}),
        ("{{ raise_exception('text only') }}", {"config": {"image_token_id": IMAGE}}),
        ("<bos>", {"config": {"image_token_id": IMAGE, "image_token": None}}),
        ("<image>", {"config": {"image_token_id": "x", "extra_special_tokens": 5}}),
        ("<image>", {}),
    ],
)
def test_a_model_without_a_certain_placeholder_has_none(tmp_path: Path, written: str, files: Any) -> None:
    assert found(tmp_path, written, **files) == {}


def test_a_malformed_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"config\.json: must hold an object"):
        found(tmp_path, "<image>", config=[5])


def test_a_folders_name_in_place_of_its_family_is_named() -> None:
    with pytest.raises(InputError, match=r"family is 'MODEL': give Family.load\('MODEL'\)"):
        image_placeholder("MODEL")  # type: ignore[arg-type]  # as a caller without types may
