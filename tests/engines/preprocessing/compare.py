"""Compare texts that are rendered here with those of an engine, template by template."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs

from tests.engines.difference_rows import Row, read_rows
from tests.families.table import folders
from tito_core import TemplateRefused
from tito_io.families import Family
from tito_io.families.folder import Source

from .oracle import Ask
from .shapes import Conversation, conversations

TEXTS = "{% for message in messages %}{{ message | tojson }}\n{% endfor %}"
TEXTS += "{% if tools %}{{ tools | tojson }}{% endif %}"
PROBES: Mapping[str, str] = {
    "texts": TEXTS,
    "lists": "{% for message in messages %}{% for part in message.content %}{% endfor %}{% endfor %}" + TEXTS,
    "lists in a macro": "{% macro shown(words) %}{% for part in words %}{% endfor %}{% endmacro %}"
    "{% for turn in messages %}{{ shown(turn.content) }}{% endfor %}" + TEXTS,
    "developer": "{% if messages[0].role == 'developer' %}{% endif %}" + TEXTS,
    "strict": "{% for one in messages %}{% set roles = messages[loop.index0 - 1].role + ' ' + one.role %}"
    "{% if not loop.first and (one.role == 'system' or roles == 'user user') %}"
    "{{ raise_exception('not in this place') }}{% endif %}{% endfor %}" + TEXTS + "{{ date_string }}",
}
"""Templates of our own that print all they get, as different as engines tell them apart."""


@attrs.frozen
class Template:
    """A template with a family that renders it."""

    name: str
    family: Family
    variables: Mapping[str, Any]

    @property
    def source(self) -> str:
        """The template's text."""
        return self.family.templates["default"].source.text

    def text(self, one: Conversation, engine: str) -> str | None:
        """Return what is rendered for an engine here, without the day; None where that is refused."""
        family = self.family.rendered_as(engine)
        try:
            return undated(family.text(one.messages, tools=one.tools, add_generation_prompt=True))
        except TemplateRefused:
            return None


def probes(folder: Path) -> Iterator[Template]:
    """Yield the probes, in a model folder that they are written into."""
    for name, source in PROBES.items():
        file = folder / f"{name}.jinja"
        file.write_text(source)
        yield Template(name, Family.load(folder, template=str(file)), {})


def real_templates(root: Path) -> Iterator[Template]:
    """Yield the templates of model folders; those without a vocabulary get that of another family.

    All get a `bos_token`: llama.cpp takes that of the model where a request has none.
    """
    for folder in [*folders(root), root / "extra_templates"]:
        model = folder if (folder / "tokenizer.json").exists() else root / "qwen3"
        files = sorted(folder.glob("*.jinja"))
        loaded = Family.load(model, template=str(files[0]))
        loaded = attrs.evolve(loaded, special_tokens={"bos_token": "<bos>", **loaded.special_tokens})
        for file in files:
            family = loaded.with_templates({"default": Source(file.read_text(encoding="utf-8"), file.name)})
            yield Template(f"{folder.name}/{file.stem}", family, dict(family.special_tokens))


def undated(text: str) -> str:
    """Return a text without the day on which it was rendered.

    >>> undated("Today is 27 Nov 2026, 2026-11-27."), undated("November 27, 2026")
    ('Today is (day), (day).', '(day)')
    """
    return DAYS.sub("(day)", text)


def digest(text: str) -> str:
    """Return eight letters for a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@attrs.frozen
class Difference:
    """A conversation that is rendered differently."""

    engine: str
    template: str
    shape: str
    theirs: str | None
    ours: str | None

    def place(self, around: int = 60) -> tuple[str, str]:
        """Return both texts around the first place where they differ."""
        theirs, ours = self.theirs or "", self.ours or "(refused)"
        at = next(
            (i for i, (a, b) in enumerate(zip(theirs, ours, strict=False)) if a != b),
            min(len(theirs), len(ours)),
        )
        return theirs[max(0, at - around) : at + around], ours[max(0, at - around) : at + around]


def answers(ask: Ask, template: Template) -> list[str | None]:
    """Return the engine's texts of all conversations; None where it refuses."""
    texts = [ask(template.source, one, template.variables).get("text") for one in conversations()]
    return [None if text is None else undated(text) for text in texts]


def differences(
    template: Template, engine: str, theirs: list[str | None], form: Callable[[str], str] = str
) -> Iterator[Difference]:
    """Yield what an engine renders and is rendered differently here, or refused.

    Texts are compared without days, and in a form; `theirs` are in it already.
    """
    for one, text in zip(conversations(), theirs, strict=True):
        ours = None if text is None else template.text(one, engine)
        if text != (ours if ours is None else form(ours)):
            yield Difference(engine, template.name, one.name, text, ours)


def unnamed(found: Iterable[Difference]) -> list[Difference]:
    """Return the differences for which no row gives the reason."""
    rows = table().values()
    return [one for one in found if not any(row.names(one) for row in rows)]


def table() -> dict[str, Row]:
    """Return the rows by name."""
    return read_rows(TABLE)


def recorded_forms(engine: str, template: str) -> tuple[Callable[[str], str], list[str | None]]:
    """Return the form in which an engine's texts of a template are recorded, and the texts in it."""
    if template in PROBES:
        known = _recorded(f"recorded_{engine}.json")[template]
        return str, [known[one.name] for one in conversations()]
    words = _recorded(f"recorded_renders_{engine}.json")[template].split()
    return digest, [None if word == "refused" else word for word in words]


@cache
def _recorded(name: str) -> Any:
    return json.loads((RECORDED / name).read_text(encoding="utf-8"))


RECORDED = Path(__file__).parents[2] / "io" / "families" / "preprocessing"
"""Where answers are recorded, for tests that run without the engines."""
TABLE = Path(__file__).with_name("differences.toml")
DAYS = re.compile(
    r"\b(?:\d{1,2} [A-Z][a-z]{2,8},? 20\d\d|[A-Z][a-z]{2,8} \d{1,2}, 20\d\d|20\d\d-\d\d-\d\d)\b"
)
