"""Real processors of transformers, made from their configuration alone, in an environment of their own.

They are asked for with TITO_PROCESSORS=1; the environment is made once, outside the checkout.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.environment import Environment, cache
from tests.torchvision_operators import declare_operators

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.mark.xdist_group("processors")
def test_no_prompt_of_a_real_processor_is_wrong(say: Callable[[str], None]) -> None:
    if not os.environ.get("TITO_PROCESSORS"):
        pytest.skip("needs torch and transformers' image processors: ask for them with TITO_PROCESSORS=1")
    environment = Environment(cache() / "venv-processors", HERE / "requirements.txt")
    environment.ready(say)
    declare_operators(environment.packages())
    done = subprocess.run(
        [str(environment.python), "-m", "tests.processors"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    say(done.stdout.strip().rpartition("\n")[2])
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
