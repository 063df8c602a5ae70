"""Lint says what a template does with images: the placeholder, and where prompts with images go by ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.io.families.family_folder import tiny_tokenizer
from tests.io.lint.lint_folders import EXACT, chatml, folder
from tito_core import suffix_ids
from tito_io.families.chunk_encoder import ChunkEncoder
from tito_io.families.family import Family
from tito_io.lint.budget import Budget
from tito_io.lint.command import lint as command
from tito_io.lint.diff import differences
from tito_io.lint.example_conversation import TOOL
from tito_io.lint.image_report import NUMBERED, MediaReport
from tito_io.lint.images import FIRST, LATER, NO_LISTS, NOTHING, UNLIKE, UNNAMED, ImageLinter
from tito_io.lint.meter import LintMeter
from tito_io.lint.report import LintReport, to_json

IMAGE = tiny_tokenizer().get_vocab()["<image>"]
PARTS = (
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content or [] %}"
    "{% if part.type == 'image' %}IMAGE{% elif part.type == 'text' %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}"
)
COUNT = "{% set count = namespace(images=0) %}"
PICTURE = "{% set count.images = count.images + 1 %}Picture {{ count.images }}: <image>"
NAMED: dict[str, Any] = {"config__json": {"image_token_id": IMAGE}}


def template(written: str = "<image>", before: str = "", parts: str = PARTS) -> str:
    return chatml(before=before).replace("{{ m.content or '' }}", parts.replace("IMAGE", written))


def media(path: Path, text: str, **files: Any) -> MediaReport:
    """Return what is found for a template, without the rest of a lint."""
    family = Family.load(folder(path, text, **files))
    meter = LintMeter(family.tokenize_fn(tools=[TOOL]), Budget(), ChunkEncoder.of(family.tokenizer))
    return ImageLinter(family, meter, suffix_ids(meter), family.stop_ids).report()


def test_every_place_is_exact_where_the_template_writes_a_placeholder(tmp_path: Path) -> None:
    found = media(tmp_path, template("<bos><image><eos>"), **NAMED)
    assert (found.placeholder, found.placeholder_text) == ((IMAGE,), "<image>")
    assert (found.written, found.problem, found.numbered) == ("<bos><image><eos>", "", False)
    assert [one.verdict for one in found.cases] == ["exact"] * 4
    assert found.lines[0] == (
        f"images: written as `<bos><image><eos>`, in which the engine expands `<image>` ({IMAGE})"
    )


def test_an_only_id_needs_no_name_and_one_of_several_does(tmp_path: Path) -> None:
    assert media(tmp_path / "one", template()).placeholder == (IMAGE,)
    several = media(tmp_path / "several", template("<bos><image><eos>"))
    assert (several.placeholder, several.problem) == ((), UNNAMED)
    assert {one.verdict for one in several.cases} == {"exact"}


def test_a_template_that_counts_its_images_depends_on_the_history(tmp_path: Path) -> None:
    path = folder(tmp_path / "model", template(PICTURE, before=COUNT), **NAMED)
    text = CliRunner().invoke(command, [str(path), "--html", str(tmp_path / "page.html")]).stdout
    for shown in (" ".join(text.split()), (tmp_path / "page.html").read_text()):
        assert NUMBERED in shown
        assert f"{FIRST}: refused, UNPROVEN_TAIL" in shown
        assert f"{LATER}: refused, UNPROVEN_TAIL" in shown
        assert "audio: not supported" in shown
        assert f"{NUMBERED.capitalize()}." in shown
        assert "Such a prompt goes by messages." in shown


@pytest.mark.parametrize(
    ("parts", "problem"),
    [
        ("{{ m.content or '' }}", NO_LISTS),
        ("{{ m.content | tojson }}", NO_LISTS),
        ("{% if m.content is string %}{{ m.content }}{% endif %}", NO_LISTS),
        (PARTS.replace("IMAGE", ""), NOTHING),
        (PARTS.replace("IMAGE", "{{ raise_exception('no images') }}"), "the template rejects such a part: "),
        (PARTS.replace("IMAGE", "{{ 'x' * loop.index }}{% if loop.index > 1 %}yyy{% endif %}"), UNLIKE),
    ],
)
def test_why_images_are_not_supported_is_said(tmp_path: Path, parts: str, problem: str) -> None:
    found = media(tmp_path, template(parts=parts), **NAMED)
    assert found.problem.startswith(problem)
    assert (found.placeholder, found.cases) == ((), ())


def test_a_role_that_rejects_or_drops_images_is_named(tmp_path: Path) -> None:
    rejects = template("{% if m.role == 'tool' %}{{ raise_exception('text only') }}{% endif %}<image>")
    drops = template("{% if m.role != 'tool' %}<image>{% endif %}")
    last = media(tmp_path / "rejects", rejects, **NAMED).cases[-1]
    assert (last.place, last.verdict) == ("an image in a tool result", "rejected")
    last = media(tmp_path / "drops", drops, **NAMED).cases[-1]
    assert (last.verdict, last.reason) == ("refused", "PLACEHOLDERS")


def test_templates_that_take_only_lists_are_looked_at_in_lists(tmp_path: Path) -> None:
    only = (
        "{% for part in m.content or [] %}{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}"
        "{% endif %}{% endfor %}"
    )
    assert media(tmp_path, template(parts=only), **NAMED).cases[0].verdict == "exact"


def test_audio_and_video_are_not_supported_by_name(tmp_path: Path) -> None:
    heard = PARTS.replace("{% elif", "{% elif part.type == 'audio' %}<bos>{% elif")
    found = media(tmp_path, template(parts=heard), **NAMED)
    assert dict(found.others) == {
        "audio": "not supported: a conversation with audio goes by messages; the template writes `<bos>` for "
        "such a part",
        "video": f"not supported: a conversation with video goes by messages; {NOTHING}",
    }
    assert found.lines[-2].startswith("audio: not supported: ")


def test_programs_read_the_same(tmp_path: Path) -> None:
    found = media(tmp_path, template(), **NAMED)
    data = to_json(LintReport(path="model", template="default", media=found))["images"]
    assert data["placeholder"] == [IMAGE]
    assert data["cases"][0] == {"place": FIRST, "verdict": "exact", "reason": None, "detail": ""}
    assert set(data["not_supported"]) == {"audio", "video"}


def test_a_comparison_says_what_changes_for_images(tmp_path: Path) -> None:
    one, two = (
        LintReport(path=name, template=name, media=media(tmp_path / name, text, **NAMED))
        for name, text in (("a", EXACT), ("b", template()))
    )
    found = differences(one, two)
    assert {change.what for change in found} == {"images"}
    assert found[0].one == f"not supported; {NO_LISTS}"
    assert found[0].two.startswith("written as `<image>`")
    assert [change.where for change in found][1:3] == [FIRST, LATER]


def test_images_that_go_by_messages_fail_on_demand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder(tmp_path / "named", template("<bos><image><eos>"), **NAMED)
    folder(tmp_path / "unnamed", template("<bos><image><eos>"))
    folder(tmp_path / "numbered", template(f"{PICTURE}<eos>", before=COUNT), **NAMED)
    folder(tmp_path / "texts", EXACT)

    def status(*options: str) -> int:
        return CliRunner().invoke(command, options).exit_code

    assert status("named", "unnamed", "numbered", "texts") == 0
    on = ("--fail-on", "IMAGES_REFUSED")
    assert status("named", "texts", *on) == 0
    assert [status(name, *on) for name in ("unnamed", "numbered")] == [1, 1]
    assert status("numbered", *on, "--write-baseline", "known.json") == 0
    assert status("numbered", *on, "--baseline", "known.json") == 0
    assert status("unnamed", *on, "--baseline", "known.json") == 1
