"""Check that an argument is a whole number: Python takes True for 1, and 2.5 for a count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from tito_core import InputError


def check_whole(value: object, name: str, least: int, expected: str) -> None:
    """Raise `InputError` unless `value` is a whole number of at least `least`.

    Args:
        value: What was given.
        name: The argument, as the error names it.
        least: The least number.
        expected: What to give, as the error says it.

    >>> check_whole(True, "check_every", 0, "a number of turns")
    Traceback (most recent call last):
    tito_core.errors.InputError: check_every is True: give a number of turns
    """
    if type(value) is not int or value < least:
        raise InputError(f"{name} is {value!r:.60}: give {expected}")


def whole(least: int, expected: str) -> Callable[[object, attrs.Attribute[Any], object], None]:
    """Return an attrs validator that takes whole numbers of at least `least`; the error says what to give.

    >>> turns = attrs.make_class("Turns", {"n": attrs.field(validator=whole(1, "a number of turns"))})
    >>> turns(0)
    Traceback (most recent call last):
    tito_core.errors.InputError: n is 0: give a number of turns
    """

    def validate(_: object, field: attrs.Attribute[Any], value: object) -> None:
        check_whole(value, field.name, least, expected)

    return validate


TURNS_BETWEEN_CHECKS = whole(0, "a whole number of turns, 0 for never")
"""Checks `check_every` of whatever compares bridges with whole renders."""
