"""The layouts of the formats that tito writes: other programs and later versions read these files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.io.samples.sample_files import put, read
from tito_core import __version__
from tito_core.samples import Forest
from tito_io.samples.forms import FORMS

LAYOUTS = Path(__file__).with_name("layouts")
WRITTEN = [("tito", False), ("atif", False), ("atif", True), ("harbor", False)]


def layout(form: str, *, expand: bool) -> bytes:
    text = (LAYOUTS / f"{form}{'-expanded' * expand}.jsonl").read_text()
    return text.replace('"version":"VERSION"', f'"version":"{__version__}"').encode()


def stored(folder: Path, form: str, *, expand: bool) -> Forest:
    """Return a call, one that continues it, and one that restates its messages otherwise."""
    (found,), problems = read(put(folder, layout(form, expand=expand)), form=form)
    assert (problems, found.name) == ([], "talk")
    return found.forest


@pytest.mark.parametrize(("form", "expand"), WRITTEN)
def test_a_format_is_written_as_it_was(tmp_path: Path, form: str, *, expand: bool) -> None:
    write, forest = FORMS[form].write, stored(tmp_path, "tito", expand=False)
    assert write is not None
    assert b"".join(write("talk", forest, expand)) == layout(form, expand=expand)


@pytest.mark.parametrize(("form", "expand"), WRITTEN)
def test_a_file_of_before_is_read(tmp_path: Path, form: str, *, expand: bool) -> None:
    calls = stored(tmp_path, form, expand=expand).calls
    assert calls == stored(tmp_path, "tito", expand=False).calls
    first, second, _ = (one.step for one in calls)
    assert second.prompt_ids.extends(first.ids)  # shared, not copied
    assert second.prompt.extends(first.messages)
