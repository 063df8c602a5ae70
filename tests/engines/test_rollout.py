"""A whole rollout on a real engine: what it echoes is what was sent, and nothing sampled is lost."""

from __future__ import annotations

from itertools import pairwise

import anyio
from click.testing import CliRunner

from tito_core import OddStop, Policy
from tito_io.cli.group import tito
from tito_io.client.conversation import Conversation
from tito_io.engines.protocol import Rendering, Sampling
from tito_io.engines.vllm import VLLM
from tito_io.rollout.run import Rollout
from tito_io.rollout.script import Script, ScriptLine, default_script

from .server import Server

TURNS = 55
TERSE = Script(
    lines=(ScriptLine("On?"), ScriptLine("So?", "7"), ScriptLine("Ha.")),
    system="Be brief.",
    tools=default_script().tools[:1],
)
"""Fifty turns of it fit a context of two thousand tokens."""


async def _rolled(server: Server) -> Rollout:
    engine = VLLM(server.base_url, model=server.model)
    conversation = Conversation(
        engine=engine,
        rendering=Rendering(tools=TERSE.tools),
        sampling=Sampling(max_tokens=8, temperature=1.0, seed=5),
        policy=Policy(odd_stop=OddStop.KEEP),
    )
    run = Rollout(conversation, TERSE, TURNS)
    async for _ in run.run():
        pass
    await engine.aclose()
    return run


def test_fifty_turns_on_a_real_vllm_keep_every_sampled_id(vllm_server: Server) -> None:
    run = anyio.run(_rolled, vllm_server)
    steps = list(run.conversation.trajectory)
    summary = run.summary()
    assert len(steps) == TURNS
    assert summary.whole
    assert summary.routes["TITO"] == TURNS - 1
    assert summary.drift_ids
    for before, after in pairwise(steps):
        assert after.prompt_ids.tolist()[: len(before.ids)] == before.ids.tolist()


def test_the_bridge_is_the_tail_of_the_engines_own_rendering(vllm_server: Server) -> None:
    """Rendered here from the model's folder, or there by the engine: the same ids follow every turn."""
    local, remote = (_summary(vllm_server, *extra) for extra in (("--family", str(vllm_server.family)), ()))
    assert local == remote


def _summary(server: Server, *extra: str) -> str:
    options = ("--engine", "vllm", "--base-url", server.base_url, "--turns", "12", "--max-tokens", "24")
    result = CliRunner().invoke(tito, ["rollout", *options, "--json", *extra])
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()[-1]
