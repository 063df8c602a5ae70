"""The LMDeploy adapter.

Ids go in and come out by `/generate`. LMDeploy's chat takes ids only without messages, and its completions
return none. It has no route that renders: messages are rendered and parsed in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tito_core import InputError
from tito_io.engines.http_engine import ServedModel, TurnAfterIds
from tito_io.engines.ids_server import IdsServer

from .replies import GenerateRequest
from .requests import GENERATE, generation


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
        """Return the body that requests a turn after ids."""
        return generation(turn, self.family.stop_ids, logprobs=self._logprobs)
