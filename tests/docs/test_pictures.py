"""The committed pictures are what their program draws, byte for byte."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path

import pytest

from docs.pictures.figures import PICTURES

ROOT = Path(__file__).parent.parent.parent
FOLDER = ROOT / "docs" / "pictures"


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all pictures, drawn anew by the command of the README."""
    folder = tmp_path_factory.mktemp("pictures")
    subprocess.run([sys.executable, "-m", "docs.pictures", "--folder", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_is_reproduced(name: str, drawn: Path) -> None:
    assert (drawn / f"{name}.svg").read_bytes() == (FOLDER / f"{name}.svg").read_bytes()


def test_every_picture_has_a_program() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.svg")) == sorted(PICTURES)


def test_the_drift_picture_marks_ids_that_differ() -> None:
    root = ET.fromstring((FOLDER / "drift.svg").read_text(encoding="utf-8"))  # noqa: S314  # our own
    styles = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}rect")]
    assert styles.count("changed") > 3
    assert styles.count("sampled") > 10


def test_the_re_rendered_word_stands_below_the_ids_that_were_sampled_for_it() -> None:
    root = ET.fromstring((FOLDER / "drift.svg").read_text(encoding="utf-8"))  # noqa: S314  # our own
    elements = list(root)
    boxes = {after.text: box for box, after in pairwise(elements) if box.tag.endswith("rect") and after.text}
    assert boxes["How"].get("x") == boxes["However"].get("x")
    assert float(boxes["How"].attrib["y"]) < float(boxes["However"].attrib["y"])
