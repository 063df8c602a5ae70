"""What the gateway imports is a dependency of its own, so that its bounds hold wherever it is installed."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.release.artefacts import ROOT
from tests.release.licences import direct, normal, project

GATEWAY = ROOT / "tito_io" / "serve"
OWN = {"tito_core", "tito_io", *sys.stdlib_module_names}


def imported(file: Path) -> Iterator[str]:
    """Yield the first part of each module's name that a file imports."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield str(node.module).partition(".")[0]


def test_each_package_that_the_gateway_imports_is_required_by_its_extras() -> None:
    modules = {name for file in GATEWAY.rglob("*.py") for name in imported(file)} - OWN
    distributions, required = packages_distributions(), direct(["redis", "otel"])
    missing = {module for module in modules if required.isdisjoint(map(normal, distributions[module]))}
    assert missing == set()


def test_the_gateway_reads_http_with_a_parser_that_refuses_malformed_chunks() -> None:
    """By itself uvicorn takes any h11 from 0.8 on; before 0.16 requests can be smuggled (CVE-2025-43859)."""
    bounds = [re.split(r">=", text) for text in project()["optional-dependencies"]["serve"]]
    assert ["h11", "0.16"] in bounds


def test_the_core_needs_two_packages() -> None:
    """`cattrs` needs `typing_extensions` beside: docs/install.md says so."""
    assert direct([]) == {"attrs", "cattrs"}
