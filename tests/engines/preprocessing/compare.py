"""Compare texts that are rendered here with those of an engine, template by template."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from tests.families.table import folders
from tito_core import TemplateRefused
from tito_io.families import Family
from tito_io.families.folder import Source

from .oracle import Ask
from .shapes import Conversation, conversations

TEXTS = "{% for message in messages %}{{ message | tojson }}\n{% endfor %}{{ tools | tojson }}"
PROBES: Mapping[str, str] = {
    "texts": TEXTS,
    "lists": "{% for message in messages %}{% for part in message.content %}{% endfor %}{% endfor %}" + TEXTS,
    "lists in a macro": "{% macro shown(words) %}{% for part in words %}{% endfor %}{% endmacro %}"
    "{% for turn in messages %}{{ shown(turn.content) }}{% endfor %}" + TEXTS,
    "developer": "{% if messages[0].role == 'developer' %}{% endif %}" + TEXTS,
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
        """Return what is rendered for an engine here; None where that is refused."""
        try:
            return self.family.rendered_as(engine).text(
                one.messages, tools=one.tools, add_generation_prompt=True
            )
        except TemplateRefused:
            return None


def probes(folder: Path) -> Iterator[Template]:
    """Yield the probes, in a model folder that they are written into."""
    for name, source in PROBES.items():
        file = folder / f"{name}.jinja"
        file.write_text(source)
        yield Template(name, Family.load(folder, template=str(file)), {})


def real_templates(root: Path) -> Iterator[Template]:
    """Yield the templates of model folders; those without a vocabulary get that of another family."""
    for folder in [*folders(root), root / "extra_templates"]:
        model = folder if (folder / "tokenizer.json").exists() else root / "qwen3"
        files = sorted(folder.glob("*.jinja"))
        loaded = Family.load(model, template=str(files[0]))
        for file in files:
            family = loaded.with_templates({"default": Source(file.read_text(encoding="utf-8"), file.name)})
            yield Template(f"{folder.name}/{file.stem}", family, dict(family.special_tokens))


def digests(texts: list[str | None]) -> list[str]:
    """Return eight letters for each text; `refused` for None."""
    return ["refused" if one is None else hashlib.sha256(one.encode()).hexdigest()[:8] for one in texts]


@attrs.frozen
class Difference:
    """A conversation that is rendered differently."""

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
    return [ask(template.source, one, template.variables).get("text") for one in conversations()]


def differences(template: Template, engine: str, theirs: list[str | None]) -> Iterator[Difference]:
    """Yield what an engine renders and is rendered differently here, or refused."""
    for one, text in zip(conversations(), theirs, strict=True):
        ours = None if text is None else template.text(one, engine)
        if ours != text:
            yield Difference(template.name, one.name, text, ours)


def recorded(name: str) -> Any:
    """Return a recorded file."""
    return json.loads((RECORDED / name).read_text(encoding="utf-8"))


RECORDED = Path(__file__).parents[2] / "io" / "families" / "preprocessing"
"""Where answers are recorded, for tests that run without the engines."""
