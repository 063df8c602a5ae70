"""When a prompt's ids need not come back: what is sent with every turn is then read by nobody but the engine.

A route that repeated a prompt rightly takes ids. After that its count of them is enough, if sampled ids come
back without the prompt's, too. A reply that does not hold together has the next prompt repeated.
"""

from __future__ import annotations

import attrs

from tito_io.engines.protocol import Reply

from .routes import WAYS


@attrs.define
class Echoes:
    """The routes that have repeated a prompt."""

    proven: set[str] = attrs.field(factory=set)

    def learn(self, way: str, reply: Reply) -> None:
        """Take note of a reply to ids, found right."""
        shape, choice = WAYS[way].shape, reply.raw["choices"][0]
        holder = choice if shape.ids_in_choice else reply.raw
        if holder.get("prompt_token_ids") is not None and shape.names_ids(choice):
            self.proven.add(way)

    def doubt(self, way: str) -> None:
        """Take note of a reply that does not hold together."""
        self.proven.discard(way)
