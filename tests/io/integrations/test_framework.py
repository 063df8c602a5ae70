"""Which versions of frameworks are used: old ones are refused, newer ones warn, and what moved is named."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.environment import Environment
from tests.faults.fault import ROOT
from tito_io.integrations import framework
from tito_io.integrations.framework import FRAMEWORKS, Framework, FrameworkError, Seams, required

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "optional-dependencies"
]
PINS = sorted((ROOT / "tests" / "frameworks").glob("*/requirements.txt"))
SEAMS: Seams = {"fractions:Fraction.limit_denominator": ("max_denominator",)}


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(FRAMEWORKS, "mine", Framework("mine", "1.2", "1.4.0", "mine"))
    yield
    framework._warn.cache_clear()


def install(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    monkeypatch.setattr(framework, "version", lambda _: found)


@pytest.mark.parametrize("found", ["1.2", "1.3.post1", "1.4.0", "1.4", "1.4.0+cpu"])
def test_a_version_up_to_the_tested_one_is_silent(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    install(monkeypatch, found)
    assert required("mine", SEAMS) is FRAMEWORKS["mine"]


@pytest.mark.parametrize("found", ["1.4.1", "2.0", "1.10"])
def test_a_newer_version_works_with_one_warning_that_names_both(
    monkeypatch: pytest.MonkeyPatch, found: str
) -> None:
    install(monkeypatch, found)
    with pytest.warns(match=rf"^mine is {found}: this integration is tested up to 1\.4\.0;") as caught:
        assert required("mine", SEAMS) is FRAMEWORKS["mine"]
    required("mine", {})  # another module of the same integration; a second warning would be an error
    (warning,) = caught
    assert Path(warning.filename).name == Path(__file__).name  # compiled files may be of another folder


@pytest.mark.parametrize("found", ["1.1.9", "0.1", "1.2rc1"])
def test_an_older_version_is_refused_with_the_lowest(monkeypatch: pytest.MonkeyPatch, found: str) -> None:
    install(monkeypatch, found)
    with pytest.raises(
        FrameworkError, match=rf"^mine is {found}: this integration needs 1\.2 or newer; install"
    ):
        required("mine", SEAMS)


MOVED: dict[str, Seams] = {
    "fractions:Fraction.limit_denominator": {"fractions:Fraction.limit_denominator": ("most",)},
    "fractions:Fraction.halve": {"fractions:Fraction.halve": (...,)},
    "fractions:Half": {"fractions:Half": None},
    "fractions.halves:Half": {"fractions.halves:Half.of": ()},
}


@pytest.mark.parametrize("seam", MOVED)
@pytest.mark.parametrize("found", ["1.4.0", "1.5"])
def test_what_moved_is_an_error_that_names_it_and_both_versions(
    monkeypatch: pytest.MonkeyPatch, found: str, seam: str
) -> None:
    install(monkeypatch, found)
    with pytest.raises(FrameworkError) as caught:
        required("mine", {**SEAMS, **MOVED[seam]})
    assert str(caught.value).startswith(f"mine {found} has no {seam}")
    assert str(caught.value).endswith("it is tested with 1.4.0")


def test_more_arguments_may_follow_an_ellipsis_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "1.4.0")
    seam = "tito_io.integrations.framework:required"
    required("mine", {seam: ("extra", ...)})
    required("mine", {seam: ("extra", "seams", ...)})
    required("mine", {"fractions:Fraction.as_integer_ratio": ()})
    for taken in ((), ("extra",), ("seams", ...), ("extra", "seams", "more", ...)):
        with pytest.raises(FrameworkError, match="has no tito_io"):
            required("mine", {seam: taken})


LAZY = """
def __getattr__(name):  # as the modules of TRL and transformers do
    try:
        import a_package_that_is_missing
    except ImportError as error:
        raise RuntimeError(f"Failed to import {name} because of the following error:\\n...") from error
"""


@pytest.mark.parametrize("text", ["import a_package_that_is_missing", LAZY], ids=["at once", "on first use"])
def test_another_package_that_a_framework_needs_has_not_moved(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    (tmp_path / "needing.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needing", raising=False)
    install(monkeypatch, "1.4.0")
    missing = "mine 1.4.0 cannot be imported: No module named 'a_package_that_is_missing'; install it with"
    with pytest.raises(FrameworkError, match=f"^{re.escape(missing)} [^\n]*$"):
        required("mine", {"needing:Thing": None})


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_an_extra_has_the_lowest_version_and_no_cap(extra: str) -> None:
    found = {one.name: one.specifier for one in map(Requirement, EXTRAS[extra])}
    assert found[FRAMEWORKS[extra].package] == SpecifierSet(f">={FRAMEWORKS[extra].lowest}")


@pytest.mark.parametrize("extra", EXTRAS)
def test_no_extra_has_a_cap(extra: str) -> None:
    operators = {one.operator for text in EXTRAS[extra] for one in Requirement(text).specifier}
    assert operators <= {">="}


@pytest.mark.parametrize("extra", FRAMEWORKS)
def test_the_tested_version_is_the_one_that_tests_run_with(extra: str) -> None:
    package = canonicalize_name(FRAMEWORKS[extra].package)
    pins = [Environment(file.parent, file).pins() for file in PINS]
    found = {
        version for pinned in pins for name, version in pinned.items() if canonicalize_name(name) == package
    }
    assert found == {FRAMEWORKS[extra].tested}
