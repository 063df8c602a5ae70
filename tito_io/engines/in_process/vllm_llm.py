"""A `vllm.LLM` as an engine."""

from __future__ import annotations

from functools import partial
from typing import Any

from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .base import Cancel
from .mailbox import Mailbox
from .objects import check_object
from .stepper import Job, Stepper
from .turns import LocalTurn, Piece
from .vllm_object import VllmObject, pieces


class VllmLLM(VllmObject):
    """A `vllm.LLM` in this process.

    Its engine is stepped in one thread, as `LLM.generate` steps it. So turns of several conversations are
    sampled as one batch, a turn can be streamed, and a cancelled one is given up at once. While turns are
    sampled the object must not be used otherwise; between them (weight updates, `sleep`, `generate`) it may.

    Args:
        llm: The object. It is not closed.
        family: Renders messages and parses sampled ids.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.

    Attributes:
        name: `vllm-llm`.
        keeps_ids: False: prompts go by ids.
        where: The object's method, as errors name it.
        extras: The keys that `Sampling.extra` may hold: parameters of `vllm.SamplingParams`.
        family: As it was passed.
        llm: The object.
        logprobs_mode: `raw` (the default of vLLM): log-probabilities of the model's own distribution;
            `processed`: of the one that was sampled from.

    Raises:
        InputError: `llm` is something else.
        UnsupportedError: The object reports logits in place of log-probabilities.
    """

    name: str = "vllm-llm"
    where = "vllm.LLM.generate"

    def __init__(
        self, llm: Any, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        check_object(llm, "llm", ("llm_engine",), "a vllm.LLM", "VllmLLM")
        super().__init__(llm.llm_engine, family, output_format=output_format)
        self.llm = llm
        self._stepper = Stepper(llm.llm_engine, pieces)

    def _start(self, turn: LocalTurn, pieces: Mailbox[Piece]) -> Cancel:
        job = Job(*self._request(turn), pieces)
        self._stepper.start(job)
        return partial(self._stepper.drop, job)
