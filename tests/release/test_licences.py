"""The list of licences has every direct dependency, and none that is not allowed."""

from __future__ import annotations

from typing import Any

import pytest

from tests.release.licences import UNKNOWN, LicenceRules, direct, licences, listed, project, refused, unlisted

RULES = LicenceRules.read()


def test_every_direct_dependency_is_listed() -> None:
    missing = sorted(direct() - listed().keys())
    assert missing == [], "run: python -m tests.release.licences --write"


def test_every_listed_licence_is_allowed() -> None:
    assert refused(listed(), RULES) == []


@pytest.mark.parametrize(
    ("metadata", "licence"),
    [
        ({"license_expression": "MIT OR GPL-3.0-only"}, "MIT OR GPL-3.0-only"),
        ({"classifier": ["License :: OSI Approved :: MIT License", "Topic :: X"]}, "MIT"),
        ({"license": "MPL-2.0 AND MIT"}, "MPL-2.0 AND MIT"),
        ({"license": "Apache Software License"}, "Apache-2.0"),
        ({"license": "do what you like"}, UNKNOWN),
        ({}, UNKNOWN),
    ],
)
def test_a_licence_is_what_the_metadata_say(metadata: dict[str, Any], licence: str) -> None:
    assert RULES.licence({"name": "x", **metadata}) == licence


def test_a_package_with_another_licence_is_named_with_the_extras_that_need_it() -> None:
    package = {"name": "Some_Package", "license_expression": "AGPL-3.0-only"}
    lines = licences([("", [package]), ("io", [package, {"name": "tito-kernel"}])], RULES)
    assert refused(lines, RULES) == ["some-package: AGPL-3.0-only  core io"]


def test_an_extra_that_pip_cannot_resolve_is_named_unless_it_is_known() -> None:
    rules = LicenceRules(frozenset(), {}, {}, {}, {"known": "why"})
    assert unlisted({"known": "known: no versions", "new": "new: no versions"}, rules) == ["new: no versions"]


def test_extras_that_cannot_be_resolved_are_extras() -> None:
    assert RULES.unresolved.keys() <= project()["optional-dependencies"].keys()
