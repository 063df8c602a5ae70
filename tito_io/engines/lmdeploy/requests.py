"""Request bodies for LMDeploy's `/generate`, and what that route cannot do.

Facts are those of LMDeploy 0.18.0; paths are relative to its package. The route has no model name and no
seed (`serve/openai/protocol.py`, `GenerateReqInput`), and ignores keys that it does not know. What a request
leaves out comes from the model's `generation_config.json`, else from defaults that are not neutral:
temperature 0.8 and top_k 50 (`messages.py`, `GenerationConfig`). So every request states all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError
from tito_io.engines.http_engine import TurnAfterIds
from tito_io.engines.ids_server import Keys

GENERATE = "/generate"

NEUTRAL: Mapping[str, Any] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
}
"""Samplers that change nothing: an id is sampled from the model's own distribution."""
FIXED: Mapping[str, Any] = {
    "include_stop_str_in_output": True,  # or the stop token is left out of ids and counts
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
}
KEYS = Keys(
    known={
        *(NEUTRAL.keys() - {"temperature"}),
        *("ignore_eos", "repetition_ngram_size", "repetition_ngram_threshold"),
    },
    owned={
        *FIXED,
        *("image_data", "input_ids", "logprob_start_len", "max_tokens", "prompt", "return_logprob"),
        *("return_routed_experts", "seed", "session_id", "stop", "stop_token_ids", "stream", "temperature"),
        "top_logprobs_num",
    },
    unknown="/generate does not know it, and ignores such keys silently",
    lacks={
        "n": "a request of /generate is one turn; ask several times",
        "seed": "/generate takes none; leave it out",
        "stop": "it ends turns at single ids, and ignores a string that several ids spell; pass `stop_ids`",
    },
)
ROOM = 1 << 20
"""What to ask for where the context length is unknown: the engine cuts it to what is left of the context
(`pytorch/engine/engine.py`, `_add_message`). Without a number it samples 128 ids."""


def generation(turn: TurnAfterIds, stop_ids: Sequence[int], *, logprobs: bool) -> dict[str, Any]:
    """Return the body that requests a turn after ids.

    Where the caller names stop ids, those of the model's chat template are no longer used
    (`serve/core/async_engine.py`, `_determine_gen_config`): `stop_ids`, the folder's, go along.
    """
    sampling = turn.sampling
    KEYS.check("LMDeploy", sampling, streamed=turn.watch is not None)
    if sampling.extra.get("ignore_eos") and sampling.stop_ids:
        raise InputError("Sampling.stop_ids: ignore_eos ignores these as well; leave one of them out")
    body = {"input_ids": turn.ids, "max_tokens": turn.max_tokens or ROOM, "return_logprob": logprobs}
    body |= {**NEUTRAL, **FIXED, **sampling.extra}
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.stop_ids:
        body["stop_token_ids"] = sorted({*sampling.stop_ids, *stop_ids})
    return body
