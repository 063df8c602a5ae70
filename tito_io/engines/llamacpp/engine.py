"""The llama.cpp adapter.

Ids go in by `/completion`, the only route that takes them and returns them. Its streams leave out the ids
inside characters, so a turn is never streamed: `watch` gets it in one piece. Messages are rendered in this
process, since the server's own template engine and tokenizer are others: it drops keys of tools, writes
numbers anew, continues a last assistant message, and normalizes no text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

import attrs

from tito_io.engines.family_engine import FamilyEngine
from tito_io.engines.grammar import check_unconstrained, constrained, may_reason
from tito_io.engines.http_engine import Connection, ServedModel, TurnAfterIds
from tito_io.engines.protocol import Reply, UnsupportedError, watch_whole
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.output_parser import Hermes, OutputFormat, OutputParser
from tito_io.engines.replies.spelling import Spelling
from tito_io.engines.turn_request import Question
from tito_io.families.family import Family

from .recovery import Recovery, whole_id
from .replies import LlamaRequest
from .requests import COMPLETION, completion, end_probe, schema_probe

NO_JSON = "z"
"""A letter with which no JSON value begins."""


@attrs.frozen
class LlamaModel(ServedModel):
    """A model that llama.cpp lists.

    Attributes:
        vocab_size: How many ids there are; None where the server does not say.
        aliases: Its other names.
    """

    vocab_size: int | None = None
    aliases: tuple[str, ...] = ()

    @classmethod
    def of(cls, check: Check, card: object, length_key: str = "n_ctx") -> LlamaModel:
        """Read one entry of the server's list; sizes stand in its `meta`."""
        fields = check.typed(card, dict, "card")
        meta = check.find(fields, "meta", dict) or {}
        aliases = check.find(fields, "aliases", list) or []
        return cls(
            name=check.get(fields, "id", str),
            max_model_len=check.find(meta, length_key, int),
            owner=check.find(fields, "owned_by", str),
            vocab_size=check.find(meta, "n_vocab", int),
            aliases=tuple(check.typed(alias, str, "aliases") for alias in aliases),
        )


class LlamaCpp(FamilyEngine):
    """A llama.cpp server, `llama-server`.

    Nothing is sent before a method is called. A turn is sampled from the model's own distribution: samplers
    that `Sampling` leaves out are sent as neutral, whatever the server's own defaults are.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:8080`; a trailing `/v1` is dropped.
        family: The model's folder: messages are rendered with it, and parsed from ids.
        recover_logprobs: Whether to ask afterwards for log-probabilities that the server leaves out. Each
            costs a request; without it they are None. Default False.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        model: The model's name; may be left out where the server has one model. llama.cpp answers whatever
            name it is given, so the name is compared with the server's list.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. No byte comes before
            a turn is whole. Default 600.
        vocab_size: How many ids there are; the server's own number where it is left out.
        transport: Replaces the network.

    Attributes:
        name: `llamacpp`.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        family: The model's folder.
        vocab_size: As it was passed.
        title: llama.cpp, for messages.

    Raises:
        InputError: `base_url` or `output_format` is invalid; or the vocabulary has no plain letters, which
            `recover_logprobs` needs.
    """

    name: str = "llamacpp"
    renders_as: str = "llamacpp"
    title = "llama.cpp"
    length_key = "n_ctx"
    listed = LlamaModel

    def __init__(
        self,
        base_url: str,
        *,
        family: Family,
        recover_logprobs: bool = False,
        output_format: OutputFormat | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        super().__init__(base_url, family=family, output_format=output_format, **connection)
        self._whole = whole_id(family) if recover_logprobs else None
        self._ends: set[int] = set()
        """Ids that are known to end a turn at this server."""
        self._bound: set[str] = set()
        """JSON schemas that are known to bind a turn at this server."""
        self._spelling = Spelling.of(family)

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the model in use; a name that is not listed is rejected."""
        aliased = (one for one in models if isinstance(one, LlamaModel) and self.model in one.aliases)
        return next(aliased, None) or super()._select(models)

    async def _vocabulary_size(self) -> int:
        """Return how many ids there are, by the server's own count, or the folder's where it has none."""
        model = await self.served()
        theirs = model.vocab_size if isinstance(model, LlamaModel) else None
        return self.vocab_size or theirs or self.family.vocab_size

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        """Sample a turn by `/completion`; the message is parsed here."""
        parser = await self.output_parser()
        watch = await parser.ready(turn.watch, turn.rendering, turn.ids)
        schema = await self._schema(turn, parser)
        await self._check_stop_ids(turn)
        reply = await self._send(await self._request(turn, schema), None, COMPLETION)
        if self._whole is not None:
            facts = turn.model.name, self._whole, await self._vocabulary_size()
            reply = await Recovery(self.wire, *facts, turn.sampling.extra).completed(reply)
        if watch is not None:
            await watch_whole(watch, reply)
        return await self._with_messages(reply, turn.rendering)

    # Constraints.

    async def _schema(self, turn: TurnAfterIds, parser: OutputParser) -> Mapping[str, Any] | None:
        """Return the JSON schema of a constrained turn's answer; None for a free turn.

        Raises:
            UnsupportedError: The grammar would have to hold more than the schema.
        """
        constraint = turn.sampling.constraint
        if constraint is None:
            return None
        called = constraint.must_call is not None or constraint.callable or constraint.one_call
        if constraint.schema is None or called or (turn.rendering is not None and turn.rendering.tools):
            check_unconstrained(
                turn.sampling,
                self.title,
                "it is bound by a JSON schema alone, without tools, and not by the form of tool calls",
            )
        if not isinstance(parser, Hermes) or may_reason(turn.ids, await parser.tags()):
            check_unconstrained(
                turn.sampling,
                self.title,
                "its grammar would bind the reasoning, too; close it in the prompt by a template argument, "
                "such as enable_thinking=False",
            )
        constrained(turn.sampling, {})  # raises for a grammar in `Sampling.extra`
        if constraint.schema is not None:
            await self._check_schema(turn.model.name, constraint.schema)
        return constraint.schema

    async def _check_schema(self, model: str, schema: Mapping[str, Any]) -> None:
        """Raise `UnsupportedError` for a schema that the server ignores; it is asked once for each."""
        key = json.dumps(schema, sort_keys=True)
        if key in self._bound:
            return
        letter = self.family.encode(NO_JSON)[0]
        answer = await self.wire.post(COMPLETION, schema_probe(model, letter, schema))
        if self._check(COMPLETION, answer).ids(answer, "tokens") == (letter,):
            raise UnsupportedError(
                f"response_format: the JSON schema does not bind {model}: llama.cpp makes no grammar of "
                "it, and ignores it; simplify it. No turn was sampled",
                parameter="sampling",
            )
        self._bound.add(key)

    async def _request(self, turn: TurnAfterIds, schema: Mapping[str, Any] | None) -> LlamaRequest:
        sampling = attrs.evolve(turn.sampling, stop_ids=())  # which end turns at this server by themselves
        return LlamaRequest(
            wire=self.wire,
            path=COMPLETION,
            body=completion(attrs.evolve(turn, sampling=sampling), schema),
            vocab_size=await self._vocabulary_size(),
            question=Question(turn.sampling, turn.ids),
            conversation=turn.sampling.conversation,
            spelling=self._spelling,
        )

    async def _check_stop_ids(self, turn: TurnAfterIds) -> None:
        """Raise `UnsupportedError` for stop ids that do not end a turn at this server by themselves.

        A request cannot name any. Whether an id ends turns is asked once: it is forced to be sampled.
        """
        for index in turn.sampling.stop_ids:
            if index not in self._ends:
                await self._sendable([index])
                answer = await self.wire.post(COMPLETION, end_probe(turn.model.name, index))
                check = self._check(COMPLETION, answer)
                if check.ids(answer, "tokens") != (index,) or check.get(answer, "stop_type", str) != "eos":
                    raise UnsupportedError(
                        f"Sampling.stop_ids: {index} does not end a turn of {turn.model.name}, and llama.cpp "
                        "takes no stop ids; leave it out, or pass a string as `stop`. No turn was sampled",
                        parameter="sampling",
                    )
                self._ends.add(index)
