"""A client for many conversations: prompts go as ids where that is proven, else as messages.

The client keeps no conversation. The caller passes the steps so far and appends the one that comes back. So
any number of conversations may share one client, and a step may be continued twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Never

import attrs

from tito_core import InputError, Message, Reason, Step, Trajectory
from tito_io.engines.closing import Closing
from tito_io.engines.protocol import Rendering, SampleRequest, Sampling, Watch
from tito_io.engines.speculation import zero_logprobs

from .certificates import Certificates
from .sampling import as_arguments, no_others, parse_sampling
from .turn import ClientTurn, Route, reply_message
from .turn_sampler import TurnSampler, check_branches


def as_tools(tools: object) -> tuple[Mapping[str, Any], ...]:
    """Return tools as a tuple, which is empty for None; raises `InputError` for what is not a list of tools.

    >>> as_tools(["look"])
    Traceback (most recent call last):
    tito_core.errors.InputError: tools[0] is 'look': give an object with the key 'function'
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise InputError(f"tools is {tools!r:.60}: give a list of tools, or None")
    for index, tool in enumerate(tools):
        if not isinstance(tool, Mapping):
            raise InputError(f"tools[{index}] is {tool!r:.60}: give an object with the key 'function'")
    return tuple(tools)


@attrs.frozen
class CompletedTurn:
    """The turn of one request, or several turns after the same prompt.

    Attributes:
        turn: The first turn, and how its prompt went to the engine.
        steps: One step for each turn that was sampled; the first is that of `turn`.
    """

    turn: ClientTurn
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, turn: ClientTurn) -> CompletedTurn:
        """Return a turn with the steps of its siblings."""
        return cls(turn, tuple(one.step for one in turn.group))

    @property
    def step(self) -> Step:
        """The step to append to the trajectory."""
        return self.steps[0]

    @property
    def turns(self) -> tuple[ClientTurn, ...]:
        """One turn for each of `steps`, with its own reply."""
        return self.turn.group

    @property
    def message(self) -> Message:
        """The assistant message, which the next prompt repeats."""
        return reply_message(self.turn.reply)


@attrs.define
class Counts:
    """Counters of a client's requests.

    Attributes:
        routes: Turns by route.
        refusals: Turns that went by messages although there was a step to continue, or images that might
            have gone by ids, by reason.
        errors: Requests without a turn, by the error's class name.
        zero_logprobs: Sampled ids whose log-probability is exactly 0: the engine was certain of them, or did
            not compute it, as some do for accepted drafts (`tito_io.engines.speculation`).
        notices: Turns by what the engine's adapter did differently, such as leaving out bytes of images.
    """

    routes: Counter[Route] = attrs.field(factory=Counter)
    refusals: Counter[Reason] = attrs.field(factory=Counter)
    errors: Counter[str] = attrs.field(factory=Counter)
    notices: Counter[str] = attrs.field(factory=Counter)
    zero_logprobs: int = 0


@attrs.define
class TokenClient(Closing, TurnSampler):
    """Samples turns with an engine.

    The first turn of a conversation goes by messages. Later ones go by ids: those of the longest step that
    the prompt continues, and what the template writes after it. What cannot be proven goes by messages;
    `counts` says how often, and why. Images go by ids with `media`, from the first turn on, to engines that
    take them beside ids, if a `renderer` or the engine renders placeholders. Otherwise they go by messages,
    as do audio and files.

    Nothing is sampled twice. An engine's error is raised as it is, and no request that may have run is
    repeated; with `on_abort="resume"`, an aborted one goes on after the ids that it sampled. For connections
    that were never made, see `tito_io.engines.reconnect.Reconnecting`.

    How turns are sampled, those attributes of `TurnSampler` say.

    Attributes:
        counts: How requests went, and why.
        sampling_names: Sampling arguments that the engine knows, beside those of
            `tito_io.client.sampling.NAMES`. They are sent as they are.

    >>> import asyncio
    >>> from tito_io.engines.registry import embedded
    >>> client = TokenClient(embedded(seed=1))
    >>> prompt = [{"role": "user", "content": "Hello."}]
    >>> first = asyncio.run(client.turn([], prompt, sampling={"max_tokens": 16}))
    >>> first.turn.route
    <Route.MITO: 'messages in, tokens out'>
    >>> prompt += [first.message, {"role": "user", "content": "Go on."}]
    >>> second = asyncio.run(client.turn([first.step], prompt, sampling={"max_tokens": 16}))
    >>> second.turn.route, second.step.prompt_ids.starts_with(first.step.ids)
    (<Route.TITO: 'tokens in, tokens out'>, True)
    """

    counts: Counts = attrs.field(factory=Counts)
    sampling_names: frozenset[str] = frozenset()
    # Conversations share them: each case is certified once a rendering, and not once a conversation.
    _certificates: Certificates = attrs.field(factory=Certificates, repr=False)

    async def turn(
        self,
        steps: Sequence[Step],
        prompt: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        conversation: str | None = None,
        **unknown: Never,
    ) -> CompletedTurn:
        """Sample the turn after `prompt`.

        Args:
            steps: The conversation's steps so far, and those of its branches. A `Trajectory` costs what is
                new since the last turn; a plain list is read through at every turn.
            prompt: The whole conversation so far.
            tools: The tools that the chat template renders, as OpenAI's API takes them.
            sampling: Sampling arguments under the names of OpenAI's client, such as
                `{"max_tokens": 64, "extra_body": {"top_k": 5}}`.
            watch: Called with every delta of the reply as it comes.
            conversation: The conversation's name, the same for all of its turns: routers in front of several
                engines keep it on one of them by that. It changes no id.

        Raises:
            InputError: An argument is malformed or unknown, or cannot be honoured.
            OverlongError: The prompt does not fit. Nothing was sent where the model's length is known.
            AbortedError: The engine gave the turn up; `partial` holds what it had sampled.
            EngineError: `EmptyReplyError`, `InvalidReplyError`, `AuthenticationError`, `RequestError`,
                `ServerError`, `TimedOutError` or `UnreachableError`, as the engine's adapter raises them.
        """
        no_others(unknown)
        offered = as_tools(tools)
        args = parse_sampling(sampling, self.sampling_names).among(offered)
        rendering = Rendering(tools=offered, template_args=args.template_args)
        named = attrs.evolve(args.sampling, conversation=conversation)
        return await self.sample(steps, prompt, rendering, named, watch=watch)

    async def turns(
        self,
        steps: Sequence[Step],
        prompt: Sequence[Message],
        n: int,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
        conversation: str | None = None,
        **unknown: Never,
    ) -> CompletedTurn:
        """Sample `n` turns after `prompt`; `CompletedTurn.steps` are the branches, with equal prompt ids.

        The prompt, and the bytes of its images, go to the engine once where it samples several turns a
        request. Else a first request fills its prefix cache and the others follow (notice `group-split`).

        Args:
            steps: The conversation's steps so far, and those of its branches.
            prompt: The whole conversation so far.
            n: How many turns to sample.
            tools: The tools that the chat template renders.
            sampling: Sampling arguments, without `n`.
            watch: Called with every delta of every reply as it comes; `Delta.index` says of which.
            conversation: The conversation's name, as for `turn`.

        Raises:
            InputError: `n` is not a whole number of at least 1, `sampling` has an `n` of its own, or another
                argument is wrong.
            UnsupportedError: The engine keeps ids itself: its conversations have no branches.
            EngineError: As `turn` raises it.

        >>> import asyncio
        >>> from tito_io.engines.registry import embedded
        >>> group = asyncio.run(TokenClient(embedded()).turns([], [{"role": "user", "content": "Hi."}], 3))
        >>> len(group.steps), len({tuple(step.prompt_ids) for step in group.steps})
        (3, 1)
        """
        no_others(unknown)
        given = as_arguments(sampling)
        if "n" in given:
            raise InputError("sampling.n is the argument `n` of `turns`; leave it out")
        if type(n) is not int or n < 1:
            raise InputError(f"n is {n!r:.60}: give the number of turns to sample, at least 1")
        check_branches(self.engine)
        each = {**given, "n": n}
        return await self.turn(
            steps, prompt, tools=tools, sampling=each, watch=watch, conversation=conversation
        )

    async def sample(
        self,
        steps: Sequence[Step],
        prompt: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> CompletedTurn:
        """Sample the turn after `prompt`, as `turn` does, with arguments that were read before.

        Args:
            steps: The conversation's steps so far, and those of its branches.
            prompt: The whole conversation so far.
            rendering: The tools, and the arguments of the template.
            sampling: How to sample.
            watch: Called with every delta of the reply as it comes.
        """
        trajectory = steps if isinstance(steps, Trajectory) else Trajectory(steps)
        known = await self._certificates.of(rendering)
        try:
            request = SampleRequest(messages=prompt, rendering=rendering, sampling=sampling, watch=watch)
            turn = await self.turn_after(trajectory, request, known)
        except Exception as error:
            self.counts.errors[type(error).__name__] += 1
            raise
        self.counts.routes[turn.route] += 1
        self.counts.notices.update(turn.reply.notice_counts)
        self.counts.zero_logprobs += zero_logprobs(turn.reply)
        if turn.refusal is not None:
            self.counts.refusals[turn.refusal.reason] += 1
        return CompletedTurn.of(turn)

    async def aclose(self) -> None:
        """Close the engine's connections; leaving `async with` does so too."""
        await self.engine.aclose()
