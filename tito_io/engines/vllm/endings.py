"""Telling a cut turn from a finished one where vLLM's chat route does not."""

from __future__ import annotations

import attrs

from tito_io.engines.protocol import Reply


@attrs.define
class Endings:
    """Tells a cut turn from a finished one where vLLM does not.

    The chat route says `tool_calls` of any turn in which a call was parsed, of one that was cut off after the
    call too. The one end that it does not name is the end-of-sequence id; it is learnt from other turns.
    """

    seen: set[int] = attrs.field(factory=set)
    """Ids that turns have ended with, where the server named no other reason."""

    def learn(self, reply: Reply) -> None:
        """Take note of how an honestly named end looks."""
        if reply.finish_reason == "stop" and reply.stop_reason is None:
            self.seen.update(reply.completion_ids[-1:])

    def settle(self, reply: Reply, limit: int | None) -> Reply:
        """Return a chat's reply with the reason that it ended for; `limit` is the most ids it could have.

        A turn that fills its limit was cut where its last id ends no turn. As long as no end is known, the
        server's word stands.
        """
        self.learn(reply)
        siblings = tuple(self.settle(one, limit) for one in reply.siblings)
        reply = attrs.evolve(reply, siblings=siblings)
        if reply.finish_reason != "tool_calls" or len(reply.completion_ids) != limit or not self.seen:
            return reply
        ended = reply.stop_reason is not None or reply.completion_ids[-1] in self.seen
        return reply if ended else attrs.evolve(reply, finish_reason="length")
