"""One training step with tools, with Unsloth or without; prints prompts, trained ids and losses as JSON.

python -m tests.frameworks.unsloth.step FOLDER [unsloth]
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

if "unsloth" in sys.argv[2:]:
    import unsloth  # noqa: F401  # before TRL

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch

from tests.frameworks.trl.families import own
from tests.frameworks.trl.training import Engine, multiply, train
from tito_io.integrations.trl import ToolRollout


def step(folder: Path) -> dict[str, object]:
    """Return prompts, trained ids, the loss and a sum over the weights after one step."""
    torch.manual_seed(7)
    model = own(folder)
    replies = [
        [model.calling(3, 4), model.calling(12, 4), model.answering()],
        [model.calling(5, 5), model.answering("25")],
    ]
    engine = Engine(replies, model.tokenizer.pad_token_id)
    seen = train(model, engine, folder, rollout_func=ToolRollout([multiply], parse=model.parse))
    weights = sum(float(one.detach().double().abs().sum()) for one in seen.trainer.model.parameters())
    return {
        "prompts": engine.prompts,
        "trained": seen.sampled(),
        "losses": seen.losses,
        "weights": weights,
        "changed": seen.changed,
    }


if __name__ == "__main__":
    print(json.dumps(step(Path(sys.argv[1]))))  # noqa: T201  # it is a command
