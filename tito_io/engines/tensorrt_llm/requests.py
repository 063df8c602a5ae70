"""Request bodies for `/v1/completions` of `trtllm-serve`, and what that route cannot do.

Facts are those of `tensorrt_llm/serve` in TensorRT-LLM's repository (`openai_protocol.py` at commit
0076e93 and `openai_server.py` of 2026). The server refuses keys that it does not know, and its defaults
change nothing: temperature 1, top_p 1, top_k 0 (`CompletionRequest.to_sampling_params`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.ids_server import Keys
from tito_io.engines.openai_fields import sampling_keys

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


def completion(turn: TurnAfterIds, stop_ids: Sequence[int], *, logprobs: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids; the folder's `stop_ids` end it as well.

    Without `max_tokens` the server samples to the context's end (`executor/base_worker.py`).
    """
    sampling = turn.sampling
    KEYS.check("TensorRT-LLM", sampling, streamed=turn.watch is not None)
    keys = sampling_keys(sampling, turn.max_tokens, owned=())
    ends = {*sampling.stop_ids, *(() if sampling.extra.get("ignore_eos") else stop_ids)}
    body = {"model": turn.model.name, "prompt": turn.ids, **FIXED, **keys, **sampling.extra}
    body |= {"logprobs": 1} if logprobs else {}
    return {**body, "stop_token_ids": sorted(ends)} if ends else body
