"""The public API is the one that is listed, so that no change of it goes unnoticed."""

from __future__ import annotations

from enum import Enum

import attrs

from tests.release.public_api import FILE, WRITE, described, differences, listed, public_api, written


def test_the_public_api_is_as_listed() -> None:
    changes = differences(listed(FILE.read_text(encoding="utf-8")), public_api())
    assert changes == [], (
        f"the public API changed; if that is meant, run `{WRITE}`, and name it in CHANGELOG.md as "
        "docs/compatibility.md says:\n" + "\n".join(changes)
    )


def test_the_list_can_be_read_again() -> None:
    api = public_api()
    assert listed(written(api)) == api
    assert api["tito_core.Policy.odd_stop"] == ": OddStop"
    assert len(api) > 500


@attrs.frozen
class Example:
    """A class with what a list must show."""

    size: int = 3
    _hidden: int = 0

    def grow(self, by: int = 1, *, twice: bool = False) -> int:
        """Return a larger size."""
        return self.size + by * (1 + twice) + self._hidden

    @property
    def big(self) -> bool:
        """Whether it is big."""
        return self.size > 1


class Colour(Enum):
    """An enumeration."""

    RED = 1


def test_signatures_defaults_and_members_are_shown() -> None:
    Example.__module__ = "tito_example"  # members of other packages' classes are left out
    assert dict(described("a.Example", Example)) == {
        "a.Example": "(size: int = 3, hidden: int = 0)",
        "a.Example.size": ": int",
        "a.Example.grow": "(self, by: int = 1, *, twice: bool = False) -> int",
        "a.Example.big": ": bool",
    }
    assert dict(described("a.Colour", Colour)) == {"a.Colour": " is an enumeration", "a.Colour.RED": ""}
