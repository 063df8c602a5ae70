"""GGUF files of installed packages: found by what was recorded at the installation, and never imported."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.gguf_file import install_package
from tito_core import InputError
from tito_io.families.folder import FolderError
from tito_io.families.gguf.installed import gguf_file

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Return what installs a package of some files."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    return partial(install_package, tmp_path)


@pytest.mark.parametrize("name", ["tiny-model", "tiny_model", "Tiny.Model", Path("tiny-model")])
def test_a_package_is_found_by_any_spelling_of_its_name(install: Install, name: Any) -> None:
    folder = install("data/m.GGUF", "notes.txt")
    assert gguf_file(name) == folder / "data" / "m.GGUF"


def test_a_package_is_found_by_the_name_that_is_imported(install: Install) -> None:
    folder = install("m.gguf", module="weights")
    assert gguf_file("weights") == folder / "m.gguf"


def test_a_file_goes_before_a_package(install: Install, tmp_path: Path) -> None:
    install("m.gguf")
    file = tmp_path.parent / "tiny-model"
    file.touch()
    try:
        assert gguf_file("tiny-model") == Path("tiny-model")
        assert gguf_file(file) == file
    finally:
        file.unlink()


def test_a_model_in_several_files_is_one(install: Install) -> None:
    folder = install(*(f"big-0000{part}-of-00003.gguf" for part in (3, 1, 2)))
    assert gguf_file("tiny-model") == folder / "big-00001-of-00003.gguf"


@pytest.mark.parametrize(
    ("files", "given", "said"),
    [
        (
            (),
            "tiny-model",
            "tiny-model: the installed package has no GGUF file; give another",
        ),
        (("a.gguf", "b.gguf"), "tiny-model", "has 2 models; give the path of one: {0}/a.gguf, {0}/b.gguf"),
        (("m.gguf",), "other", "other: neither a file nor an installed package: .* run pip install other"),
        (("m.gguf",), "lost.gguf", "lost.gguf: is not a file; give a GGUF file on this machine"),
        (("m.gguf",), "tiny/model", "tiny/model: is not a file"),
        (("m.gguf",), "", "is a folder"),
        (("m.gguf",), "{0}", "{0}: is a folder; give the path of one GGUF file"),
    ],
)
def test_what_is_not_one_model_is_refused_in_one_line(
    install: Install, files: tuple[str, ...], given: str, said: str
) -> None:
    folder = install(*files)
    with pytest.raises(FolderError, match=said.format(re.escape(str(folder)))) as refused:
        gguf_file(given.format(folder))
    assert "\n" not in str(refused.value)


def test_no_path_is_refused() -> None:
    wrong: Any = None
    with pytest.raises(InputError, match="give a GGUF file or a package"):
        gguf_file(wrong)
