"""Servers that cannot be used by ids, refused by name: what each lacks, and what to use in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # a command's options need the names alone, and --help has time for no more
    from .wire import Wire

INSTEAD = (
    "use llama.cpp's server with the same GGUF file: `--gguf FILE`, or `--engine llamacpp` with a server of "
    "your own"
)


class RefusedServer(NamedTuple):
    """A server that has no engine here; no `attrs` class, whose import --help would wait for.

    Attributes:
        name: Its name.
        lacks: What it lacks.
        sign: What its answer to `GET /` holds.
    """

    name: str
    lacks: str
    sign: bytes

    @property
    def why(self) -> str:
        """What it lacks, and what to use in its place."""
        return f"{self.name} {self.lacks}: {INSTEAD}"


REFUSED: Mapping[str, RefusedServer] = {
    "ollama": RefusedServer(
        "Ollama",
        # `Context` of server/routes.go, `GenerateHandler`, is detokenized to text.
        "returns no sampled ids, and turns prompt ids into text before it tokenizes them again",
        b"Ollama is running",  # server/routes.go
    ),
    "lmstudio": RefusedServer(
        "LM Studio",
        "takes prompts as text alone and returns no sampled ids",
        b"Unexpected endpoint or method. (GET /)",  # lmstudio-bug-tracker issues 618 and 1323
    ),
}
"""The servers by the names that users write."""
OTHER_NAMES: Mapping[str, str] = {"lm-studio": "lmstudio", "lm_studio": "lmstudio"}
OWNERS = frozenset(("llamacpp", "lmdeploy", "nvidia", "sglang", "tensorrt_llm", "vllm"))
"""What servers that have an engine here call the owner of a model."""


def refused_name(name: str) -> RefusedServer | None:
    """Return the refused server that a user's word means; None for another word.

    >>> refused_name("LM-Studio").name, refused_name("vllm")
    ('LM Studio', None)
    """
    word = name.strip().lower()
    return REFUSED.get(OTHER_NAMES.get(word, word))


async def check_served(wire: Wire, owners: Iterable[str | None]) -> None:
    """Raise `UnsupportedError` where a server is one that is refused.

    Both list their models as others do, under owners of their own. So only a server without models, or with a
    model of an unknown owner, is asked what it is.
    """
    from .protocol import UnsupportedError  # noqa: PLC0415  # as above

    known = set(owners)
    if known and known <= {None, *OWNERS}:
        return
    found = await _asked(wire)
    if found is not None:
        said = f"this is {found.name}, which {found.lacks}: {INSTEAD}"
        raise UnsupportedError(f"{wire.where('GET', '/')}: {said}. Nothing was sampled", parameter="base_url")


async def _asked(wire: Wire) -> RefusedServer | None:
    """Return the refused server that answers; None for any other, and where no answer comes."""
    from .protocol import EngineError  # noqa: PLC0415  # as above

    try:
        content = (await wire.exchange("GET", "/")).content
    except EngineError:
        return None
    return next((one for one in REFUSED.values() if one.sign in content[:LONGEST]), None)


LONGEST = 1000
"""How many bytes of an answer are looked at."""
