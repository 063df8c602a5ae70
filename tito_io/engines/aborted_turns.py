"""What to do about turns that an engine aborts: resume them from their exact ids, return them, or raise.

An engine that updates its weights aborts the turns that it samples: vLLM's `/pause`, SGLang's
`/pause_generation`, `abort` of an object in this process. What was sampled comes back with its ids. A resumed
turn goes on after the prompt and exactly those ids, and is one turn in the end: ids and log-probabilities are
those of its parts, one after the other, each from the weights that sampled it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from http import HTTPStatus
from uuid import uuid4

import anyio
import attrs

from tito_core import InputError
from tito_core.message import is_multimodal

from .protocol import (
    AbortedError,
    Delta,
    Engine,
    EngineError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    ServerError,
    Watch,
    chosen,
)
from .replies.output_parser import OutputParser, with_messages
from .turn_parts import joined, joined_ids, output_parser, spelled
from .wrapper import EngineWrapper

MINIMA = ("min_tokens", "min_new_tokens")
"""Engines' names for the least number of ids, of which a part has sampled some."""
FROM_THE_START = frozenset(
    (
        *("custom_logit_processor", "custom_params", "ebnf", "frequency_penalty", "json_schema"),
        "logits_processor",
        *("bad_words", "presence_penalty", "regex", "repetition_detection", "repetition_ngram_size"),
        *("repetition_ngram_threshold", "stop_regex", "structural_tag"),
        *("structured_outputs", "thinking_token_budget"),
    )
)
"""Extra keys whose effect depends on all ids that the turn has sampled, which engines count from the prompt's
end: a part after the first one would be sampled otherwise than the turn as a whole."""
SEEDS = 2**31
"""Seeds of later parts are below it: llama.cpp takes 32 bits, the others more."""
HALF = "\ufffd"
"""What the ids of a part of a character are decoded to."""


class OnAbort(StrEnum):
    """How to continue a turn that the engine aborts.

    Attributes:
        RAISE: Raise `AbortedError`; what was sampled is in `partial`. The default: an answer does not say why
            it was aborted, and a turn that is resumed after a weight update has ids of two versions.
        RESUME: Go on from the ids that were sampled.
        RETURN: Return the part as a turn that was cut short, `finish_reason` `abort`.
    """

    RAISE = "raise"
    RESUME = "resume"
    RETURN = "return"


def as_on_abort(value: OnAbort | str) -> OnAbort:
    """Return what to do about aborted turns, given as it is or by its name.

    >>> as_on_abort("resume")
    <OnAbort.RESUME: 'resume'>
    """
    return chosen(OnAbort, value, "on_abort")


class AbortNotice(StrEnum):
    """Notices about how an abort was handled.

    Attributes:
        RESUMED: The engine aborted the turn, and it went on from the ids that were sampled.
        RETRIED: The engine aborted the turn before its first id, and it was requested again.
    """

    RESUMED = "turn-resumed"
    RETRIED = "turn-retried"


@attrs.define(kw_only=True)
class Patience:
    """Waits between attempts: a paused engine may abort, or answer 503, until it is resumed.

    Attributes:
        seconds: How long to wait in all since the last new id.
        pause: The first wait; each one is twice as long as the one before, up to `longest`.
        longest: The longest wait.
        waited: The waits so far.
    """

    seconds: float = 600.0
    pause: float = 0.05
    longest: float = 5.0
    waited: float = attrs.field(default=0.0, init=False)

    async def wait(self, error: EngineError) -> None:
        """Wait before another attempt; raises `error` where that took too long already."""
        if self.waited >= self.seconds:
            raise error
        step = min(max(self.waited, self.pause), self.longest)
        self.waited += step
        await anyio.sleep(step)


@attrs.define
class AbortedTurns(EngineWrapper):
    """An engine whose aborted turns are resumed, returned or raised.

    Resuming takes a request for each part. Nothing is sampled twice and nothing is lost: a part's prompt ends
    with the ids of all parts before it. `max_tokens` and the least number of ids count all parts. A stop
    string is found where it begins in one part and ends in another: where a part's text ends like the
    beginning of one, ids are sampled one by one until that is decided. A seed of later parts is derived from
    the caller's, as engines would draw the same random numbers again; an engine whose seeds belong to
    positions (`seeds_by_position`) gets the caller's.

    Not resumed, but raised: turns with a constraint or an option of `FROM_THE_START`, turns of an engine that
    keeps ids itself, and aborts whose ids, or whose prompt's ids, did not come. Neither are prompts whose
    media went by messages, and groups of which some turns did not come.

    Attributes:
        engine: The wrapped engine.
        on_abort: What to do.
        patience: Returns how long to wait for a paused engine.
        name: Its name.
        keeps_ids: Whether it stores ids itself.
    """

    on_abort: OnAbort = attrs.field(default=OnAbort.RAISE, converter=as_on_abort)
    patience: Callable[[], Patience] = Patience

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn, whatever the engine aborts of it; later parts go by ids, with the same media."""
        watch, aborted = request.watch, AbortedTurn(self.engine, request)
        if self.on_abort is OnAbort.RAISE:
            reply = await self.engine.sample(request)
            if any(one.finish_reason == "abort" for one in (reply, *reply.siblings)):
                raise _given_up(self.name, reply)
            return reply
        waiting = None if watch is None else WaitingText(watch, aborted.sampling.stop)
        returns = self.on_abort is OnAbort.RETURN
        if returns:
            found = await _found(self.engine, aborted.streamed(waiting))
        else:
            aborted.patience = self.patience()
            found = await aborted.begun(waiting)
        over = [returns or turn.finish_reason != "abort" for turn in (found, *found.siblings)]
        if waiting is not None:
            await waiting.end([place for place, one in enumerate(over) if one])
        if any(turn.finish_reason == "abort" for turn in (found, *found.siblings)):
            return await (aborted.returned(found) if returns else aborted.resumed(found, watch))
        return found


@attrs.define
class AbortedTurn:
    """The data to continue an aborted turn.

    Attributes:
        engine: Where it is sampled.
        request: How it was requested.
        patience: How long to wait for a paused engine.
    """

    engine: Engine
    request: SampleRequest
    patience: Patience = attrs.field(factory=Patience)

    @property
    def sampling(self) -> Sampling:
        """The sampling parameters of the whole turn."""
        return self.request.sampling

    @property
    def rendering(self) -> Rendering | None:
        """What its prompt was rendered with."""
        return self.request.rendering

    def streamed(self, waiting: WaitingText | None) -> SampleRequest:
        """Return the request with its text held back where a part may end."""
        return attrs.evolve(self.request, watch=None if waiting is None else waiting.watch)

    async def begun(self, waiting: WaitingText | None) -> Reply:
        """Return the first reply with an id, whole or aborted; an abort before it is requested again.

        Where text came and its ids did not, they are lost: the error is raised, since the text was passed on.
        """
        retried = 0
        while True:
            try:
                reply = await _found(self.engine, self.streamed(waiting))
            except AbortedError as error:
                if waiting is not None and waiting.began:
                    raise
                await self.patience.wait(error)
                retried += 1
            else:
                return attrs.evolve(reply, notices=(*reply.notices, *[AbortNotice.RETRIED] * retried))

    async def returned(self, reply: Reply) -> Reply:
        """Return the parts of an aborted reply as turns that were cut short, with the messages they spell."""
        parser = await output_parser(self.engine)
        turns = [await joined(parser, [part], self.rendering) for part in await self._settled(parser, reply)]
        return attrs.evolve(turns[0], siblings=tuple(turns[1:]), usage=reply.usage)

    async def resumed(self, reply: Reply, watch: Watch | None) -> Reply:
        """Return a reply whose aborted turns were sampled to their ends, at the same time."""
        why = self._unresumable(reply)
        if why is not None:
            raise _given_up(self.engine.name, reply, why)
        parser = await output_parser(self.engine)
        turns = [await self._read(parser, part) for part in await self._settled(parser, reply)]
        failures: list[Exception] = []

        async def resume(place: int) -> None:
            part = PartialTurn(self, parser, place, _silent(watch, place))
            try:
                turns[place] = await part.resumed(turns[place])
            except Exception as error:  # noqa: BLE001  # raised below, when the other turns have ended
                failures.append(error)
                partial = error.partial if isinstance(error, EngineError) else None
                turns[place] = partial or turns[place]

        async with anyio.create_task_group() as group:
            for place, one in enumerate(turns):
                if one.finish_reason == "abort":
                    group.start_soon(resume, place)
        usage = attrs.evolve(reply.usage, completion_tokens=sum(len(one.completion_ids) for one in turns))
        whole = attrs.evolve(turns[0], siblings=tuple(turns[1:]), usage=usage)
        if failures:
            if isinstance(failures[0], EngineError):
                failures[0].partial = whole
            raise failures[0]
        return whole

    async def _settled(self, parser: OutputParser, reply: Reply) -> list[Reply]:
        """Return a reply's turns; one has ended that was aborted in the very step that sampled its end."""
        turns = [attrs.evolve(one, siblings=()) for one in (reply, *reply.siblings)]
        for place, turn in enumerate(turns):
            stop = await self.end_of(parser, turn.completion_ids) if turn.finish_reason == "abort" else None
            if stop is not None:
                turns[place] = attrs.evolve(turn, finish_reason="stop", stop_reason=stop, message=None)
        return turns

    async def end_of(self, parser: OutputParser, ids: Sequence[int]) -> int | str | None:
        """Return the stop id that the last of `ids` is, or the stop string that it completes.

        SGLang calls a turn aborted whose last id was sampled after the abort came, whatever that id is
        (`schedule_batch.py`, `check_finished`). Ids that end a turn are known from the caller and the model's
        folder alone.
        """
        sampling = self.sampling
        families = (getattr(one, "family", None) for one in (parser.tokenizer, self.engine))
        ends = (*sampling.stop_ids, *(index for one in families if one is not None for index in one.stop_ids))
        if ids and ids[-1] in ends and not sampling.extra.get("ignore_eos"):
            return ids[-1]
        # None of the first ids completes a string (vLLM's `detokenizer.py`, `update`).
        least = sampling.extra.get("min_tokens")
        if not sampling.stop or len(ids) <= (least if isinstance(least, int) else 0):
            return None
        before = await parser.tokenizer.decode(ids[:-1]) if ids[:-1] else ""
        return completed(before, await parser.tokenizer.decode(ids), sampling.stop)

    async def _read(self, parser: OutputParser, turn: Reply) -> Reply:
        """Return a turn that had ended with its message: an error that holds it was raised before that."""
        if turn.finish_reason == "abort" or turn.message is not None:
            return turn
        named = attrs.evolve(turn, text=await spelled(parser, turn))
        return await with_messages(parser, named, f"call-{uuid4().hex[:16]}", rendering=self.rendering)

    def _unresumable(self, reply: Reply) -> str | None:
        """Return why an aborted reply cannot be resumed; None where it can."""
        turns, sampling = len(reply.siblings) + 1, self.sampling
        counted = sorted(name for name in FROM_THE_START & sampling.extra.keys() if sampling.extra[name])
        reasons = {
            "the engine keeps the ids itself, and takes messages alone": self.engine.keeps_ids,
            "a grammar would begin anew after the ids that were sampled": sampling.constraint is not None,
            f"{', '.join(counted)} depends on all sampled ids, and would begin anew after them": counted,
            "the ids of its prompt did not come": not reply.prompt_ids,
            "its media went by messages, and later parts would go by ids without them": is_multimodal(
                self.request.messages or ()
            ),
            f"of {sampling.n} turns only {turns} began": turns != sampling.n,
        }
        return next((why for why, holds in reasons.items() if holds), None)

    def part(
        self, prompt: Sequence[int], sampled: Sequence[int], sampling: Sampling, watch: Watch | None
    ) -> SampleRequest:
        """Return the request for a part after the prompt's ids and those that were sampled.

        Beside media the ids that were sent stand in place of those that the engine made of them.
        """
        before = self.request.ids if self.request.media else prompt
        later = self.request.after([*(before or ()), *sampled])
        return attrs.evolve(later, sampling=sampling, watch=watch)


@attrs.define
class PartialTurn:
    """One turn while its parts are sampled.

    Attributes:
        aborted: How it was requested.
        parser: Makes text and messages of ids.
        index: Which of the request's turns it is.
        watch: Called with the ids of later parts.
    """

    aborted: AbortedTurn
    parser: OutputParser
    index: int
    watch: Watch | None
    _parts: list[Reply] = attrs.field(factory=list, init=False)
    _notices: list[str] = attrs.field(factory=list, init=False)
    _over: bool = attrs.field(default=False, init=False)

    async def resumed(self, first: Reply) -> Reply:
        """Return the whole turn; an error on the way holds what was sampled of it in `partial`."""
        self._add(first)
        try:
            while not self._over:
                await self._go_on()
            return await joined(self.parser, self._parts, self.aborted.rendering, self._notices)
        except EngineError as error:
            parts = [*self._parts, *([] if error.partial is None else [error.partial])]
            error.partial = attrs.evolve(joined_ids(parts), finish_reason="abort")
            raise
        except InputError as error:  # such as a placeholder among the sampled ids, beside images
            sampled = attrs.evolve(joined_ids(self._parts), finish_reason="abort")
            raise _given_up(self.aborted.engine.name, sampled, str(error)) from error

    @property
    def _ids(self) -> tuple[int, ...]:
        return tuple(index for part in self._parts for index in part.completion_ids)

    def _add(self, part: Reply) -> None:
        """Add a part; one that was aborted is resumed."""
        self._parts.append(part)
        self._over = part.finish_reason != "abort"
        if not self._over:
            self._notices.append(AbortNotice.RESUMED)

    def _end(self, finish: str, stop: int | str | None = None) -> None:
        """End the turn with its latest part."""
        self._parts[-1] = attrs.evolve(self._parts[-1], finish_reason=finish, stop_reason=stop)
        self._over = True

    async def _go_on(self) -> None:
        """Add a part, or end the turn where it is over, or there is no room for one."""
        if await self._ends():
            return None
        most, stops = self.aborted.sampling.max_tokens, self.aborted.sampling.stop
        left = None if most is None else most - len(self._ids)
        if left is not None and left <= 0:
            return self._end("length")
        text = await self.parser.tokenizer.decode(self._ids) if stops else ""
        one = may_begin(text, stops)
        try:
            part = await self._part(self._rest(len(self._ids), 1 if one else left))
        except OverlongError:  # the ids fill the context
            return self._end("length")
        self._add(part)
        # A part of one id ends the turn only if that completes a stop string, or the turn is full.
        if one and not await self._ends() and part.finish_reason == "length" and left != 1:
            self._over = False
        return None

    async def _part(self, sampling: Sampling) -> Reply:
        """Return the next part with an id; an abort before it, or a paused server, is waited for."""
        request = self.aborted.part(self._parts[0].prompt_ids, self._ids, sampling, self.watch)
        while True:
            try:
                part = await _found(self.aborted.engine, request)
            except (AbortedError, ServerError) as error:
                # vLLM from 0.33 on answers so while it is paused: it takes no turns, and nothing was sampled.
                paused = error.answer is not None and error.answer.status == HTTPStatus.SERVICE_UNAVAILABLE
                if not (isinstance(error, AbortedError) or paused):
                    raise
                await self.aborted.patience.wait(error)
            else:
                self.aborted.patience.waited = 0.0
                return self._checked(part)

    def _checked(self, part: Reply) -> Reply:
        """Return a part; raises `InvalidReplyError` where it was sampled after other ids."""
        seen, before = tuple(part.prompt_ids), (*self._parts[0].prompt_ids, *self._ids)
        if seen and seen != before:
            raise InvalidReplyError(
                f"{self.aborted.engine.name}: an aborted turn went on after {len(seen)} other ids than"
                f" the {len(before)} so far",
                hint="what was sampled before is in `partial`",
            )
        return part

    async def _ends(self) -> bool:
        """End the turn if its last id does; return whether it did."""
        stop = await self.aborted.end_of(self.parser, self._ids)
        if stop is not None:
            self._end("stop", stop)
        return stop is not None

    def _rest(self, sampled: int, left: int | None) -> Sampling:
        """Return how to sample the rest of the turn."""
        whole = self.aborted.sampling
        most = math.inf if left is None else left  # servers refuse a least number above the most
        extra = {
            name: min(max(value - sampled, 0), most) if name in MINIMA and isinstance(value, int) else value
            for name, value in whole.extra.items()
        }
        seed = whole.seed
        if seed is not None and not getattr(self.aborted.engine, "seeds_by_position", False):
            seed = later_seed(seed + self.index, sampled)
        return attrs.evolve(whole, n=1, max_tokens=left, seed=seed, extra=extra)


@attrs.define
class WaitingText:
    """Passes deltas on, and holds text back that may begin a stop string: a later part may complete it.

    Attributes:
        to: Where deltas go.
        stops: The stop strings.
    """

    to: Watch
    stops: tuple[str, ...]
    _waiting: dict[int, Delta] = attrs.field(factory=dict, init=False)

    @property
    def began(self) -> bool:
        """Whether a delta came."""
        return bool(self._waiting)

    async def watch(self, delta: Delta) -> None:
        """Pass a delta on, with the text that is certain."""
        hold = max(map(len, self.stops), default=1) - 1
        text = (self._waiting[delta.index].text if delta.index in self._waiting else "") + delta.text
        ready = text[: max(len(text) - hold, 0)]
        rest = attrs.evolve(delta, ids=(), logprobs=None, sampling_mask=None, text=text[len(ready) :])
        self._waiting[delta.index] = rest
        if delta.ids or ready:
            await self.to(attrs.evolve(delta, text=ready))

    async def end(self, turns: Collection[int]) -> None:
        """Pass on the text of `turns` that waits: no further part of them comes."""
        for index, delta in self._waiting.items():
            if delta.text and index in turns:
                await self.to(delta)


def may_begin(text: str, stops: Sequence[str]) -> bool:
    """Return whether a text ends like the beginning of a stop string, or inside a character.

    >>> may_begin("so EN", ["END"]), may_begin("so", ["END"]), may_begin("so \ufffd", ["END"])
    (True, False, True)
    """
    if stops and text.endswith(HALF):
        return True
    return any(text.endswith(stop[:size]) for stop in stops for size in range(1, len(stop)))


def completed(before: str, text: str, stops: Sequence[str]) -> str | None:
    """Return the stop string that ends first in what is new of a `text` after `before`; None for none.

    >>> completed("so EN", "so END. END", ["END", "."])
    'END'
    """
    known = len(before.rstrip(HALF))
    places = {stop: text.find(stop, max(known - len(stop) + 1, 0)) for stop in stops}
    ends = {stop: place + len(stop) for stop, place in places.items() if place >= 0}
    return min(ends, key=lambda stop: ends[stop], default=None)


def later_seed(seed: int, sampled: int) -> int:
    """Return the seed of the part of a turn that begins after `sampled` ids.

    >>> later_seed(7, 3) == later_seed(7, 3), later_seed(7, 3) == later_seed(7, 4)
    (True, False)
    """
    data = hashlib.blake2b(f"{seed}/{sampled}".encode(), digest_size=8).digest()
    return int.from_bytes(data, "little") % SEEDS


async def _found(engine: Engine, request: SampleRequest) -> Reply:
    """Return a reply, or what was sampled of it; raises `AbortedError` where nothing was."""
    try:
        reply = await engine.sample(request)
    except AbortedError as error:
        if error.partial is None or not _sampled_any(error.partial):
            raise
        return error.partial
    if not _sampled_any(reply):
        raise _given_up(engine.name, reply)
    return reply


def _sampled_any(reply: Reply) -> bool:
    """Return whether a reply has an id, or a turn that ended otherwise than by an abort."""
    return any(one.completion_ids or one.finish_reason != "abort" for one in (reply, *reply.siblings))


def _silent(watch: Watch | None, index: int) -> Watch | None:
    """Return a callback that passes ids on and no text: only the whole turn tells what its text is."""
    if watch is None:
        return None
    watching = watch

    async def silent(delta: Delta) -> None:
        if delta.ids:
            await watching(attrs.evolve(delta, text="", index=index, thinking=False))

    return silent


def _given_up(name: str, reply: Reply, why: str = "") -> AbortedError:
    """Return the error for an aborted reply, with what was sampled in `partial`."""
    sampled = sum(len(one.completion_ids) for one in (reply, *reply.siblings))
    text = f"{name}: the engine gave the turn up after {sampled} ids"
    error = AbortedError(
        f"{text}, and it cannot be resumed: {why}" if why else text, hint="they are in `partial`"
    )
    error.partial = reply if sampled else None
    return error
