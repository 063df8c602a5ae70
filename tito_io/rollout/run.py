"""A many-turn conversation through an engine, and an account of what became of every sampled id."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import attrs
from anyio.lowlevel import checkpoint

from tito_core import Message, Step
from tito_core.drift.rerender import drift
from tito_core.seams.seam import common_prefix
from tito_io.client.conversation import ClientTurn, Conversation, Route, reply_message

from .script import Script


@attrs.frozen(kw_only=True)
class RolloutTurn:
    """One turn of a rollout, in numbers of ids."""

    turn: int
    """Counted from 1."""
    route: str
    """`TITO` where the prompt went by ids, `MITO` where it went by messages."""
    refusal: str | None
    """Why it went by messages, where a step could have been continued."""
    prompt_ids: int
    reused_ids: int
    """Prompt ids taken from earlier turns as they were."""
    new_ids: int
    """Prompt ids that were tokenized for this turn."""
    cached_ids: int | None
    """Prompt ids that the engine found in its prefix cache, where it says so."""
    sampled_ids: int
    drift: int | None
    """Prompt ids that a fresh rendering would have changed; None where it was not compared."""
    lost_ids: int
    """Sampled ids of earlier turns that this prompt no longer has."""
    finish_reason: str
    odd: str
    """What the bridge had to do beside continue: close a cut turn, or follow an odd stop."""


@attrs.define
class IdAccount:
    """Follows every sampled id from prompt to prompt."""

    sampled: int = 0
    lost: int = 0
    previous: Step | None = None
    """The latest step."""
    alive: list[bool] = attrs.field(factory=list)
    """For each id of the latest step, whether it was sampled and has stood there ever since."""

    def add(self, turn: ClientTurn) -> int:
        """Take in a turn; return how many sampled ids its prompt lost."""
        before = sum(self.alive)
        self.alive = self._carried(turn.step)
        lost = before - sum(self.alive)
        self.alive += [True] * len(turn.step.completion_ids)
        self.sampled += len(turn.step.completion_ids)
        self.lost += lost
        self.previous = turn.step
        return lost

    def _carried(self, step: Step) -> list[bool]:
        """Return, for each prompt id, whether a sampled id stands there unchanged.

        The ids themselves are compared, not what the kernel says of them.
        """
        earlier = self.previous.ids.tolist() if self.previous else []
        prompt = step.prompt_ids.tolist()
        kept = _common(earlier, prompt)
        return self.alive[:kept] + [False] * (len(prompt) - kept)


def _common(ours: list[int], theirs: list[int]) -> int:
    """Return the length of the common beginning."""
    return len(ours) if theirs[: len(ours)] == ours else common_prefix(ours, theirs)


@attrs.frozen(kw_only=True)
class Summary:
    """What became of a rollout's ids."""

    turns: int
    tito_turns: int
    mito_turns: int
    kept_turns: int
    """Turns that went by messages to an engine that kept the earlier ids."""
    sampled_ids: int
    sampled_ids_kept: int
    """Sampled ids that stand unchanged in every later prompt."""
    drift_tokens_avoided: int | None
    """Ids that fresh renderings would have changed, summed over the prompts that went by ids; None where no
    prompt was compared with one."""
    reused_ids: int
    """Ids that did not have to be rendered and tokenized again, summed over the prompts."""
    retokenized_ids: int
    """Ids of earlier turns that were tokenized again, summed over the prompts that went by messages."""
    refusals: dict[str, int]
    checked_turns: int | None = None
    """Turns whose bridge was compared with a render of the whole conversation; None where none was to be."""
    differing_turns: int | None = None
    """Those of them that ended otherwise, and went by messages."""
    error: str | None = None
    """What stopped the rollout early."""

    @property
    def whole(self) -> bool:
        """Whether every sampled id survived."""
        return self.sampled_ids == self.sampled_ids_kept and self.turns > 0


@attrs.define
class Rollout:
    """Runs a script through a conversation."""

    conversation: Conversation
    script: Script
    turns: int
    compare: bool = True
    """Whether each prompt is also rendered afresh, to see what would have changed: O(history) a turn."""
    told: Callable[[ClientTurn], None] = lambda _: None
    """Told of every turn as it is taken."""
    account: IdAccount = attrs.field(factory=IdAccount)
    rows: list[RolloutTurn] = attrs.field(factory=list)
    retokenized: int = 0

    async def run(self) -> AsyncIterator[RolloutTurn]:
        """Yield a row a turn. An engine's error ends the rollout; the rows so far stay."""
        prompt = self.script.opening()
        for number in range(1, self.turns + 1):
            await (
                checkpoint()
            )  # an engine in this process may never wait, and an interrupt is heeded in waiting
            turn = await self.conversation.turn(prompt)
            self.told(turn)
            self.rows.append(await self._row(number, turn, prompt))
            yield self.rows[-1]
            message = reply_message(turn.reply)
            prompt = [*prompt, message, *self.script.reply_to(number, message)]

    async def _row(self, number: int, turn: ClientTurn, prompt: Sequence[Message]) -> RolloutTurn:
        step = turn.step
        reused = len(turn.stitched.step.ids) if turn.stitched else 0
        if turn.route is Route.KEPT and self.account.previous is not None:
            reused = len(self.account.previous.ids)
        reused -= turn.stitched is not None and turn.stitched.replaced_stop is not None
        if turn.route is Route.MITO and self.rows:
            self.retokenized += min(
                self.rows[-1].prompt_ids + self.rows[-1].sampled_ids, len(step.prompt_ids)
            )
        return RolloutTurn(
            turn=number,
            route=turn.route.name,
            refusal=turn.refusal.reason.name if turn.refusal else None,
            prompt_ids=len(step.prompt_ids),
            reused_ids=reused,
            new_ids=len(step.prompt_ids) - reused,
            cached_ids=turn.reply.usage.cached_tokens,
            sampled_ids=len(step.completion_ids),
            drift=await self._drift(turn, prompt),
            lost_ids=self.account.add(turn),
            finish_reason=turn.reply.finish_reason,
            odd=_odd(turn),
        )

    async def _drift(self, turn: ClientTurn, prompt: Sequence[Message]) -> int | None:
        """Return how many ids a fresh rendering would have changed in a prompt that went by ids."""
        if not self.compare or turn.route is Route.KEPT:
            return None
        if turn.stitched is None:
            return 0
        rendered = await self.conversation.render(prompt, add_generation_prompt=True)
        used = turn.step.prompt_ids.tolist()
        return drift(used, list(rendered), await self.conversation.close()).changed

    def summary(self, error: str | None = None) -> Summary:
        """Return what became of the ids so far."""
        routes = Counter(row.route for row in self.rows)
        checking = self.conversation.check_every > 0
        compared = [row.drift for row in self.rows if row.drift is not None]
        return Summary(
            turns=len(self.rows),
            tito_turns=routes[Route.TITO.name],
            mito_turns=routes[Route.MITO.name],
            kept_turns=routes[Route.KEPT.name],
            sampled_ids=self.account.sampled,
            sampled_ids_kept=self.account.sampled - self.account.lost,
            drift_tokens_avoided=sum(compared) if compared else None,
            reused_ids=sum(row.reused_ids for row in self.rows),
            retokenized_ids=self.retokenized,
            refusals=dict(Counter(row.refusal for row in self.rows if row.refusal)),
            checked_turns=self.conversation.checked_turns if checking else None,
            differing_turns=self.conversation.differing_turns if checking else None,
            error=error,
        )


def _odd(turn: ClientTurn) -> str:
    """Say what the bridge had to do beside continue."""
    found = turn.stitched
    if found is None:
        return ""
    if found.step.truncated:
        return "cut closed"
    if found.replaced_stop is not None:
        return "stop replaced"
    return "" if found.kept_stop is None else "stop kept"


def to_json(row: RolloutTurn) -> dict[str, Any]:
    """Return a row as plain data."""
    return attrs.asdict(row)
