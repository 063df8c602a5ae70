"""MLX's Python packages on the CPU."""

from __future__ import annotations

from pathlib import Path

from tests.environment import Environment, Say, cache

HERE = Path(__file__).parent
SETTINGS = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "OMP_NUM_THREADS": "1"}


def environment(say: Say) -> Environment:
    """Return MLX's environment, made where it is not there yet."""
    found = Environment(cache() / "venv-mlx", HERE / "requirements-mlx.txt")
    found.ready(say)
    return found
