"""vLLM's requests for a turn: how an answer, whole or streamed, is read by the shape of its route."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import attrs

from tito_io.engines.media import checked_reply
from tito_io.engines.protocol import Delta, InvalidReplyError, PromptMedium, Reply
from tito_io.engines.replies.chunks import choice_text
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.sampling_mask import sampling_mask
from tito_io.engines.replies.shapes import Logprobs, Shape, settled
from tito_io.engines.turn_request import (
    ChunkStream,
    Question,
    ReplyPart,
    TurnRequest,
    chunk_choices,
    partial_reply,
)

from .media import ranges
from .replies import read


@attrs.define
class VllmStream(ChunkStream):
    """A stream of one of vLLM's routes; without an echo of the prompt, log-probabilities name the ids."""

    shape: Shape = attrs.field(kw_only=True)
    echo: bool = attrs.field(kw_only=True)
    masks: bool = attrs.field(kw_only=True, default=False)

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add a chunk; return what each of its choices brings."""
        choices = [
            settled(choice if self.echo else self.shape.identified(choice))
            for choice in chunk_choices(check, event)
        ]
        # Deltas come first: they check types on which joining relies.
        deltas = []
        for choice in choices:
            ids = check.ids(choice, "token_ids") if choice.get("token_ids") is not None else ()
            known = ids and choice.get("logprobs") is not None
            logprobs = self.shape.logprobs(check, choice, ids) if known else None
            mask = sampling_mask(check, choice.get("sampling_mask"), ids) if self.masks else None
            text, index = choice_text(choice), choice.get("index", 0)
            deltas.append(Delta(ids=ids, logprobs=logprobs, sampling_mask=mask, text=text, index=index))
        self.join(check, {**event, "choices": choices})
        return deltas


@attrs.frozen(kw_only=True)
class VllmRequest(TurnRequest):
    """One request for a turn; with `media`, the prompt's ids are repeated as the engine expanded them."""

    shape: Shape
    question: Question
    media: tuple[PromptMedium, ...] = ()

    def read(self, check: Check, body: Any) -> Reply:
        """Return the reply that a whole answer holds."""
        reply = read(check, body, self.shape, self.question)
        if not self.media:
            return reply
        try:
            found = ranges(check, body)
        except InvalidReplyError as error:
            error.partial = reply
            raise
        return checked_reply(check, reply, self.body["token_ids"], self.media, found)

    def open_stream(self) -> VllmStream:
        """Return what puts a streamed answer together."""
        masks = self.question.sampling.sampling_masks
        return VllmStream(shape=self.shape, echo=self.question.echo, masks=masks)

    def partial(self, check: Check, body: Any) -> Reply | None:
        """Return what was received of a turn when its stream broke."""
        choices = body["choices"]
        prompt: Sequence[int] | None = self.question.sent
        if prompt is None:
            holder = choices[0] if self.shape.ids_in_choice and choices else body
            prompt = tuple(holder.get("prompt_token_ids") or ())
        parts = []
        for choice in choices:
            ids = tuple(choice.get("token_ids") or ())
            logprobs: Logprobs = ()
            with suppress(InvalidReplyError):
                logprobs = self.shape.logprobs(check, choice, ids)
            kept = choice.get("sampling_mask") if self.question.sampling.sampling_masks else None
            parts.append(ReplyPart(ids, logprobs, choice_text(choice), kept=kept).ended(choice))
        return partial_reply(check, prompt, parts, body)

    def echoed(self, reply: Reply) -> bool:
        """Whether the prompt's ids came back, and the sampled ones would without them."""
        choice = reply.raw["choices"][0]
        holder = choice if self.shape.ids_in_choice else reply.raw
        came = holder.get("prompt_token_ids") is not None and self.shape.names_ids(choice)
        return self.question.sent is not None and came
