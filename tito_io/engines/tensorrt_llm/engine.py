"""The TensorRT-LLM adapter.

Ids go in and come out by `/v1/completions` with `detokenize=false`. The server's chat takes ids
(`prompt_token_ids`) and returns none that were sampled, so that it is not used: messages are rendered and
parsed in this process.

Facts are those of `tensorrt_llm/serve` in TensorRT-LLM's repository (`openai_protocol.py` at commit
0076e93 and `openai_server.py` of 2026). The server refuses keys that it does not know, and its defaults
change nothing: temperature 1, top_p 1, top_k 0 (`CompletionRequest.to_sampling_params`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.ids_server import IdsServer, Keys
from tito_io.engines.openai_fields import sampling_keys

from .replies import CompletionRequest

COMPLETIONS = "/v1/completions"

FIXED: Mapping[str, Any] = {
    "detokenize": False,  # ids come in place of text
    "include_stop_str_in_output": True,  # or the ids of a stop are cut off (`executor/result.py`)
}
KEYS = Keys(
    known={
        *("conversation_params", "frequency_penalty", "ignore_eos", "logit_bias", "min_p", "min_tokens"),
        *("presence_penalty", "priority", "prompt_ignore_length", "repetition_penalty"),
        *("thinking_token_budget", "top_k", "top_p", "top_p_min"),
    },
    owned={
        *FIXED,
        *("add_special_tokens", "best_of", "disaggregated_params", "echo", "logprobs", "lora_request"),
        *("max_tokens", "model", "n", "prompt", "return_context_logits", "seed", "skip_special_tokens"),
        *("stop", "stop_token_ids", "stream", "stream_options", "suffix", "temperature"),
        *("truncate_prompt_tokens", "use_beam_search"),
    },
    unknown="the server refuses keys like this",
    lacks={
        "stop": "where it returns ids it looks for the ids of a string, and misses other ids that spell it; "
        "pass `stop_ids`"
    },
    lacks_streamed={"n": "its streams repeat ids of turns that stand still; ask without `watch`"},
)


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
    keys = KEYS
    request = CompletionRequest
    no_grammar = "whether it can depends on how it was started"

    def _body(self, turn: TurnAfterIds) -> dict[str, Any]:
        """Return the body that requests a turn after ids; the folder's stop ids end it as well.

        Without `max_tokens` the server samples to the context's end (`executor/base_worker.py`).
        """
        sampling = turn.sampling
        keys = sampling_keys(sampling, turn.max_tokens, owned=())
        own = () if sampling.extra.get("ignore_eos") else self.family.stop_ids
        body = {"model": turn.model.name, "prompt": turn.ids, **FIXED, **keys, **sampling.extra}
        body |= {"logprobs": 1} if self._logprobs else {}
        ends = {*sampling.stop_ids, *own}
        return {**body, "stop_token_ids": sorted(ends)} if ends else body
