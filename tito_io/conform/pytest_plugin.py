"""The pytest plugin: `pytest --tito-conform=MODULE:FUNCTION` runs one test for each conformance vector.

pytest loads this module in every run, so that it imports nothing of tito before the option is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("tito", "conformance of next prompts")
    group.addoption(
        "--tito-conform",
        metavar="MODULE:FUNCTION",
        help="Run one test for each conformance vector. FUNCTION gets a question as `tito conform` sends "
        "it, and returns ids, None for a refusal, or a whole answer. Choose the tests with -k tito-conform.",
    )
    group.addoption(
        "--tito-vectors",
        metavar="DIR",
        help="A folder that `tito vectors` has written. Default: the vectors of the installed version.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register what makes the tests, if they are wanted."""
    target = config.getoption("tito_conform")
    if target is not None:
        from .pytest_items import ConformanceTests  # noqa: PLC0415  # only where it is wanted

        config.pluginmanager.register(ConformanceTests(target, config.getoption("tito_vectors")))
