"""What an SGLang server says of itself, each fact asked for once.

Nothing here samples. Where a server does not say, the answer is None, and an outage is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import attrs

from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import EngineAnswer, RequestError
from tito_io.engines.replies.invariants import Check
from tito_io.engines.wire import Wire

from .requests import GENERATE
from .served import SglangModels, chosen

MODELS = "/v1/models"
INFO = ("/server_info", "/get_server_info")
"""The newer and the older name of the same route."""
NUMBERS = re.compile(r"(\d+)\.(\d+)\.(\d+)")

PROBE = {
    "input_ids": [0],
    "sampling_params": {
        "max_new_tokens": 1,
        "logit_bias": {str(2**31 - 1): 0.0},
        "regex": "a",
        "json_schema": "{}",
    },
}
"""A request that is refused for two reasons, before anything is sampled; the first names the vocabulary.

The other, two grammars for one turn, is there for versions that would not look at the first.
"""
LAST_ID = re.compile(r"logit_bias must has? keys in \[0, (\d+)\]")


@attrs.frozen
class ServerFacts:
    """What a server says of itself."""

    version: tuple[int, ...] | None = None
    """None where it does not say."""
    max_prompt: int | None = None
    """The most ids of a prompt, which are some fewer than those of prompt and turn together."""
    seeded: bool | None = None
    """Whether it keeps to a seed."""

    @classmethod
    def of(cls, info: Mapping[str, object]) -> ServerFacts:
        """Read the server's description.

        >>> ServerFacts.of({"version": "0.5.23.post1", "max_req_input_len": 2042})
        Facts(version=(0, 5, 23), max_prompt=2041, seeded=None)
        """
        found = NUMBERS.match(str(info.get("version")))
        length, seeded = info.get("max_req_input_len"), info.get("enable_deterministic_inference")
        return cls(
            tuple(map(int, found.groups())) if found else None,
            length - 1 if type(length) is int else None,
            seeded if isinstance(seeded, bool) else None,
        )

    def at_least(self, *version: int) -> bool:
        """Whether the server is known to be of that version or a later one."""
        return self.version is not None and self.version >= version


@attrs.define
class Server:
    """A server, and what it said so far."""

    wire: Wire
    model: str | None
    """The model's name, as the caller said it."""
    vocab_size: int | None
    """How many ids there are, as the caller said it or as the server did."""
    _served: SglangModels | None = None
    _facts: ServerFacts | None = None

    async def models(self) -> tuple[SglangModels, ...]:
        """Return the models that the server has."""
        answer = await self.wire.get(MODELS)
        check = Check(self.wire.where("GET", MODELS), EngineAnswer(200, answer))
        return tuple(SglangModels.of(check, card) for card in check.get(answer, "data", list))

    async def served(self) -> SglangModels:
        """Return the model in use."""
        if self._served is None:
            self._served = chosen(await self.models(), self.model)
        return self._served

    async def facts(self) -> ServerFacts:
        """Return the server's description of itself."""
        if self._facts is None:
            info = await self._info()
            self._facts = ServerFacts.of(info if isinstance(info, dict) else {})
        return self._facts

    async def vocabulary(self) -> int | None:
        """Return how many ids there are.

        No route says it. A bias on an id that nobody has is refused, with the range of those that there are,
        before anything is sampled.
        """
        if self.vocab_size is None:
            try:
                await self.wire.post(GENERATE, PROBE)
            except RequestError as error:
                complaint = Complaint.of(error.answer.body if error.answer else None)
                found = LAST_ID.search(complaint.message)
                self.vocab_size = int(found[1]) + 1 if found else None
        return self.vocab_size

    async def _info(self) -> Any:
        """Return the description, under the newer name of its route or the older."""
        for path in INFO:
            try:
                return await self.wire.get(path)
            except RequestError as error:
                if error.answer is None or error.answer.status != HTTPStatus.NOT_FOUND:
                    raise
        return None
