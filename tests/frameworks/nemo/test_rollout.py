"""A rollout of NeMo Gym as a training row, and back."""

from __future__ import annotations

from typing import Any

from tests.frameworks.nemo.rollouts import ChatServer, rolled_out
from tests.frameworks.nemo.trainer import trained_sequence
from tests.frameworks.sampler import Engine
from tito_core.samples import Forest, make_rows
from tito_io.integrations.nemo import ServerPrompts
from tito_io.integrations.nemo_gym import output_items, response_calls


def test_the_rollout_is_one_row_with_the_mask_of_the_trainer(tokenizer: Any) -> None:
    turns, _ = rolled_out(ChatServer(tokenizer, ServerPrompts(), Engine(1)), 4)
    (row,) = make_rows(Forest.of(response_calls({"response": {"output": turns}, "reward": 1.0}))).rows
    found = trained_sequence(turns)
    assert (row.ids.tolist(), list(row.loss_mask), row.reward) == (found.ids, found.mask, 1.0)
    assert trained_sequence(output_items(row)) == found
