"""Conversations with images at real engines that serve tiny models with images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.image_rows import compared, write_rows
from benchmarks.images import measured
from tests.engines.conftest import asked_for
from tests.engines.server import Server
from tests.engines.vision import environment, vision_server
from tito_io.families import Family

pytestmark = [pytest.mark.engine, pytest.mark.anyio]
CONVERSATIONS, TURNS = 6, 7
MODELS = (
    ("vllm", "qwen3-vl"),
    ("vllm", "smolvlm"),  # an image's ids are not all the same
    ("vllm", "gemma3"),  # an image's text merges with the ids beside it
    ("sglang", "qwen2.5-vl"),
)


@pytest.fixture(scope="module", params=MODELS, ids="-".join)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]
) -> Iterator[tuple[str, str, Server]]:
    """Lend an engine that serves a model, with the names of both."""
    engine, kind = request.param
    asked_for(f"{engine}-vl")
    with vision_server(engine, kind, say, tmp_path_factory.mktemp(engine) / "log") as server:
        yield engine, kind, server


async def test_images_go_by_ids_over_all_turns(
    served: tuple[str, str, Server], tmp_path: Path, say: Callable[[str], None]
) -> None:
    engine, kind, server = served
    family = Family.load(server.family)
    found = await measured(engine, server.base_url, family, CONVERSATIONS, TURNS, by_ids=True)
    other = await measured(engine, server.base_url, family, CONVERSATIONS, TURNS, by_ids=False)
    assert found.turns == found.image_turns == 27
    # The model is random: it may sample a placeholder, or an odd stop.
    assert set(found.refusals) <= {"PLACEHOLDERS", "ODD_STOP", "MULTIMODAL"}
    if not found.refusals:
        assert found.routes == {"RENDERED": CONVERSATIONS, "TITO": found.turns - CONVERSATIONS}
        assert engine != "vllm" or found.notices["media-sent"] == len(found.images)
    assert found.kept >= found.routes["TITO"] > 0
    assert (found.moved, found.expanded_twice, found.failed, found.without_logprobs) == (0, 0, 0, 0)
    assert found.same_first_prompts(other) == CONVERSATIONS
    if kind == "qwen3-vl":  # the only one of these whose tiny model engine and transformers compute alike
        rows = tmp_path / "rows.jsonl"
        write_rows(rows, found.conversations)
        difference = compared(environment(say).python, server.family, rows)
        assert difference["ids"] > 0
        assert difference["largest"] < 2e-5
