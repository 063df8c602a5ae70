"""The rollout that the pictures show: the embedded engine, one seed, three questions."""

from __future__ import annotations

from functools import cache
from typing import Any

import anyio
import attrs

from tito_core import Message, Policy, Step, Stitched
from tito_core.samples import StoredCall
from tito_io.client.conversation import Conversation
from tito_io.embedded import family
from tito_io.engines.protocol import Sampling
from tito_io.engines.registry import embedded

SEED = 25
"""Its first turn has what real turns have: thinking, and words in other pieces than a tokenizer makes."""
QUESTIONS = ("What is the weather in Oslo?", "And tomorrow?", "Thanks.")
OTHER_QUESTION = "And in Rome?"


@attrs.frozen
class RecordedTurn:
    """One turn of the rollout, and the conversation after it."""

    step: Step
    messages: tuple[Message, ...]
    stitched: Stitched | None

    def call(self, name: str, order: int) -> StoredCall:
        """Return the turn as a call of a forest."""
        return StoredCall(name=name, order=order, step=self.step)


def user(text: str) -> dict[str, Any]:
    """Return a user message."""
    return {"role": "user", "content": text}


@cache
def turns() -> tuple[RecordedTurn, ...]:
    """Return the rollout: three turns, and a second answer to another question after the first."""
    return tuple(anyio.run(_rollout))


async def _rollout() -> list[RecordedTurn]:
    engine = embedded(seed=SEED)
    conversation = Conversation(engine, sampling=Sampling(max_tokens=60, seed=SEED), policy=Policy())
    found: list[RecordedTurn] = []
    try:
        for question in QUESTIONS:
            before = found[-1].messages if found else ()
            found.append(await _turn(conversation, (*before, user(question))))
        found.append(await _turn(conversation, (*found[0].messages, user(OTHER_QUESTION))))
    finally:
        await engine.aclose()
    return found


async def _turn(conversation: Conversation, prompt: tuple[Message, ...]) -> RecordedTurn:
    turn = await conversation.turn(prompt)
    return RecordedTurn(turn.step, (*prompt, turn.step.completion[0]), turn.stitched)


def spelled(token: int) -> str:
    """Return a token's text with its white space visible."""
    return family().decode([token]).replace(" ", "\u00b7").replace("\n", "\u21b5")
