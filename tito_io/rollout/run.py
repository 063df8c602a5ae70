"""Run a scripted conversation with an engine, and follow every sampled id from prompt to prompt."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import attrs
from anyio.lowlevel import checkpoint

from tito_core import Message, Step
from tito_core.drift.diff import count_changed_ids
from tito_core.questions import ask
from tito_core.seams.seam import common_prefix
from tito_io.client.conversation import Conversation
from tito_io.client.driver import answer
from tito_io.client.turn import ClientTurn, Route, reply_message
from tito_io.families.fast.fast_tokenizer import FastUse

from .script import Script


@attrs.frozen(kw_only=True)
class RolloutTurn:
    """One turn of a rollout, in numbers of ids.

    Attributes:
        turn: The turn's number, from 1.
        route: `TITO` where the prompt went by ids, `MITO` where it went by messages, `KEPT` where it went
            by messages and the engine kept the earlier ids.
        refusal: Why the prompt went by messages although there was a step to continue; else None.
        prompt_ids: Ids of the prompt.
        reused_ids: Prompt ids taken from earlier turns as they were.
        new_ids: Prompt ids that were tokenized for this turn.
        retokenized_ids: Of `new_ids`, those that stand for an earlier prompt and its completion.
        cached_ids: Prompt ids in the engine's prefix cache; None where the engine does not report it.
        sampled_ids: Ids of the completion.
        drift_ids: Prompt ids that a fresh rendering would have changed; None where none was made.
        lost_ids: Sampled ids of earlier turns that this prompt no longer has.
        finish_reason: Why the engine stopped: `stop`, `length`, `tool_calls` or `abort`.
        note: What the bridge did about the turn before: `cut closed`, `stop kept`, `stop replaced`.
    """

    turn: int
    route: str
    refusal: str | None
    prompt_ids: int
    reused_ids: int
    new_ids: int
    retokenized_ids: int
    cached_ids: int | None
    sampled_ids: int
    drift_ids: int | None
    lost_ids: int
    finish_reason: str
    note: str


@attrs.frozen(kw_only=True)
class Summary:
    """Counts of a rollout's ids: the sums over its turns.

    Attributes:
        turns: Turns that were sampled.
        routes: Turns by route.
        refusals: Turns that went by messages although there was a step to continue, by reason.
        sampled_ids: Ids that were sampled.
        lost_ids: Sampled ids that some later prompt no longer had.
        reused_ids: Prompt ids taken from earlier turns as they were.
        retokenized_ids: Prompt ids that were tokenized again, although an earlier turn had them.
        drift_ids: Prompt ids that a fresh rendering would have changed; None where a turn had none.
        checked_turns: Turns whose bridge was compared with a render of the whole conversation; None where
            the option is off.
        differing_turns: The checked turns that differed, and went by messages; None as above.
        fast_tokenizer: Whether the faster tokenizer is in use, and what was compared; None where it was not
            asked for.
        error: What ended the rollout early, else None.
    """

    turns: int
    routes: dict[str, int]
    refusals: dict[str, int]
    sampled_ids: int
    lost_ids: int
    reused_ids: int
    retokenized_ids: int
    drift_ids: int | None
    checked_turns: int | None
    differing_turns: int | None
    fast_tokenizer: str | None = None
    error: str | None = None

    @property
    def whole(self) -> bool:
        """Whether every sampled id stands unchanged in every later prompt."""
        return self.lost_ids == 0 and self.turns > 0


@attrs.define
class SampledIdCheck:
    """Follows every sampled id from prompt to prompt.

    Attributes:
        previous: The latest step.
        unchanged: For each id of that step, whether it was sampled and has stood there ever since.
    """

    previous: Step | None = None
    unchanged: list[bool] = attrs.field(factory=list)

    def add(self, step: Step) -> int:
        """Take in the next step; return how many sampled ids its prompt lost.

        The ids themselves are compared: what the kernel says of them is what a rollout puts to the test.
        """
        earlier = self.previous.ids.tolist() if self.previous else []
        prompt = step.prompt_ids.tolist()
        kept = len(earlier) if prompt[: len(earlier)] == earlier else common_prefix(earlier, prompt)
        lost = sum(self.unchanged[kept:])
        self.unchanged[kept:] = [False] * (len(prompt) - kept) + [True] * len(step.completion_ids)
        self.previous = step
        return lost


@attrs.define
class Rollout:
    """Runs a script through a conversation.

    Attributes:
        conversation: Where turns are sampled and kept.
        script: What the user and the tools answer.
        turns: How many turns to sample.
        compare: Whether each prompt is also rendered afresh, which costs O(history) a turn.
        on_turn: Called with every turn as it comes.
        fast: The faster tokenizer's use, if one was asked for.
        waiting: Returns a context manager that is entered while the engine works on the turn of a number.
        sampled: Follows the sampled ids.
        rows: The turns so far.
    """

    conversation: Conversation
    script: Script
    turns: int
    compare: bool = True
    on_turn: Callable[[ClientTurn], None] = lambda _: None
    fast: FastUse | None = None
    waiting: Callable[[int], AbstractContextManager[object]] = nullcontext
    sampled: SampledIdCheck = attrs.field(factory=SampledIdCheck)
    rows: list[RolloutTurn] = attrs.field(factory=list)

    async def run(self) -> AsyncIterator[RolloutTurn]:
        """Yield a row for each turn. An engine's error ends the rollout; the rows so far stay."""
        prompt = self.script.opening()
        for number in range(1, self.turns + 1):
            await checkpoint()  # an engine in this process never waits, and interrupts are seen in waiting
            with self.waiting(number):
                turn = await self.conversation.turn(prompt)
                self.on_turn(turn)
                self.rows.append(await self._row(number, turn, prompt))
            yield self.rows[-1]
            message = reply_message(turn.reply)
            prompt = [*prompt, message, *self.script.reply_to(number, message)]

    async def _row(self, number: int, turn: ClientTurn, prompt: Sequence[Message]) -> RolloutTurn:
        step, previous = turn.step, self.sampled.previous
        earlier = 0 if previous is None else len(previous.ids)
        reused = earlier if turn.route is Route.KEPT else 0
        if turn.stitched is not None:
            reused = len(turn.stitched.step.ids) - (turn.stitched.replaced_stop is not None)
        return RolloutTurn(
            turn=number,
            route=turn.route.name,
            refusal=turn.refusal.reason.name if turn.refusal else None,
            prompt_ids=len(step.prompt_ids),
            reused_ids=reused,
            new_ids=len(step.prompt_ids) - reused,
            retokenized_ids=min(earlier, len(step.prompt_ids)) if turn.route is Route.MITO else 0,
            cached_ids=turn.reply.usage.cached_tokens,
            sampled_ids=len(step.completion_ids),
            drift_ids=await self._drift(turn, prompt),
            lost_ids=self.sampled.add(step),
            finish_reason=turn.reply.finish_reason,
            note=_note(turn),
        )

    async def _drift(self, turn: ClientTurn, prompt: Sequence[Message]) -> int | None:
        """Return how many ids a fresh rendering would have changed in a prompt that went by ids."""
        if not self.compare or turn.route is Route.KEPT:
            return None
        if turn.stitched is None:
            return 0
        rendered = await answer(ask(prompt), self.conversation.tokenize_fn)
        used = turn.step.prompt_ids.tolist()
        return count_changed_ids(used, list(rendered), await self.conversation.close())

    def summary(self, error: str | None = None) -> Summary:
        """Return the sums over the turns so far."""
        checking = self.conversation.check_every > 0
        drifts = [row.drift_ids for row in self.rows]
        compared = [drift for drift in drifts if drift is not None]
        return Summary(
            turns=len(self.rows),
            routes=dict(Counter(row.route for row in self.rows)),
            refusals=dict(Counter(row.refusal for row in self.rows if row.refusal)),
            sampled_ids=sum(row.sampled_ids for row in self.rows),
            lost_ids=sum(row.lost_ids for row in self.rows),
            reused_ids=sum(row.reused_ids for row in self.rows),
            retokenized_ids=sum(row.retokenized_ids for row in self.rows),
            drift_ids=sum(compared) if compared and len(compared) == len(drifts) else None,
            checked_turns=self.conversation.checked_turns if checking else None,
            differing_turns=self.conversation.differing_turns if checking else None,
            fast_tokenizer=None if self.fast is None else str(self.fast),
            error=error,
        )


def _note(turn: ClientTurn) -> str:
    """Return what the bridge did about a cut turn or an odd stop before this turn."""
    if turn.stitched is None:
        return ""
    if turn.stitched.step.truncated:
        return "cut closed"
    if turn.stitched.replaced_stop is not None:
        return "stop replaced"
    return "" if turn.stitched.kept_stop is None else "stop kept"
