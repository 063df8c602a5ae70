"""Ask llama.cpp afterwards for the log-probabilities that its answers leave out.

Each costs a request that evaluates few ids: all before the missing one are in the server's cache. The values
are computed anew, so that they differ from those of the turn as much as any two runs of the server do.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import attrs

from tito_core import Ids, InputError
from tito_io.engines.protocol import EngineAnswer, EngineError, Reply
from tito_io.engines.replies.invariants import Check
from tito_io.engines.wire import Wire
from tito_io.families.family import Family

from .replies import LlamaCppNotice, alternative
from .requests import COMPLETION, scoring

FEW = 64
"""How many of the likeliest ids are asked for first; a whole vocabulary is some 15 MB."""


@attrs.frozen
class Recovery:
    """Completes the log-probabilities of replies.

    Attributes:
        wire: The server.
        model: The model's name.
        whole: An id whose text is whole characters.
        vocab_size: How many ids there are.
        extra: The further keys that the turn was sampled with.
    """

    wire: Wire
    model: str
    whole: int
    vocab_size: int
    extra: Mapping[str, Any] = attrs.field(factory=dict)

    async def completed(self, reply: Reply) -> Reply:
        """Return a reply, and its siblings, with the log-probabilities that the server can still give.

        A failed request loses no turn: its value stays None.
        """
        turns = [await self._turn(turn) for turn in (reply, *reply.siblings)]
        return attrs.evolve(turns[0], siblings=tuple(turns[1:]))

    async def _turn(self, turn: Reply) -> Reply:
        """Return one turn; what is missing is asked for in its order, so that the cache is of use."""
        missing = [place for place, value in enumerate(turn.logprobs or ()) if value is None]
        values, prompt = list(turn.logprobs or ()), Ids.of(turn.prompt_ids)
        with suppress(EngineError):  # a server that fails once is not asked again
            for place in missing:
                before = prompt.then(turn.completion_ids[:place])
                values[place] = await self.logprob(before, turn.completion_ids[place])
        notices = [notice for notice in turn.notices if notice != LlamaCppNotice.LOGPROBS_MISSING]
        if None in values:
            notices.append(LlamaCppNotice.LOGPROBS_MISSING)
        if values.count(None) < len(missing):
            notices.append(LlamaCppNotice.LOGPROBS_RECOVERED)
        return attrs.evolve(turn, logprobs=tuple(values), notices=tuple(notices))

    async def logprob(self, before: Ids, index: int) -> float | None:
        """Return the log-probability of an id after others; None where the server has none."""
        value = await self._among(before, index, min(FEW, self.vocab_size))
        return await self._among(before, index, self.vocab_size) if value is None else value

    async def _among(self, before: Ids, index: int, alternatives: int) -> float | None:
        """Return the log-probability of an id if it is one of the likeliest."""
        body = scoring(self.model, before, self.whole, alternatives, self.extra)
        answer = await self.wire.post(COMPLETION, body)
        check = Check(self.wire.where("POST", COMPLETION), EngineAnswer(200, answer), self.vocab_size)
        evaluated = check.get(answer, "tokens_evaluated", int)
        check.count("counted prompt ids", evaluated, "prompt ids", len(before))
        return check.logprobs([alternative(check, answer, index)], 1)[0]


def whole_id(family: Family) -> int:
    """Return an id whose text is whole characters.

    Raises:
        InputError: The vocabulary has none among some that every model is expected to have.
    """
    ids = family.encode("a the 1 .")
    found = next((one for one in ids if (family.decode([one]) or "\ufffd").isascii()), None)
    if found is None:
        raise InputError(
            "recover_logprobs: the vocabulary has no id whose text is plain letters; leave it out"
        )
    return found
