"""The LMDeploy adapter.

Ids go in and come out by `/generate`. LMDeploy's chat takes ids only without messages, and its completions
return none. It has no route that renders: messages are rendered and parsed in this process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from tito_core import InputError
from tito_io.engines.family_engine import FamilyEngine
from tito_io.engines.grammar import check_unconstrained
from tito_io.engines.http_engine import Connection, ServedModel, TurnAfterIds
from tito_io.engines.protocol import Reply
from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.engines.replies.stop_tokens import may_stop
from tito_io.engines.turn_request import Question
from tito_io.families.family import Family

from .replies import GenerateRequest
from .requests import GENERATE, generation


class LMDeploy(FamilyEngine):
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

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the base model, which the server lists first (`serve/openai/utils.py`, `get_model_list`)."""
        found = super()._select(models) if self.model or not models else models[0]
        if found != models[0]:
            raise InputError(
                f"model: /generate of LMDeploy samples with {models[0].name} alone, and {self.model!r} is an "
                "adapter; merge it into the model, or leave the name out"
            )
        return found

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by `/generate`; the message is parsed here."""
        check_unconstrained(turn.sampling, "LMDeploy", "/generate takes no grammar")
        body = generation(turn, self.family.stop_ids, logprobs=self._logprobs)
        parser = await self.output_parser()
        watch = await parser.ready(turn.watch, turn.rendering, turn.ids)
        request = GenerateRequest(
            wire=self._wire,
            path=GENERATE,
            body=body,
            vocab_size=await self._vocabulary_size(),
            question=Question(turn.sampling, turn.ids),
            conversation=turn.sampling.conversation,
            decode=self.family.decode,
            stops=may_stop(self.family, turn.sampling.stop_ids),
            logprobs=self._logprobs,
        )
        reply = await self._send(request, watch, GENERATE)
        return await self._with_messages(reply, turn.rendering)
