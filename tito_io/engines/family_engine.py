"""Base class of the adapters for servers that render and parse nothing by ids: a model folder does both.

Messages are rendered in this process and go by ids; a message is parsed from the sampled ids. A subclass
writes `_sample`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Unpack

from tito_io.families.family import Family

from .http_engine import Connection, HttpEngine, ServedModel, sole_model
from .media import rendered, unsupported
from .protocol import Rendering, Reply, SampleRequest
from .replies.output_parser import OutputFormat, with_messages
from .with_family import WithFamily


class FamilyEngine(WithFamily, HttpEngine):
    """Base class of these adapters.

    Args:
        base_url: The server's address; a trailing `/v1` is dropped.
        family: The model's folder: messages are rendered with it, and parsed from ids.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        model: The model's name; may be left out where the server has one model.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        vocab_size: How many ids there are; the folder's number where it is left out.
        transport: Replaces the network.

    Attributes:
        name: The engine's name.
        keeps_ids: False: prompts go by ids.
        model: The model's name as it was passed.
        family: The model's folder.
        vocab_size: As it was passed.
        title: The server's name, for messages.

    Raises:
        InputError: `base_url`, `family` or `output_format` is invalid.
    """

    family: Family
    title: ClassVar[str]
    checks_name = True

    def __init__(
        self,
        base_url: str,
        *,
        family: Family,
        output_format: OutputFormat | None = None,
        **connection: Unpack[Connection],
    ) -> None:
        self._take_family(family, output_format)
        super().__init__(base_url, **connection)

    async def _sample_messages(self, request: SampleRequest) -> Reply:
        """Sample a turn after messages; they are rendered in this process, and go by ids.

        Raises `MediaUnsupportedError` for media; nothing was sent.
        """
        refusal = unsupported(self.title, "takes no media from this adapter, by ids or by messages")
        return await self.sample(await rendered(self, request, refusal))

    def _select(self, models: Sequence[ServedModel]) -> ServedModel:
        """Return the model in use; a name that is not listed is rejected."""
        return next((one for one in models if one.name == self.model), None) or sole_model(models, self.model)

    async def _vocabulary_size(self) -> int:
        """Return how many ids there are."""
        return self.vocab_size or self.family.vocab_size

    async def _with_messages(self, reply: Reply, rendering: Rendering | None) -> Reply:
        """Return a reply with the message of each turn. The answer has no id from which to name its calls."""
        return await with_messages(await self.output_parser(), reply, rendering=rendering)
