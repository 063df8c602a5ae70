"""The TensorRT-LLM adapter.

Ids go in and come out by `/v1/completions` with `detokenize=false`. The server's chat takes ids
(`prompt_token_ids`) and returns none that were sampled, so that it is not used: messages are rendered and
parsed in this process.
"""

from __future__ import annotations

from typing import Any

from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.ids_server import IdsServer

from .replies import CompletionRequest
from .requests import COMPLETIONS, completion


class TensorRTLLM(IdsServer):
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
    route = COMPLETIONS
    request = CompletionRequest
    no_grammar = "whether it can depends on how it was started"

    def _body(self, turn: TurnAfterIds) -> dict[str, Any]:
        """Return the body that requests a turn after ids."""
        return completion(turn, self.family.stop_ids, logprobs=self._logprobs)
