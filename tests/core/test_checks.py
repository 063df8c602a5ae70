"""Wrong types are named with the field, and with what to give instead."""

from __future__ import annotations

from enum import Enum
from typing import Any

import attrs
import pytest

from tito_core import InputError
from tito_core.checks import is_a, require


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@attrs.frozen
class Paint:
    colour: Colour = attrs.field(validator=is_a(Colour))
    layers: int | None = attrs.field(default=None, validator=is_a(int, type(None)))


@pytest.mark.parametrize("layers", [None, 0, 3])
def test_a_value_of_the_right_type_is_accepted(layers: int | None) -> None:
    assert Paint(Colour.RED, layers).layers == layers
    require(layers, (int, type(None)), "layers", "a number")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (("red",), "^colour is 'red': give Colour.RED or Colour.BLUE$"),
        ((Colour.RED, "3"), "^layers is '3': give int or NoneType$"),
        ((Colour.RED, "x" * 58), "^layers is 'x{58}': give"),
        ((Colour.RED, "x" * 99), r"^layers is 'x{56}\.\.\.: give"),
    ],
)
def test_a_value_of_another_type_is_named(wrong: tuple[Any, ...], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Paint(*wrong)
