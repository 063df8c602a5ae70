"""What may change in a file, and what may not."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper

from tests.mutants.mutant import Mutant, drawn, sites_of


def changed(text: str) -> set[str]:
    """Return the texts of all mutants of a text."""
    wrapper = MetadataWrapper(cst.parse_module(text))
    module: Any = wrapper.module
    return {module.deep_replace(site.node, one).code for _, site in sites_of(wrapper) for one in site.others}


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("a < b", "a <= b"),
        ("f(a, b)", "f(a, )"),
        ("f(a)", "f(None)"),
        ("f(a)", "pass"),
        ("return_ = 1", "return_ = 2"),
        ('x["role"]', 'x["XXroleXX"]'),
        ("[a for a in b if a]", "[a for a in b if (True)]"),
        ("if a:\n    b()", "if (False):\n    b()"),
    ],
)
def test_what_code_does_may_change(right: str, wrong: str) -> None:
    assert wrong in changed(right)


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring."""',
        "from a import b",
        "raise_: int | None",
        'raise_ = f(help="what it does")',
        'raise_ = f(help=f"what {it} does")',
        'T = TypeVar("T")',
        'A = "three words here"',
        '__all__ = ["A"]',
        "A: TypeAlias = B | C",
        "@frozen(kw_only=True)\nclass A: ...",
        'x = cast("T", x)',
        "raise_ = field(init=False)",
        "if TYPE_CHECKING:\n    a = 1 < 2",
    ],
)
def test_texts_for_people_and_types_do_not(text: str) -> None:
    end = text.rpartition(" = ")[2]
    assert all(end in wrong or ("(" in text and wrong.endswith(" = None")) for wrong in changed(text))


def test_of_an_error_all_but_its_text_changes() -> None:
    assert changed('raise InputError("no id", f"line {1 + 1}", a)') == {
        'raise InputError("no id", f"line {1 + 1}", None)',
        'raise InputError("no id", f"line {1 + 1}", )',
    }


def test_a_coarse_change_is_drawn_only_where_there_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = f(b, c < d)\ne = f(g)\n")
    for seed in range(20):
        lines = drawn(tmp_path, ["a.py"], 2, Random(seed))  # noqa: S311  # no secrets
        assert {one.change.splitlines()[1] for one in lines} in (
            {"+a = f(b, c <= d)", "+e = f(None)"},
            {"+a = f(b, c <= d)", "+e = None"},
        )


def test_draws_are_repeated_and_no_line_is_drawn_twice(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a = 1 + 1\nb = 2 + 2\nif a < b:\n    print(a)\n")
    mutants = drawn(tmp_path, ["a.py"], 9, Random(7))  # noqa: S311  # no secrets
    assert mutants == drawn(tmp_path, ["a.py"], 9, Random(7))  # noqa: S311  # no secrets
    assert sorted(one.lines.start for one in mutants) == [1, 2, 3, 4]
    assert [one.lines for one in mutants if one.lines.start == 3] == [range(3, 4)]
    assert all(one.right != one.wrong for one in mutants)


def test_a_mutant_is_named_by_its_change_alone() -> None:
    mutant = Mutant("a.py", range(2, 3), "x\n  y  = 1\n", "x\n  y  = 2\n")
    assert mutant.change == "-y = 1\n+y = 2"
    assert mutant.is_reached({"a.py": [2]})
    assert not mutant.is_reached({"a.py": [1], "b.py": [2]})
