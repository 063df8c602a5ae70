"""Check a reward that is sent with a request for a session's samples."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from tito_core import InputError


def check_reward(metadata: Mapping[str, object]) -> None:
    """Raise `InputError` unless `metadata` has a reward that trainers can read, or none.

    A reward is a finite number, or null without one. An object holds several: Miles trains with the one that
    its option `reward_key` names (`Sample.get_reward_value` in `miles/utils/types.py`).

    >>> check_reward({"reward": 0.5}), check_reward({"reward": {"score": 1}}), check_reward({})
    (None, None, None)
    >>> check_reward({"reward": "1.0"})
    Traceback (most recent call last):
    tito_core.errors.InputError: metadata.reward is '1.0': give a finite number, an object of them, or null
    """
    value = metadata.get("reward")
    if value is None or isinstance(value, Mapping):
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise InputError(
            f"metadata.reward is {value!r:.60}: give a finite number, an object of them, or null"
        )
