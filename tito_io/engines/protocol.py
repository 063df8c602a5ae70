"""The engine protocol: the requests, replies and errors of every engine.

Adapters translate between this module and one engine's wire format. Ids, log-probabilities and finish
reasons have the same names and meanings here for every engine.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property, reduce
from inspect import iscoroutinefunction
from operator import or_
from typing import Any, TypeVar

import attrs

from tito_core import InputError, Message, SamplingMask, TitoError, render_key
from tito_core.media.ranges import MediaRange
from tito_core.samples import RoutedExperts, WeightVersion
from tito_core.step import rounded

from .closing import Closing
from .constraint import Constraint

ROUNDED = "logprobs-rounded"
"""Notice: log-probabilities of the reply were above 0 by what rounding explains, and are 0 here."""


C = TypeVar("C", bound=StrEnum)


def chosen(choices: type[C], value: C | str, parameter: str) -> C:
    """Return one of `choices` that `value` is or names; `InputError` for another names `parameter`."""
    try:
        return choices(value)
    except ValueError:
        names = ", ".join(repr(one.value) for one in choices)
        raise InputError(f"{parameter} is {value!r:.60}: pass one of {names}") from None


@attrs.frozen(kw_only=True)
class Sampling:
    """Sampling parameters; None or empty leaves the engine's default.

    Attributes:
        max_tokens: The most ids to sample; at least 1.
        temperature: Sampling temperature; 0 is greedy.
        seed: Seed of the engine's random numbers; not every engine honours it.
        stop: Strings that end a turn; the ids that spell them stay in the completion.
        stop_ids: Ids that end a turn, in addition to the model's own.
        n: How many turns to sample after the same prompt; turns 2 to n are in `Reply.siblings`.
        logprobs: Whether log-probabilities come with the sampled ids (default). Engines that always compute
            them refuse False with `InputError`.
        sampling_masks: Whether the ids that top-p, top-k and min-p had kept come with each sampled id; its
            log-probability is then normalized over them. An engine, or a route, that has none raises
            `MasksUnsupportedError` before it samples the turn. Default: False.
        constraint: What the answer may be; None for any. An engine that cannot honour it raises
            `UnsupportedError` before it sends anything.
        conversation: The conversation's name, the same for all of its turns: routers keep it on one worker
            by that (`tito_io.engines.routing`). It changes no id. None names none.
        extra: Further request keys of one engine, sent unchanged. Keys that have a field here, and keys that
            would change which ids go in or come back, are rejected with `InputError`.
    """

    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    n: int = 1
    logprobs: bool = True
    sampling_masks: bool = False
    constraint: Constraint | None = None
    conversation: str | None = None
    extra: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Rendering:
    """The arguments of a chat template besides the messages.

    Attributes:
        tools: Tool definitions in OpenAI's form.
        template_args: Keyword arguments of the chat template, such as `enable_thinking`.
        opening: A message of the assistant that begins the answer: it stands, left open at the end of its
            text, where else the generation prompt does. None: the model begins its answer itself.
    """

    tools: tuple[Mapping[str, Any], ...] = ()
    template_args: Mapping[str, Any] = attrs.field(factory=dict)
    opening: Message | None = None

    @cached_property
    def key(self) -> str:
        """The key of the rendering: equal keys mean equal tools and template arguments.

        The `opening` is a message of the turn, and no part of it.

        A key spells out all tools, so equal ones are one string.
        """
        return sys.intern(render_key(self.tools, self.template_args))


@attrs.frozen(kw_only=True)
class Usage:
    """Token counts as the engine reports them.

    Attributes:
        prompt_tokens: Ids of the prompt.
        completion_tokens: Ids that were sampled, over all turns of the request.
        cached_tokens: Prompt ids found in the engine's prefix cache; None where the engine does not say.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None = None


@attrs.frozen(kw_only=True)
class ModelLimits:
    """The sizes that a model accepts; None where the engine does not say.

    Attributes:
        max_model_len: The most ids of prompt and completion together.
        vocab_size: How many ids there are; valid ids are 0 to `vocab_size - 1`.
        max_prompt_len: The most ids of a prompt, where that is less than `max_model_len - 1`.
    """

    max_model_len: int | None = None
    vocab_size: int | None = None
    max_prompt_len: int | None = None

    def room(self, prompt_len: int, max_tokens: int | None = None) -> int | None:
        """Return the most ids that a completion after `prompt_len` ids can have, at most `max_tokens`.

        None means that neither the context length nor `max_tokens` is known. This is the one length check:
        every adapter makes it before it sends ids.

        Raises:
            OverlongError: The prompt leaves no room for a sampled id.

        >>> ModelLimits(max_model_len=10).room(7, 5), ModelLimits().room(7)
        (3, None)
        """
        if self.max_prompt_len is not None and prompt_len > self.max_prompt_len:
            raise OverlongError(
                f"the prompt has {prompt_len} ids, and the engine takes {self.max_prompt_len}; shorten the "
                "prompt. Nothing was sent"
            )
        if self.max_model_len is not None and prompt_len >= self.max_model_len:
            raise OverlongError(
                f"the prompt has {prompt_len} ids, and the model takes {self.max_model_len}, with at least "
                "one that it samples; shorten the prompt. Nothing was sent"
            )
        left = None if self.max_model_len is None else self.max_model_len - prompt_len
        return min((size for size in (left, max_tokens) if size is not None), default=None)


def _rounded(logprobs: tuple[float | None, ...] | None) -> tuple[float | None, ...] | None:
    if not logprobs or (set(map(type, logprobs)) == {float} and max(logprobs) <= 0):  # type: ignore[operator,type-var]  # floats
        return logprobs  # as nearly all are; seen in C, as they are many
    return tuple(map(rounded, logprobs))


@attrs.frozen(kw_only=True)
class Delta:
    """A piece of a streamed turn.

    Attributes:
        ids: New ids. Ids may come without text: half a character, a special token, a tag.
        logprobs: One log-probability per id of `ids`; None where the stream sends none, in which case the
            reply has them.
        sampling_mask: The ids that could have been sampled in place of each of `ids`; None where the stream
            sends none.
        text: New content. Text may come later than its ids.
        index: Which of the `Sampling.n` turns this belongs to, from 0.
        thinking: Whether the prompt is known to leave reasoning open, so that the turn's text begins inside
            it. Of a turn whose text is the model's own; a server's parser has taken reasoning out.
    """

    ids: tuple[int, ...] = ()
    logprobs: tuple[float | None, ...] | None = attrs.field(default=None, converter=_rounded)
    sampling_mask: SamplingMask | None = None
    text: str = ""
    index: int = 0
    thinking: bool = False


Watch = Callable[[Delta], Awaitable[None]]
"""Stream callback: awaited with every delta as it arrives."""


def check_watch(watch: object) -> None:
    """Raise `InputError` for a `watch` that cannot be awaited; call it before anything is sent."""
    call = getattr(type(watch), "__call__", None)  # noqa: B004  # of an object, it may be a coroutine function
    if watch is not None and not (iscoroutinefunction(watch) or iscoroutinefunction(call)):
        raise ArgumentError(
            f"watch is {watch!r:.80}: pass a coroutine function (`async def`); nothing was sent",
            parameter="watch",
        )


def watch_with(watch: Watch | None, **fields: Any) -> Watch | None:
    """Return a callback that passes deltas on to `watch`, with these `fields` in place of theirs.

    None where `watch` is None.
    """
    check_watch(watch)
    if watch is None:
        return None
    watching = watch

    async def changed(delta: Delta) -> None:
        await watching(attrs.evolve(delta, **fields))

    return changed


async def watch_whole(watch: Watch, reply: Reply) -> None:
    """Pass a `reply` that was not streamed on to `watch`: each of its turns in one piece."""
    for index, one in enumerate((reply, *reply.siblings)):
        ids = tuple(one.completion_ids)
        mask = one.sampling_mask
        await watch(Delta(ids=ids, logprobs=one.logprobs, sampling_mask=mask, text=one.text, index=index))


@attrs.frozen(kw_only=True)
class Reply:
    """One sampled turn, as the engine reported it; every invariant was checked and nothing is guessed.

    Replies are equal if all but `request_id` and `worker` is.

    Attributes:
        prompt_ids: The ids that the engine saw: those it repeated, or those that were sent and that it
            counted. Media are expanded in them.
        completion_ids: The ids that it sampled, the stop token included where one was sampled.
        logprobs: One natural-log probability per completion id; None in place of a value that the engine
            does not have, and None as a whole where it sent none.
        sampling_mask: The ids that could have been sampled in place of each completion id (see
            `Sampling.sampling_masks`); None where it was not asked for.
        message: The assistant message; None where neither the engine nor the adapter parsed one.
        text: The completion as text, for replies without a message.
        finish_reason: `stop`, `length`, `tool_calls` or `abort`.
        usage: What the engine counted for the whole request, `siblings` included.
        stop_reason: The id or the string that ended the turn; None where the engine does not name it.
        weight_versions: Which weights sampled which ids; empty where the engine does not say.
        routed_experts: Which experts each position was routed to; None where it was not asked for.
        siblings: Turns 2 to n of the same request (`Sampling.n`).
        notices: What the adapter did differently from the request, and what the reply lacks, as constant
            strings that can be counted.
        media_ranges: Offset and length of each medium in `prompt_ids`, in order; None where the engine does
            not say, or the prompt has none.
        request_id: The id under which the request was sent, which logs of routers and engines repeat; None
            where none was.
        worker: Which worker sampled the turn, as a router names it; None where it does not say.
        raw: The whole answer as it arrived; for a stream, the body that its events add up to.
    """

    prompt_ids: Sequence[int]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...] | None
    message: Message | None
    text: str
    finish_reason: str
    usage: Usage
    stop_reason: int | str | None = None
    weight_versions: tuple[WeightVersion, ...] = ()
    routed_experts: RoutedExperts | None = None
    sampling_mask: SamplingMask | None = None
    siblings: tuple[Reply, ...] = ()
    notices: tuple[str, ...] = ()
    media_ranges: tuple[tuple[int, int], ...] | None = None
    request_id: str | None = attrs.field(default=None, eq=False)
    worker: str | None = attrs.field(default=None, eq=False)
    raw: Mapping[str, Any] = attrs.field(repr=False)

    def __attrs_post_init__(self) -> None:
        """Store log-probabilities that rounding has put above 0 as 0, with a notice."""
        logprobs = _rounded(self.logprobs)
        if logprobs is not self.logprobs and logprobs != tuple(self.logprobs or ()):
            object.__setattr__(self, "logprobs", logprobs)
            object.__setattr__(self, "notices", (*self.notices, ROUNDED))

    @property
    def truncated(self) -> bool:
        """Whether the turn was cut short, so that no stop token was sampled."""
        return self.finish_reason in ("length", "abort")

    @property
    def notice_counts(self) -> Counter[str]:
        """How often the request has each notice: as often as the one of its turns that has it most often."""
        return reduce(or_, (Counter(one.notices) for one in (self, *self.siblings)))


@attrs.frozen(kw_only=True)
class PromptMedium:
    """A medium of a prompt.

    Attributes:
        place: Where its placeholder stands in the ids that are sent, and its identity. Servers believe that
            equal identities mean equal bytes.
        url: A data URL with its bytes; None where the caller does not have them.
    """

    place: MediaRange
    url: str | None = attrs.field(default=None, repr=False)


@attrs.frozen(kw_only=True)
class SampleRequest:
    """A turn to sample: after messages that the engine renders (MITO), or after exactly these ids (TITO).

    Attributes:
        messages: The prompt as messages; None where it is ids.
        ids: The prompt as ids; None where it is messages.
        media: The media whose placeholders stand in `ids`, in their order.
        rendering: What messages are rendered with, or the ids were, where the caller knows it. It changes no
            id, only how the message is parsed: without tools, no text is read as a tool call.
        sampling: The sampling parameters.
        watch: With it the turn is streamed: it is awaited with each delta, and the reply equals the one that
            would have come in one piece.

    Raises:
        InputError: There are both messages and ids, or neither, or `watch` cannot be awaited.

    >>> request = SampleRequest(messages=[{"role": "user", "content": "hi"}], rendering=Rendering())
    >>> request.after([5, 6]).ids, request.after([5, 6]).messages
    ([5, 6], None)
    """

    messages: Sequence[Message] | None = None
    ids: Sequence[int] | None = None
    media: Sequence[PromptMedium] = ()
    rendering: Rendering | None = None
    sampling: Sampling = attrs.field(factory=Sampling)
    watch: Watch | None = None

    def __attrs_post_init__(self) -> None:
        """Check what no type says."""
        check_watch(self.watch)
        if (self.messages is None) == (self.ids is None):
            raise InputError("a prompt is messages or ids: give one of them")

    @property
    def rendered_with(self) -> Rendering:
        """What messages are rendered with: nothing beside them unless it was given."""
        return self.rendering or Rendering()

    def after(self, ids: Sequence[int]) -> SampleRequest:
        """Return the request with these ids in place of its prompt."""
        return attrs.evolve(self, messages=None, ids=ids)


class Engine(Closing):
    """An inference engine that takes and returns ids; `tito_io.engines.media` says how images go beside them.

    A class of your own inherits from this one and writes `render` and `sample`, at least. Cancelling a call,
    by its cancel scope, aborts it at the engine. An error after the first id holds what was received in
    `EngineError.partial`.

    Attributes:
        name: The engine's name, for messages and records.
        keeps_ids: Whether the engine stores every conversation's ids itself and takes messages only.
        takes_media: Whether it may take media beside ids.
    """

    name: str
    keeps_ids: bool
    takes_media: bool = False

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them.

        With `add_generation_prompt`, `Rendering.opening` stands in the generation prompt's place; an engine
        that cannot render it raises `UnsupportedError`.
        """
        raise NotImplementedError

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn.

        Raises `OverlongError`, without sending them, where ids are known to leave no room in the context
        (`ModelLimits.room`); no caller checks the length again. Raises `MediaUnsupportedError`, and has
        sampled nothing, where it takes none of the media. `Reply.prompt_ids` are the ids that the engine made
        of ids and media.
        """
        raise NotImplementedError

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` where turns sampled so are known to have no sampling masks.

        By default nothing is known: a reply without them is then an error.
        """

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages, as `sample` does; the arguments are those of `SampleRequest`."""
        request = SampleRequest(messages=messages, rendering=rendering, sampling=sampling, watch=watch)
        return await self.sample(request)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after exactly these ids, as `sample` does."""
        request = SampleRequest(ids=ids, rendering=rendering, sampling=sampling, watch=watch)
        return await self.sample(request)

    async def from_ids_with_media(
        self,
        ids: Sequence[int],
        media: Sequence[PromptMedium],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids in which a placeholder stands for each of `media`, as `sample` does."""
        if not media:
            raise InputError("media is empty: call from_ids for a prompt without media")
        request = SampleRequest(ids=ids, media=media, rendering=rendering, sampling=sampling, watch=watch)
        return await self.sample(request)

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts; the engine is asked once. By default none is known."""
        return ModelLimits()

    async def aclose(self) -> None:
        """Close the connections, if there are any; leaving `async with` does so too."""


@attrs.frozen
class EngineAnswer:
    """An engine's answer, kept in an error for inspection.

    Attributes:
        status: The HTTP status.
        body: The decoded JSON body, or the text or bytes of an answer that is not JSON.
    """

    status: int
    body: Any = attrs.field(repr=False)


class ArgumentError(InputError):
    """An argument of an engine is missing or wrong.

    Attributes:
        parameter: The argument's name.
        message: What is wrong, what was expected and what to do. The text of the error is `message`, followed
            by `hint`.
        hint: What a program does about it; may be empty.
    """

    def __init__(self, message: str, *, parameter: str, hint: str = "") -> None:
        """Store the text and the argument's name."""
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.parameter = parameter
        self.hint = hint


class EngineError(TitoError):
    """A request to an engine failed.

    Attributes:
        answer: What the engine answered; None where no answer came.
        partial: The part of a turn that was received before the failure, or a whole turn from which no
            message could be made; None where no id was received. Its finish reason is `abort` unless the
            turn is whole.
        message: What went wrong and what to do. The text of the error is `message`, followed by `hint`.
        reason: The engine's own words, which may hold parts of the conversation; empty where none came.
        hint: Where a program finds more, such as the attribute with the engine's own text; may be empty.
        where: The request, such as `POST http://127.0.0.1:8000/v1/completions`; empty where none was sent.
        parameter: The argument to change, such as `base_url`, `api_key` or `route`; empty where no argument
            is wrong.
        request_id: The id under which the request was sent; None where none was.
    """

    partial: Reply | None = None
    request_id: str | None = None

    @property
    def reason(self) -> str:
        """The engine's own words about the failure; empty where none came.

        They may repeat parts of the conversation, so that they are in no text of an error: do not log them.
        """
        from .errors import Complaint  # noqa: PLC0415  # it is made of these errors

        return Complaint.of(self.answer.body).message if self.answer is not None else ""

    def __init__(
        self,
        message: str,
        answer: EngineAnswer | None = None,
        *,
        hint: str = "",
        where: str = "",
        parameter: str = "",
    ) -> None:
        """Store the text and the data of the failure."""
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.answer = answer
        self.hint = hint
        self.where = where
        self.parameter = parameter


class OverlongError(EngineError):
    """The prompt does not fit the model's context."""


class AuthenticationError(EngineError):
    """The engine rejected the credentials."""


class RequestError(EngineError):
    """The engine rejected the request: a wrong model, an unknown id, an unknown route."""


class UnreachableError(EngineError):
    """No answer came: connection refused or broken. Whether a turn was sampled is unknown."""


class TimedOutError(UnreachableError):
    """No answer came in time. The turn may still be sampled; its ids are lost."""


class ServerError(EngineError):
    """The engine failed while it processed the request."""


class AbortedError(EngineError):
    """The engine aborted the request: on demand, or because it shut down."""


class UnsupportedError(EngineError):
    """This engine, or this version of it, cannot do what was requested. Nothing was sent."""


class InvalidReplyError(EngineError):
    """The answer breaks an invariant: ids, log-probabilities and counts that do not agree."""


class EmptyReplyError(InvalidReplyError):
    """The answer holds no turn at all."""
