"""Read the facts of an SGLang server: version, longest prompt, seeds, vocabulary size.

Nothing here samples. What a server does not state is None; an outage is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus

import attrs

from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import RequestError
from tito_io.engines.served_tokenizer import TOKENIZE
from tito_io.engines.wire import Wire

from .requests import GENERATE

INFO = ("/server_info", "/get_server_info")
"""The newer and the older name of one route."""
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
"""A request that the server rejects for two reasons before it samples; the first names the vocabulary size.

The second, two grammars for one turn, is for versions that do not check the first.
"""
LAST_ID = re.compile(r"logit_bias must has? keys in \[0, (\d+)\]")


@attrs.frozen
class ServerFacts:
    """The facts that a server states about itself; None if it does not.

    Attributes:
        version: Such as `(0, 5, 23)`.
        max_prompt: The most ids of a prompt, a few less than those of prompt and completion together.
        seeded: Whether it samples with a request's seed.
    """

    version: tuple[int, ...] | None = None
    max_prompt: int | None = None
    seeded: bool | None = None

    @classmethod
    def of(cls, info: Mapping[str, object]) -> ServerFacts:
        """Read the server's description.

        >>> ServerFacts.of({"version": "0.5.23.post1", "max_req_input_len": 2042})
        ServerFacts(version=(0, 5, 23), max_prompt=2041, seeded=None)
        """
        match = NUMBERS.match(str(info.get("version")))
        length, seeded = info.get("max_req_input_len"), info.get("enable_deterministic_inference")
        return cls(
            tuple(map(int, match.groups())) if match else None,
            length - 1 if type(length) is int else None,
            seeded if isinstance(seeded, bool) else None,
        )

    def at_least(self, *version: int) -> bool:
        """Whether the server is known to be of that version or a later one."""
        return self.version is not None and self.version >= version


async def server_facts(wire: Wire) -> ServerFacts:
    """Ask the server for its description, by the newer name of the route or the older."""
    for path in INFO:
        try:
            info = await wire.get(path)
        except RequestError as error:
            if error.answer is None or error.answer.status != HTTPStatus.NOT_FOUND:
                raise
        else:
            return ServerFacts.of(info if isinstance(info, dict) else {})
    return ServerFacts()


async def has_tokenizer(wire: Wire) -> bool:
    """Whether the server has SGLang's `/tokenize`; its router answers 404 there."""
    try:
        await wire.post(TOKENIZE, {"prompt": "a", "add_special_tokens": False})
    except RequestError as error:
        return error.answer is None or error.answer.status != HTTPStatus.NOT_FOUND
    return True


async def probed_vocabulary_size(wire: Wire) -> int | None:
    """Return how many ids there are; None where the server does not say.

    No route states it. A bias on an id that does not exist is rejected with the range of valid ids, before
    anything is sampled.
    """
    try:
        await wire.post(GENERATE, PROBE)
    except RequestError as error:
        complaint = Complaint.of(error.answer.body if error.answer else None)
        match = LAST_ID.search(complaint.message)
        return int(match[1]) + 1 if match else None
    return None
