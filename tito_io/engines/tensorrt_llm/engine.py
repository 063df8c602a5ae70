"""The TensorRT-LLM adapter.

Ids go in and come out by `/v1/completions` with `detokenize=false`. The server's chat takes ids
(`prompt_token_ids`) and returns none that were sampled, so that it is not used: messages are rendered and
parsed in this process.
"""

from __future__ import annotations

from typing import Unpack

from tito_io.engines.family_engine import FamilyEngine
from tito_io.engines.grammar import check_unconstrained
from tito_io.engines.http_engine import Connection, TurnAfterIds
from tito_io.engines.protocol import Reply
from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.engines.replies.stop_tokens import may_stop
from tito_io.engines.turn_request import Question
from tito_io.families.family import Family

from .replies import CompletionRequest
from .requests import COMPLETIONS, completion


class TensorRTLLM(FamilyEngine):
    """TensorRT-LLM's server, `trtllm-serve`.

    Nothing is sent before a method is called. A server that returns no ids on `/v1/completions` is refused at
    its first answer. No route states the context length: without `Sampling.max_tokens` the server samples to
    its end. A closed connection ends a turn within a second.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:8000`; a trailing `/v1` is dropped.
        family: The model's folder: messages are rendered with it, and parsed from ids.
        logprobs: Whether to request log-probabilities. Default True.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        model: The model's name; may be left out.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; the folder's number where it is left out.
        transport: Replaces the network.

    Attributes:
        name: `tensorrt-llm`.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        family: The model's folder.
        vocab_size: As it was passed.
        title: TensorRT-LLM, for messages.

    Raises:
        InputError: `base_url` or `output_format` is invalid.
    """

    name: str = "tensorrt-llm"
    renders_as: str = "tensorrt-llm"
    title = "TensorRT-LLM"
    needs_max_tokens = False

    def __init__(
        self,
        base_url: str,
        *,
        family: Family,
        logprobs: bool = True,
        output_format: OutputFormat | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(base_url, family=family, output_format=output_format, **connection)
        self._logprobs = logprobs

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by `/v1/completions`; the message is parsed here."""
        check_unconstrained(turn.sampling, "TensorRT-LLM", "whether it can depends on how it was started")
        body = completion(turn, self.family.stop_ids, logprobs=self._logprobs)
        parser = await self.output_parser()
        watch = await parser.ready(turn.watch, turn.rendering, turn.ids)
        request = CompletionRequest(
            wire=self._wire,
            path=COMPLETIONS,
            body=body,
            vocab_size=await self._vocabulary_size(),
            question=Question(turn.sampling, turn.ids),
            conversation=turn.sampling.conversation,
            decode=self.family.decode,
            stops=may_stop(self.family, turn.sampling.stop_ids),
            logprobs=self._logprobs,
        )
        reply = await self._send(request, watch, COMPLETIONS)
        return await self._with_messages(reply, turn.rendering)
