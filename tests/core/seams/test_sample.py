"""A sample is of the kind and the shape that it stands for."""

from __future__ import annotations

import pytest

from tito_core.seams.case import TurnKind, shape_of
from tito_core.seams.probe import kinds
from tito_core.seams.sample import sample_environment, sample_turn

USUAL = [(kind, shape) for kind, shape in kinds()]
UNUSUAL = (("user:empty", "assistant+"), ("user:[image.text]+", "system:[text.text]"), ("user:[video]",))


@pytest.mark.parametrize("many", [2, 3])
def test_a_sample_is_of_the_kind_and_the_shape_that_it_stands_for(many: int) -> None:
    for kind, shape in [*USUAL, *((USUAL[0][0], shape) for shape in UNUSUAL)]:
        turn = sample_turn(kind, ["find"] * (many if kind.calls > 1 else kind.calls))
        environment = sample_environment(shape, turn, many, "Well")
        assert TurnKind.of(turn, kind.before) == kind
        assert shape_of(environment, turn) == shape
