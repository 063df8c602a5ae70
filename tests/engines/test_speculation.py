"""A real vLLM that drafts by n-grams: accepted drafts have the values of a pass, and no id is past a stop.

Greedy alone: without Triton, vLLM 0.32 does not finish a turn at another temperature within minutes on a CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.engines.conftest import asked_for
from tests.engines.server import Server
from tests.engines.vllm import vllm
from tito_io.engines.protocol import Sampling
from tito_io.engines.scores import score
from tito_io.engines.speculation import noted, zero_logprobs
from tito_io.engines.vllm import VLLM

pytestmark = pytest.mark.engine
DRAFTS = (
    '--speculative-config={"method": "ngram", "num_speculative_tokens": 3, '
    '"prompt_lookup_max": 3, "prompt_lookup_min": 1}'
)
PROMPT = [40, 41, 42] * 20
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"


def test_values_of_accepted_drafts_are_those_of_a_pass(tmp_path: Path, say: Callable[[str], None]) -> None:
    asked_for("vllm-more")
    with vllm(say, tmp_path / "vllm.log", DRAFTS) as server:
        anyio.run(drafted, server)


async def drafted(server: Server) -> None:
    """Compare each value with a pass; end a turn at a string that a draft may run over."""
    async with VLLM(server.base_url) as engine:
        sampling = Sampling(max_tokens=200, temperature=0.0, extra={"ignore_eos": True})
        reply = await engine.from_ids(PROMPT, sampling)
        values = await score(engine, [*PROMPT, *reply.completion_ids], len(PROMPT))
        pairs = zip(reply.logprobs or (), values, strict=True)
        assert max(abs((a or 0.0) - (b or 0.0)) for a, b in pairs) < 1e-4
        assert zero_logprobs(reply) == 0
        stop = next(word for word in reply.text.split()[5:] if word.isascii() and len(word) > 2)
        ended = await engine.from_ids(PROMPT, Sampling(max_tokens=200, temperature=0.0, stop=(stop,)))
        assert ended.stop_reason == stop
        assert (await noted(engine, ended, sampling)).notices == ()
    metrics = httpx2.get(f"{server.base_url}/metrics", trust_env=False).text
    (accepted,) = (line for line in metrics.splitlines() if line.startswith(ACCEPTED))
    assert float(accepted.rpartition(" ")[2]) > 0
