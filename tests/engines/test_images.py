"""Conversations with images at a real engine that serves a small model with images.

Such a server is started by hand, and named by an environment variable: its address and the model's folder, as
in `TITO_ENGINES=vllm-vl TITO_VLLM_VL="http://127.0.0.1:8000 FOLDER"`. vLLM needs `--enable-scale-out`.
"""

from __future__ import annotations

import os

import pytest

from benchmarks.images import measured
from tests.engines.conftest import asked_for
from tito_io.families import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]
CONVERSATIONS, TURNS = 4, 6


@pytest.fixture
def anyio_backend() -> str:
    """Run on one event loop."""
    return "asyncio"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_images_go_by_ids_over_all_turns(engine: str) -> None:
    asked_for(f"{engine}-vl")
    address, _, folder = os.environ[f"TITO_{engine.upper()}_VL"].partition(" ")
    found = await measured(engine, address, Family.load(folder), CONVERSATIONS, TURNS, by_ids=True)
    assert found.turns == found.image_turns == CONVERSATIONS * TURNS
    # The model is random: it may sample a placeholder, or an odd stop.
    assert set(found.refusals) <= {"PLACEHOLDERS", "ODD_STOP", "MULTIMODAL"}
    if not found.refusals:
        assert found.routes == {"RENDERED": CONVERSATIONS, "TITO": found.turns - CONVERSATIONS}
        assert engine != "vllm" or found.notices["media-sent"] == len(found.images)
    assert found.kept >= found.routes["TITO"] > 0
    assert found.moved == 0
    assert found.without_logprobs == 0
