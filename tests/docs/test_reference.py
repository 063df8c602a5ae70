"""The reference and the troubleshooting page leave out no public name and no reason."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest
from starlette.routing import Route

from tito_core import Forgiveness, Reason
from tito_core.normalization.receipts import CHOICES, OPTIONAL
from tito_core.testing import TOYS
from tito_io.cli.group import COMMANDS
from tito_io.engines.registry import embedded
from tito_io.serve.app import app
from tito_io.serve.client_noise import DEFAULT, NoiseRule, option_name
from tito_io.serve.gateway import build_gateway
from tito_io.serve.stores import open_store

DOCS = Path(__file__).parent.parent.parent / "docs"
ROOMS = (
    "tito_core",
    "tito_core.samples",
    "tito_core.drift",
    "tito_core.testing",
    "tito_core.testing.strategies",
    "tito_io.client",
    "tito_io.embedded",
    "tito_io.families",
)
NAMED = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))


@pytest.mark.parametrize("room", ROOMS)
def test_the_reference_has_every_public_name(room: str) -> None:
    names = set(import_module(room).__all__) - PLAIN
    listed = set(re.findall(r"\w+", " ".join(re.findall(r"auto\w+:: ([\w.]+)", NAMED))))
    assert sorted(names - listed) == []


PLAIN = frozenset(
    (
        "AsyncTokenizeFn",
        "DEPENDENT_TOYS",
        "LOCAL_TOYS",
        "MAX_MODEL_LEN",
        "MODEL",
        "Message",
        "Questions",
        "TIDY",
        "TOYS",
    )
)
"""Type aliases and constants, which pages name where they are used."""


def test_every_toy_has_a_row_with_its_quirk() -> None:
    page = (DOCS / "reference" / "testing.md").read_text(encoding="utf-8")
    rows = [re.split(r"(?<!\\)\|", line)[1:3] for line in page.splitlines() if line.startswith("| `")]
    found = [
        (name.strip(" `"), quirk.strip().replace("&lt;", "<").replace("\\|", "|")) for name, quirk in rows
    ]
    assert found == [(toy.name, toy.quirk) for toy in TOYS]


def test_every_reason_has_advice() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    assert [reason.name for reason in Reason if f"| `{reason.name}` |" not in page] == []


def test_the_page_about_forgiveness_is_the_table_of_the_code() -> None:
    """The difference is what a row says; the page may go on after a semicolon."""
    page = (DOCS / "reference" / "forgiveness.md").read_text(encoding="utf-8")
    always, chosen, *text = (
        [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines[2:]]
        for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
        if (lines := table.splitlines())
    )
    on = {True: "on", False: "off"}
    shown = [(name, difference.replace("`", "").split(";")[0]) for name, difference in always]
    assert shown == [(row.name, row.says) for row in Forgiveness if row not in OPTIONAL]
    assert [(*names, words.replace("`", "").split(";")[0], default) for *names, words, default in chosen] == [
        (row.name, option_name(row), row.says, on[choice.gateway]) for row, choice in CHOICES.items()
    ]
    rules = [(name, default) for rows in text for name, _, default in rows]
    assert rules == [(option_name(rule), on[rule in DEFAULT]) for rule in NoiseRule]


def test_the_http_reference_has_every_route() -> None:
    page = (DOCS / "reference" / "http.md").read_text(encoding="utf-8")
    rows = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("|"))
    gateway = build_gateway(
        embedded(seed=1), open_store("memory", idle_seconds=60.0, durable=False), model=""
    )
    routes = [route for route in app(gateway).routes if isinstance(route, Route)]
    paths = {
        re.sub(r"^/sessions?(/{session})?(?=/v1)", "", route.path)
        .replace("{model:path}", "NAME")
        .replace("{digest}", "DIGEST")
        for route in routes
    }
    shown = {path.replace("{session}", "ID").replace("/session/", "/sessions/ID/") for path in paths}
    missing = [path for path in shown if f"{path}`" not in rows and "{path:path}" not in path]
    assert len(paths) > 10
    assert sorted(missing) == ["/session"]  # named in the text, as /session/view is


def test_the_command_line_reference_is_of_the_whole_group() -> None:
    assert ":nested: full" in (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    assert len(COMMANDS) >= 5


def test_the_glossary_defines_each_word_once_and_in_order() -> None:
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"(?m)^- \*\*([\w ]+)\*\*: ", text)
    assert len(terms) > 30
    assert terms == sorted(set(terms), key=str.lower)


@pytest.mark.whole
def test_the_error_texts_that_the_troubleshooting_page_quotes_are_in_the_code() -> None:
    root = DOCS.parent
    modules = [path for room in ("tito_core", "tito_io") for path in (root / room).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules]
    nodes = (node.value for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Constant))
    texts = "\n".join(text for text in nodes if isinstance(text, str))
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    quotes = re.findall(r"(?m)^- \*\*`(?:\w+Error: )?([^`]+)`|^\| [\d, ]+ \| `([^`]+)` \|", page)
    parts = [part.strip() for bold, cell in quotes for part in re.split(r"\.\.\.|[\[\]:]", bold or cell)]
    missing = [part for part in parts if " " in part and not part.startswith("tito ") and part not in texts]
    assert len(parts) > 10
    assert missing == []
