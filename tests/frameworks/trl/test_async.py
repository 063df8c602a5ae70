"""The worker of `AsyncGRPOTrainer`: its loop in this process, and its process with an engine over HTTP."""

from __future__ import annotations

import multiprocessing
import queue
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvicorn
from accelerate.state import PartialState
from datasets import Dataset
from trl.experimental.async_grpo import async_rollout_worker
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, _AsyncRolloutLoop

from tito_io.embedded import MODEL, Sampler, SamplingSettings, app, generate
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.trl_async import ToolRolloutLoop, ToolRolloutWorker

from .families import RESPONSE, own
from .training import QUESTION, Model, multiply

COUNT = 30


def rewarded(completions: list[Any], **_: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    model = own(tmp_path)
    model.tokenizer.response_template = RESPONSE
    return model


def arguments(model: Model, **given: Any) -> dict[str, Any]:
    return {
        "model_name": MODEL,
        "dataset": Dataset.from_list([{"prompt": [QUESTION]}]),
        "reward_funcs": [rewarded],
        "processing_class": model.tokenizer,
        "eos_token_ids": list(model.stops),
        "tools": [multiply],
        **given,
    }


class Sampled(ToolRolloutLoop):
    """The loop with a sampler in the place of HTTP.

    Attributes:
        turns: Prompt, ids and log-probabilities of each turn.
    """

    def __init__(self, **given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(
            rollout_buffer=queue.Queue(),
            model_version_value=context.Value("i", 0),
            heartbeat_value=context.Value("d", 0.0),
            failed_event=context.Event(),
            exception_info_queue=queue.Queue(),
            metrics_queue=queue.Queue(),
            **given,
        )
        self.turns: list[tuple[list[int], list[int], list[float]]] = []
        self.number = 0

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        self.number += 1
        steps = generate(Sampler(self.number), prompt_ids, SamplingSettings(max_tokens=300)).steps
        self.turns.append((prompt_ids, [step.id for step in steps], [step.logprob for step in steps]))
        return self.turns[-1][1], self.turns[-1][2]

    def conversation(self) -> Any:
        """Sample one conversation."""
        self.turns.clear()
        return self._loop.run_until_complete(
            self._generate_one([QUESTION], {"multiply": multiply}, [multiply])
        )


Looped = Callable[..., Sampled]


@pytest.fixture
def looped(model: Model) -> Iterator[Looped]:
    """Return a function that makes loops, which are closed after the test."""
    with ExitStack() as stack:

        def start(**given: Any) -> Sampled:
            loop = Sampled(**arguments(model, **given))
            stack.callback(loop._loop.close)
            return loop

        yield start


def test_each_conversation_is_one_row_of_what_was_sampled(looped: Looped) -> None:
    loop, longest = looped(), 0
    for _ in range(COUNT):
        messages, ids, rows, calls, failures, reward = loop.conversation()
        (row,) = rows
        expected: list[int] = []
        mask: list[int] = []
        logprobs: list[float] = []
        for prompt, sampled, values in loop.turns:
            assert prompt[: len(expected)] == expected
            added = len(prompt) - len(expected)
            mask += [0] * added + [1] * len(sampled)
            logprobs += [0.0] * added + values
            expected = prompt + sampled
        assert (row.input_ids, row.completion_mask, row.old_log_probs) == (expected, mask, logprobs)
        assert ids == [one for _, sampled, _ in loop.turns for one in sampled]
        results = [message for message in messages if message["role"] == "tool"]
        called = [call["id"] for message in messages for call in message.get("tool_calls", [])]
        assert [result["tool_call_id"] for result in results] == called[: len(results)]
        assert (len(results), calls, failures <= calls, reward) == (calls, calls, True, None)
        longest = max(longest, len(loop.turns))
    assert longest >= 3
    assert not loop.prompts.refused


def test_the_models_own_template_is_used(model: Model, looped: Looped) -> None:
    loop = looped()
    loop.conversation()
    rendered = model.tokenizer.apply_chat_template([QUESTION], tools=[multiply], add_generation_prompt=True)
    assert loop.turns[0][0] == rendered["input_ids"]


def test_trls_own_loop_does_not_take_every_template(model: Model) -> None:
    empty = dict.fromkeys(
        ["rollout_buffer", "model_version_value", "heartbeat_value", "failed_event", "exception_info_queue"]
    )
    with pytest.raises(ValueError, match="template"):
        _AsyncRolloutLoop(**arguments(model), **empty, metrics_queue=None)


def test_turns_are_limited(looped: Looped) -> None:
    loop = looped(max_tool_calling_iterations=1)
    lengths = []
    for _ in range(COUNT):
        loop.conversation()
        lengths.append(len(loop.turns))
    assert set(lengths) == {1, 2}


def calling(loop: Sampled) -> Any:
    """Sample conversations until one calls a tool."""
    for _ in range(COUNT):
        found = loop.conversation()
        if found[3]:
            return found
    raise AssertionError("no conversation has called a tool")


def reject_bridges(model: Model) -> None:
    """Give the tokenizer a template that rejects the short conversations which a bridge asks for."""
    model.tokenizer.chat_template = (
        "{%- if messages[0].content != '"
        + QUESTION["content"]
        + "' -%}{{ raise_exception('no') }}{%- endif -%}"
        + model.tokenizer.chat_template
    )


def test_after_a_refusal_messages_are_rendered(model: Model, looped: Looped) -> None:
    reject_bridges(model)
    loop = looped()
    messages, *_ = calling(loop)
    assert loop.prompts.refused["TEMPLATE_REFUSED"] > 0
    assert len(loop.turns) > 1
    history = [QUESTION, *messages[:-1]]
    rendered = model.tokenizer.apply_chat_template(history, tools=[multiply], add_generation_prompt=True)
    assert loop.turns[-1][0] == rendered["input_ids"]


def test_a_refusal_may_end_a_conversation(model: Model, looped: Looped) -> None:
    reject_bridges(model)
    loop = looped(on_refusal="end")
    messages, ids, rows, *_ = calling(loop)
    assert [message["role"] for message in messages] == ["assistant"]
    assert len(loop.turns) == 1
    assert rows[0].input_ids == loop.turns[0][0] + ids


def test_a_refusal_may_raise(model: Model, looped: Looped) -> None:
    reject_bridges(model)
    with pytest.raises(RefusedError):
        calling(looped(on_refusal="raise"))


@contextmanager
def engine() -> Iterator[str]:
    """Serve the embedded engine, and return its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app(), port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()


def test_the_worker_samples_from_an_engine(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker starts its process, which asks for prompts and gets ids; only vLLM itself is missing."""
    PartialState()  # the trainer makes it; TRL's log needs it
    monkeypatch.setattr(async_rollout_worker, "is_vllm_available", lambda: True)
    with engine() as address:
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
