"""Hypothesis strategies: messages, conversations, sampled ids, rollouts and stored calls.

They need hypothesis, which `pip install 'tito-kernel[testing]'` installs.
"""

try:
    import hypothesis as _hypothesis  # noqa: F401  # only to say what to install
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "hypothesis is missing: tito_core.testing.strategies needs it;"
        " install it with `pip install 'tito-kernel[testing]'` or `pip install hypothesis`",
        name="hypothesis",
    ) from error

from .json_value import json_messages
from .message import conversations, messages
from .respelling import echoes, edited_histories, renamed_call_ids
from .rollout import Rollout, RolloutTurn, rollouts
from .sampled import tokenizations
from .stitch_input import StitchInput, stitch_inputs, tidy_stitch_inputs
from .stored_call import sample_options, stored_calls
from .trajectory import trajectories

__all__ = [
    "Rollout",
    "RolloutTurn",
    "StitchInput",
    "conversations",
    "echoes",
    "edited_histories",
    "json_messages",
    "messages",
    "renamed_call_ids",
    "rollouts",
    "sample_options",
    "stitch_inputs",
    "stored_calls",
    "tidy_stitch_inputs",
    "tokenizations",
    "trajectories",
]
