"""Metadata of GGUF files: what is read, and what is refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from tests.gguf_file import write_gguf
from tito_io.families.folder import FolderError
from tito_io.families.gguf.metadata import LONGEST_ARRAY, check_whole, read_metadata

METADATA: dict[str, Any] = {
    "general.architecture": "tito",
    "general.tags": ["a", "é"],
    "tito.context_length": 32768,
    "tito.rope": [1, 2],
    "tokenizer.ggml.scores": [0.0, -1.5],
    "tokenizer.ggml.token_type": [1, -1],
    "tokenizer.ggml.add_bos_token": False,
    "tokenizer.nested": [["x"], ["y", "z"]],
}


@pytest.mark.parametrize("version", [2, 3])
def test_metadata_come_back_without_the_models_own_arrays(tmp_path: Path, version: int) -> None:
    read = read_metadata(write_gguf(tmp_path / "m.gguf", METADATA, version=version))
    assert read == {key: value for key, value in METADATA.items() if key != "tito.rope"}
    assert read["tokenizer.ggml.add_bos_token"] is False


def test_bytes_that_are_no_text_are_kept(tmp_path: Path) -> None:
    text = b"\xff\xfe".decode(errors="surrogateescape")
    assert read_metadata(write_gguf(tmp_path / "m.gguf", {"general.name": text}))["general.name"] == text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "does not begin with GGUF"),
        (b"PK\x03\x04", "does not begin with GGUF"),
        (b"GGUF", "damaged"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1 of the format"),
        (b"GGUF" + struct.pack("<IQQ", 3 << 24, 0, 0), "version"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**60), "ends behind the file's end"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1) + b"k" + struct.pack("<I", 99), "99"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<IIQ", 9, 8, LONGEST_ARRAY + 1),
            f"{LONGEST_ARRAY} are the most",
        ),
        (
            b"GGUF"
            + struct.pack("<IQQQ", 3, 0, 1, 1)
            + b"k"
            + struct.pack("<I", 9)
            + b"\x09\0\0\0\1\0\0\0\0\0\0\0" * 9999,
            "recursion",
        ),
    ],
)
def test_what_is_no_gguf_file_is_refused_by_name(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(content)
    with pytest.raises(FolderError, match=said) as refused:
        read_metadata(file)
    assert str(refused.value).startswith(f"{file}: ")
    assert str(refused.value).count(str(file)) == 1
    assert "unpack" not in str(refused.value)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf", METADATA).read_bytes()
    for length in range(0, len(whole), 3):
        (tmp_path / "cut.gguf").write_bytes(whole[:length])
        with pytest.raises(FolderError):
            read_metadata(tmp_path / "cut.gguf")


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.gguf"):
        with pytest.raises(FolderError, match="is not a file"):
            read_metadata(path)


@pytest.mark.parametrize("alignment", [8, 32, 64])
def test_a_file_is_whole_if_its_last_tensor_begins_in_it(tmp_path: Path, alignment: int) -> None:
    file = write_gguf(tmp_path / "m.gguf", {**METADATA, "general.alignment": alignment}, tensors=(64, 128, 5))
    check_whole(file)
    whole = file.read_bytes()
    file.write_bytes(whole[:-4])
    check_whole(file)
    for cut in (5, 6, 100, 190, 197):
        file.write_bytes(whole[:-cut])
        with pytest.raises(
            FolderError, match=f"m.gguf: is cut: .* than {len(whole) - 5:,} .*; copy the file"
        ):
            check_whole(file)
    file.write_bytes(whole[: -198 - alignment])
    with pytest.raises(FolderError, match=r"it ends within its metadata; copy the file anew"):
        check_whole(file)


def test_a_vocabulary_alone_is_whole(tmp_path: Path) -> None:
    check_whole(write_gguf(tmp_path / "m.gguf", METADATA))


def test_an_alignment_that_is_no_number_is_refused(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", {"general.alignment": "x"})
    with pytest.raises(FolderError, match=r"general\.alignment is 'x'"):
        check_whole(file)
