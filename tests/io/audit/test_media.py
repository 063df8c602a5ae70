"""`tito audit` on conversations with images: compared, shown in one piece, and named if they differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.io.audit.test_page import ParsedPage
from tests.io.families.family_folder import tiny_folder, tiny_tokenizer
from tito_core import Message, Step
from tito_core.media.ranges import MediaRange
from tito_core.samples import StoredCall
from tito_io.audit.command import audit
from tito_io.families.family import Family
from tito_io.samples.forms.tito import write_calls

IMAGE, END = (tiny_tokenizer().get_vocab()[token] for token in ("<image>", "<|im_end|>"))
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %}{% endif %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
EVIL = "</code><script>alert(1)</script>\x1b[31m"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(
        tmp_path_factory.mktemp("audit") / "family", TEMPLATE, generation_config__json={"eos_token_id": END}
    )


def showing(key: str) -> dict[str, Any]:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}, "uuid": key}
    return {"role": "user", "content": [picture, {"type": "text", "text": "what is it?"}]}


def call(family: Family, order: int, key: str, more: Sequence[Message] = (), size: int = 64) -> StoredCall:
    """Return a call that was sent as messages, with one image."""
    bare = [{"role": "user", "content": [{"type": "image"}, showing(key)["content"][1]]}, *more]
    ids = family.tokenize_fn()(bare, add_generation_prompt=True)
    place = ids.index(IMAGE)
    step = Step(
        prompt=[showing(key), *more],
        completion=[{"role": "assistant", "content": "a cat"}],
        prompt_ids=[*ids[:place], *[IMAGE] * size, *ids[place + 1 :]],
        completion_ids=[*family.encode("a cat"), END],
        media=[MediaRange(modality="image", identity=key, offset=place, length=size, collapsed=(IMAGE,))],
    )
    return StoredCall(name=f"t{order}", order=order, step=step)


def audited(folder: Path, tmp_path: Path, *keys: str, sizes: Sequence[int] = (64, 64)) -> list[str]:
    """Store a conversation whose turns show these images; return what the command prints, and its page."""
    family = Family.load(folder)
    more: list[Message] = []
    calls = []
    for order, (key, size) in enumerate(zip(keys, sizes, strict=False)):
        calls.append(call(family, order, key, more, size))
        more += [{"role": "assistant", "content": "a cat"}, {"role": "user", "content": "and?"}]
    with (tmp_path / "calls.jsonl").open("wb") as file:
        write_calls(file, "c", calls)
    page = tmp_path / "page.html"
    args = [str(tmp_path / "calls.jsonl"), "--family", str(folder), "--fail-on", "hypothetical"]
    table = CliRunner().invoke(audit, [*args, "--html", str(page)])
    data = CliRunner().invoke(audit, [*args, "--json"])
    assert table.exit_code == data.exit_code
    return [str(table.exit_code), table.stdout, page.read_text(), data.stdout]


def test_an_image_in_its_place_is_no_drift(folder: Path, tmp_path: Path) -> None:
    status, text, page, _ = audited(folder, tmp_path, "cat", "cat")
    assert (status, "no drift" in text, "not compared" in text) == ("0", True, False)
    assert "no drift" in page


def test_a_changed_image_is_named_and_shown_in_one_piece(folder: Path, tmp_path: Path) -> None:
    status, text, page, data = audited(folder, tmp_path, "cat", "dog")
    assert status == "1"
    assert "changed image: image cat is in use, the rendering has image dog" in text
    for shown in (text, ParsedPage(page).words):
        assert "[image cat: 64 ids from " in shown
        assert "[image dog: 64 ids from " in shown
        assert "<image>" not in shown
    one = json.loads(data.splitlines()[0])
    assert (one["cause"], one["used_ids"], len(one["used"])) == ("media", 64, 1)
    assert one["used"][0]["medium"]["identity"] == "cat"
    assert json.loads(data.splitlines()[-1])["summary"]["causes"] == {"media": 1}


def test_another_number_of_ids_is_named(folder: Path, tmp_path: Path) -> None:
    _, text, page, _ = audited(folder, tmp_path, "cat", "cat", sizes=(64, 60))
    for shown in (text, page):
        assert "other number of placeholder ids: image cat has 64 in use, 60 in the rendering" in shown
        assert "[image cat: 4 of 64 ids from " in shown


def test_an_identity_is_text_and_nothing_more(folder: Path, tmp_path: Path) -> None:
    _, text, page, _ = audited(folder, tmp_path, "cat", EVIL)
    assert "\x1b[31m" not in text
    assert "\x1b" not in page
    parsed = ParsedPage(page)
    assert not {"script", "img"} & set(parsed.tags)
    assert "[image </code><script>alert(1)<…: " in parsed.words
