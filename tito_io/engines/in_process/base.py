"""Base class of the engines that are objects in this process.

A subclass starts a turn and puts what is sampled into a mailbox. Everything else is here. Messages are
rendered and parsed with a family. Ids and sizes are checked before the object gets them. What it reports is
checked like the answer of a server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar

import anyio

from tito_core import InputError, TitoError
from tito_io.engines.errors import Complaint
from tito_io.engines.grammar import (
    Format,
    GrammarMaker,
    check_unconstrained,
    constrained,
    no_grammar,
    reasoning_open,
    with_reasoning,
)
from tito_io.engines.media import rendered, unsupported
from tito_io.engines.openai_fields import check_sampling
from tito_io.engines.prompt_ids import prompt_ids
from tito_io.engines.protocol import (
    Engine,
    EngineError,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    SampleRequest,
    Sampling,
    ServerError,
    UnsupportedError,
    Watch,
)
from tito_io.engines.replies.output_parser import Harmony, OutputFormat, OutputParser, with_messages
from tito_io.engines.sampling_masks import no_masks
from tito_io.engines.with_family import WithFamily
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .mailbox import Mailbox
from .turns import Answer, LocalTurn, Piece, local_check

Cancel = Callable[[], object]
"""Makes the object give a turn up; it may be called from any thread, and after the turn's end."""


class InProcessEngine(WithFamily, Engine):
    """Base class of the engines in this process.

    Args:
        family: Renders messages and parses sampled ids: of the model's folder (`Family.load`), or of its
            tokenizer in memory (`Family.of`).
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.

    Attributes:
        name: The engine's name.
        keeps_ids: False: prompts go by ids.
        where: The object's method, as errors name it.
        extras: The keys that `Sampling.extra` may hold.
        family: As it was passed.

    Raises:
        InputError: `output_format` is invalid.
    """

    name: str
    keeps_ids: bool = False
    where: ClassVar[str]
    extras: ClassVar[Collection[str]]

    def __init__(
        self, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        self._take_family(family, output_format)
        self._grammars = GrammarMaker(self.render)

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn; messages are rendered with the family.

        Raises:
            TemplateRefused: The chat template rejects the messages.
            MediaUnsupportedError: There are media: of an image, ids would hold the placeholder alone.
            InputError: An id is not the model's, or a sampling parameter is invalid.
            OverlongError: The ids leave no room in the model's context.
            UnsupportedError: The object cannot honour a sampling parameter.

        In all five cases nothing was sampled.
        """
        refusal = unsupported(self.name, "takes text alone")
        if request.media:
            raise refusal
        if request.ids is None:
            request = await rendered(self, request, refusal)
        ids, rendering, watch = request.ids or (), request.rendering, request.watch
        parser = await self.output_parser()
        sampling = await self._bound(ids, request.sampling, rendering, parser)
        turn = await self._checked_turn(ids, sampling, parser, stream=watch is not None)
        watch = await parser.ready(watch, rendering, turn.ids)
        limits = await self.limits()
        answer = Answer(local_check(self.where, limits.vocab_size), turn, self.family.decode)
        try:
            await self._receive(turn, answer, watch)
            reply = answer.reply()
        except TitoError as error:
            if isinstance(error, EngineError) and error.partial is None:
                error.partial = answer.partial()
            raise
        return await with_messages(parser, reply, rendering=rendering)

    # What a subclass writes.

    def _start(self, turn: LocalTurn, pieces: Mailbox[Piece]) -> Cancel:
        """Start a turn; put what is sampled into `pieces`, and close it at the end, whatever happens.

        Returns what makes the object give the turn up; `pieces` is closed after that, too.
        """
        raise NotImplementedError

    def _check_sampling(self, sampling: Sampling) -> None:
        """Raise `UnsupportedError` for parameters that the object cannot honour."""

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` where the object gives no sampling masks."""
        del sampling
        raise no_masks(
            f"{self.where} gives none: leave them out, or sample with vLLM, SGLang or transformers"
        )

    def _grammar_keys(self, answer: Format) -> Mapping[str, Any] | None:
        """Return the further keys that bind a turn to a grammar; None where the object takes none."""

    def _frees_reasoning(self) -> bool:
        """Whether the object's own parser leaves reasoning that a prompt has opened out of a grammar."""
        return False

    # What is shared.

    async def _bound(
        self, ids: Sequence[int], sampling: Sampling, rendering: Rendering | None, parser: OutputParser
    ) -> Sampling:
        """Return parameters with a grammar in place of the constraint."""
        if sampling.constraint is None:
            return sampling
        answer = await self._grammars.answer_format(sampling.constraint, rendering, parser)
        if answer is None:
            raise no_grammar()
        tags = await parser.tags()
        free = self._frees_reasoning() and reasoning_open(ids, tags)
        keys = self._grammar_keys(answer if free else with_reasoning(answer, ids, tags))
        if keys is None:
            check_unconstrained(sampling, self.name, "the object takes no grammar")
        return constrained(sampling, keys or {})

    async def _receive(self, turn: LocalTurn, answer: Answer, watch: Watch | None) -> None:
        """Add what is sampled to `answer`; make the object give the turn up where the caller does so."""
        pieces: Mailbox[Piece] = Mailbox()
        try:
            cancel = self._start(turn, pieces)
        except Exception as error:
            raise failure(self.where, error) from error
        try:
            while (piece := await self._next(pieces)) is not None:
                delta = answer.add(piece)
                if watch is not None and (delta.ids or delta.text):
                    await watch(delta)
        finally:
            # The owner may change weights after a cancelled turn: nothing may be running then.
            cancel()
            with anyio.CancelScope(shield=True):
                await pieces.closed.wait()

    async def _next(self, pieces: Mailbox[Piece]) -> Piece | None:
        try:
            return await pieces.receive()
        except Exception as error:
            raise failure(self.where, error) from error

    async def _checked_turn(
        self, ids: Sequence[int], sampling: Sampling, parser: OutputParser, *, stream: bool
    ) -> LocalTurn:
        """Return a turn after ids that are the model's and fit it, with parameters that can be honoured.

        Objects check less than servers: an id beyond the vocabulary ends some engines.
        """
        check_sampling(sampling, sampling.max_tokens, owned=(), logprobs_optional=True)
        self._check_extra(sampling)
        self._check_sampling(sampling)
        if sampling.sampling_masks:
            await self.check_masks(sampling)
        limits = await self.limits()
        prompt = prompt_ids(ids, limits.vocab_size)
        room = limits.room(len(prompt), sampling.max_tokens)
        if room is None:
            raise InputError(
                "Sampling.max_tokens is None, and the model does not state its context length: pass a number"
            )
        own = await parser.stop_ids() if isinstance(parser, Harmony) else ()
        stops = tuple(dict.fromkeys((*sampling.stop_ids, *own)))
        return LocalTurn(ids=prompt, sampling=sampling, max_tokens=room, stop_ids=stops, stream=stream)

    def _check_extra(self, sampling: Sampling) -> None:
        """Raise `UnsupportedError` for further keys that the object does not take."""
        unknown = sorted(sampling.extra.keys() - set(self.extras))
        if unknown:
            raise UnsupportedError(
                f"Sampling.extra: {unknown[0]!r:.60} cannot be passed to {self.where}: it is unknown there, "
                "it has a field of `Sampling`, or the adapter sets it. Known are "
                f"{', '.join(sorted(self.extras))}. Nothing was sampled",
                parameter="sampling",
            )


def failure(where: str, error: Exception) -> Exception:
    """Return the error for what an object raised; its text may hold the prompt, and is left in the cause."""
    if isinstance(error, TitoError):
        return error
    complaint = Complaint.of(str(error))
    begun = f"{where} raised {type(error).__name__}{complaint.quoted}"
    hint = "its own words are in the error's `__cause__`"
    rejected = isinstance(error, ValueError | TypeError) or type(error).__name__ in CLIENT_ERRORS
    if rejected and complaint.overlong:
        return OverlongError(f"{begun}: the prompt does not fit the model's context; shorten it", hint=hint)
    if rejected:
        return RequestError(f"{begun}: it refuses this request; correct what it names", hint=hint)
    return ServerError(f"{begun}: the engine failed; look into its log", hint=hint)


CLIENT_ERRORS = frozenset(
    ("VLLMClientError", "VLLMNotFoundError", "VLLMUnprocessableEntityError", "VLLMValidationError")
)
"""What vLLM raises for requests that it rejects; it is not a `ValueError` (`vllm/exceptions.py`, 0.32)."""
