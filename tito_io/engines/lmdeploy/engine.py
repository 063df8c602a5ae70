"""The LMDeploy adapter.

Ids go in and come out by `/generate`. LMDeploy's chat takes ids only without messages, and its completions
return none. It has no route that renders: messages are rendered and parsed in this process.

Facts are those of LMDeploy 0.18.0; paths are relative to its package. The route has no model name and no
seed (`serve/openai/protocol.py`, `GenerateReqInput`), and ignores keys that it does not know. What a request
leaves out comes from the model's `generation_config.json`, else from defaults that are not neutral:
temperature 0.8 and top_k 50 (`messages.py`, `GenerationConfig`). So every request states all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError
from tito_io.engines.http_engine import ServedModel, TurnAfterIds
from tito_io.engines.ids_server import IdsServer, Keys

from .replies import GenerateRequest

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


class LMDeploy(IdsServer):
    """LMDeploy's server, `lmdeploy serve api_server`, from 0.18 on.

    Nothing is sent before a method is called. A turn is sampled from the model's own distribution: samplers
    that `Sampling` leaves out are sent as neutral, whatever the server's own defaults are. The PyTorch engine
    has log-probabilities only if it was started with `--logprobs-mode raw_logprobs`; with `raw_logits` it
    sends logits under the same name, which nothing in its answers tells apart.

    No route states the context length: without `Sampling.max_tokens` the server samples to its end.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:23333`; a trailing `/v1` is dropped.
        family: The model's folder: messages are rendered with it, and parsed from ids.
        logprobs: Whether to request log-probabilities. Default True.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        model: The model's name; may be left out. `/generate` takes none, so that a LoRA adapter cannot be
            chosen.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; the folder's number where it is left out.
        transport: Replaces the network.

    Attributes:
        name: `lmdeploy`.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        family: The model's folder.
        vocab_size: As it was passed.
        title: LMDeploy, for messages.

    Raises:
        InputError: `base_url` or `output_format` is invalid.
    """

    name: str = "lmdeploy"
    renders_as: str = "lmdeploy"
    title = "LMDeploy"
    route = GENERATE
    keys = KEYS
    request = GenerateRequest
    no_grammar = "/generate takes no grammar"

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the base model, which the server lists first (`serve/openai/utils.py`, `get_model_list`)."""
        found = super()._select(models) if self.model or not models else models[0]
        if found != models[0]:
            raise InputError(
                f"model: /generate of LMDeploy samples with {models[0].name} alone, and {self.model!r} is an "
                "adapter; merge it into the model, or leave the name out"
            )
        return found

    def _body(self, turn: TurnAfterIds) -> dict[str, Any]:
        """Return the body that requests a turn after ids.

        Where the caller names stop ids, those of the model's chat template are no longer used
        (`serve/core/async_engine.py`, `_determine_gen_config`): the folder's go along.
        """
        sampling = turn.sampling
        if sampling.extra.get("ignore_eos") and sampling.stop_ids:
            raise InputError("Sampling.stop_ids: ignore_eos ignores these as well; leave one of them out")
        body = {
            "input_ids": turn.ids,
            "max_tokens": turn.max_tokens or ROOM,
            "return_logprob": self._logprobs,
        }
        body |= {**NEUTRAL, **FIXED, **sampling.extra}
        if sampling.temperature is not None:
            body["temperature"] = sampling.temperature
        if sampling.stop_ids:
            body["stop_token_ids"] = sorted({*sampling.stop_ids, *self.family.stop_ids})
        return body
