"""Compare two profiles, for example of a local folder and of the server that it should equal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from .profile import Case, Profile


def differences(one: Profile, other: Profile) -> tuple[str, ...]:
    """Return one sentence per difference between profiles `one` and `other`; none if they agree.

    Cases that only one of them knows are ignored, because profiles grow with use. So is how a case is asked:
    a server may take a call's arguments in one form and a folder in another.

    >>> differences(Profile(suffix=(2, 110)), Profile(suffix=(2,)))
    ('suffix: (2, 110) and (2,)',)
    """
    return (
        *_unequal("suffix", one.suffix, other.suffix),
        *_unequal("stop_ids", sorted(one.stop_ids), sorted(other.stop_ids)),
        *(said for name in _names(one.facts) for said in _field(name, one.facts, other.facts)),
        *(said for case in one.cases for said in _case(case, other)),
    )


def _case(case: Case, other: Profile) -> Iterator[str]:
    """Compare a case with the other profile's."""
    theirs = other.case(case.kind, case.shape)
    if theirs is not None:
        where = f"{case.kind.label} ({case.kind.content}) before {', '.join(case.shape)}"
        for name in ("mode", "reason", "rewritten"):
            yield from (f"{where}: {said}" for said in _field(name, case, theirs))
        if case.recipe is not None and theirs.recipe is not None:
            for name in ("close", "speaks"):
                yield from (f"{where}: {said}" for said in _field(name, case.recipe, theirs.recipe))


def _names(value: Any) -> list[str]:
    return [field.name for field in attrs.fields(type(value))]


def _field(name: str, one: Any, other: Any) -> Iterator[str]:
    yield from _unequal(name, getattr(one, name), getattr(other, name))


def _unequal(name: str, one: object, other: object) -> Iterator[str]:
    if one != other:
        yield f"{name}: {one!r:.100} and {other!r:.100}"
