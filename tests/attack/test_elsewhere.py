"""The list of attacks names tests that are there."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from tests.attack.conftest import HERE, ROOT, pytest_configure
from tests.attack.elsewhere import ELSEWHERE


@pytest.mark.parametrize("attack", ELSEWHERE)
def test_each_test_of_an_attack_is_there(attack: str) -> None:
    for test in ELSEWHERE[attack]:
        file, _, name = test.partition("::")
        module = ast.parse((ROOT / file).read_text())
        assert name in {getattr(one, "name", "") for one in module.body}, test


def test_they_run_where_the_folder_is_named() -> None:
    more = sum(map(len, ELSEWHERE.values()))
    for named, count in ((str(HERE), 1 + more), (str(HERE.parent), 1), (str(HERE / "test_gateway.py"), 1)):
        config: Any = SimpleNamespace(args=[named])
        pytest_configure(config)
        assert len(config.args) == count
