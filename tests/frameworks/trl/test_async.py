"""The worker of `AsyncGRPOTrainer`: its loop in this process, and its process with an engine over HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from inspect import signature
from typing import Any

import numpy as np
import pytest
from accelerate.state import PartialState
from trl.experimental.async_grpo import async_rollout_worker
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop

from tests.agents.loopback import listening
from tests.frameworks.sampler import Engine
from tito_io.embedded import app
from tito_io.integrations.trl_async import ToolRolloutLoop, ToolRolloutWorker

from .families import of
from .rollouts import Loop, arguments
from .training import Model


@pytest.fixture
def model(tokenizer: Any) -> Model:
    return of(tokenizer)


def test_results_name_their_calls_and_are_counted(tokenizer: Any) -> None:
    longest = 0
    for seed in range(30):
        loop = Loop(Engine(seed), **arguments(of(tokenizer)))
        messages, _, rows, calls, failures, reward = asyncio.run(loop.conversation())
        results = [message for message in messages if message["role"] == "tool"]
        called = [call["id"] for message in messages for call in message.get("tool_calls", [])]
        assert [result["tool_call_id"] for result in results] == called[: len(results)]
        assert (len(rows), len(results), calls, failures <= calls, reward) == (1, calls, calls, True, None)
        longest = max(longest, len(loop.engine.turns))
    assert longest >= 3


def test_trls_own_loop_does_not_take_every_template(model: Model) -> None:
    empty = dict.fromkeys(
        ["rollout_buffer", "model_version_value", "heartbeat_value", "failed_event", "exception_info_queue"]
    )
    with pytest.raises(ValueError, match="template"):
        _AsyncRolloutLoop(**arguments(model), **empty, metrics_queue=None)


def test_the_worker_samples_from_an_engine(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker starts its process, which asks for prompts and gets ids; only vLLM itself is missing."""
    PartialState()  # the trainer makes it; TRL's log needs it
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    with listening(app()) as address:
        options = {
            "num_generations": 2,
            "max_inflight_tasks": 2,
            "max_tokens": 200,
            "vllm_server_url": address,
        }
        worker = ToolRolloutWorker(queue_maxsize=8, **arguments(model, **options))
        worker.start()
        try:
            samples = [worker.rollout_buffer.get(timeout=120) for _ in range(12)]
        finally:
            worker.stop()
    groups = Counter(sample.group_id for sample in samples)
    assert max(groups.values()) == 2  # one row for each conversation: none was forked
    for sample in samples:
        trained = sample.completion_mask.astype(bool)
        assert len(sample.input_ids) == len(trained) == len(sample.old_log_probs)
        assert np.all(sample.old_log_probs[trained] < 0)
        assert not np.any(sample.old_log_probs[~trained])
    assert max(len(sample.completion) for sample in samples) >= 3


def test_the_worker_is_trls() -> None:
    assert issubclass(ToolRolloutWorker, AsyncRolloutWorker)
    assert ToolRolloutWorker._loop_cls is ToolRolloutLoop
    assert issubclass(ToolRolloutLoop, _AsyncRolloutLoop)
    taken = partial(signature, _AsyncRolloutLoop._generate_one)().parameters
    assert list(taken) == list(signature(ToolRolloutLoop._generate_one).parameters)
