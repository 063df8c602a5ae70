"""A `vllm.v1.engine.async_llm.AsyncLLM` as an engine."""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .awaited import AwaitedEngine
from .objects import check_object
from .turns import LocalTurn, Piece
from .vllm_object import VllmObject, pieces


class VllmAsync(VllmObject, AwaitedEngine):
    """An `AsyncLLM` (`vllm.AsyncLLMEngine`) in this process.

    The object belongs to the event loop in which it was used first, and turns are sampled there, whichever
    loop asks. Where that loop has ended, the object cannot answer: an `UnsupportedError`.

    Args:
        engine: The object. It is not closed.
        family: Renders messages and parses sampled ids.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.

    Attributes:
        name: `vllm-async`.
        keeps_ids: False: prompts go by ids.
        where: The object's method, as errors name it.
        extras: The keys that `Sampling.extra` may hold: parameters of `vllm.SamplingParams`.
        family: As it was passed.
        engine: The object.
        logprobs_mode: `raw` (the default of vLLM): log-probabilities of the model's own distribution;
            `processed`: of the one that was sampled from.

    Raises:
        InputError: `engine` is something else.
        UnsupportedError: The object reports logits in place of log-probabilities.
    """

    name: str = "vllm-async"
    where = "AsyncLLM.generate"

    def __init__(
        self, engine: Any, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        needed = ("model_config", "generate", "output_handler")
        check_object(engine, "engine", needed, "a vllm.AsyncLLMEngine", "VllmAsync")
        super().__init__(engine, family, output_format=output_format)
        self.engine = engine
        self._own: AbstractEventLoop | None = None

    async def _pieces(self, turn: LocalTurn) -> AsyncGenerator[Piece]:
        outputs = self.engine.generate(*self._request(turn), f"tito-{uuid4().hex}")
        async with aclosing(outputs):  # which aborts the request
            async for output in outputs:
                for piece in pieces(output):
                    yield piece

    def _loop(self) -> AbstractEventLoop:
        """Return the loop to which the object belongs; an unused one gets the caller's, or one of its own."""
        if self.engine.output_handler is not None:
            loop: AbstractEventLoop = self.engine.output_handler.get_loop()
            return loop
        try:
            return asyncio.get_running_loop()
        except RuntimeError:  # trio, in whose tasks the object cannot run
            self._own = self._own or asyncio.new_event_loop()
            return self._own
