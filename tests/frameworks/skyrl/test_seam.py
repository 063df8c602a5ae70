"""Where the integration goes into SkyRL."""

from __future__ import annotations

from inspect import getsource, signature

import pytest
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator, TurnOutput

from tito_io.integrations.skyrl import SEAMS, BridgeGenerator

METHODS = {seam.rpartition(".")[2]: taken for seam, taken in SEAMS.items()}


@pytest.mark.parametrize("name", METHODS)
def test_the_methods_have_their_arguments(name: str) -> None:
    assert tuple(signature(getattr(BridgeGenerator, name)).parameters) == ("self", *(METHODS[name] or ()))


def test_the_loop_calls_them_in_this_order() -> None:
    source = getsource(SkyRLGymGenerator.agent_loop)
    places = [source.index(f"self.{name}(") for name in METHODS]
    assert places == sorted(places)


def test_a_turn_has_what_is_used() -> None:
    assert {"output", "output_ids", "new_obs", "obs_ids"} <= set(signature(TurnOutput).parameters)
