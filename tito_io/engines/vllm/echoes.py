"""Did a prompt come back with a reply, so that the next one need not (see `tito_io.engines.prompt_echo`)?

The count of a prompt is enough only where sampled ids come back without the prompt's, too.
"""

from __future__ import annotations

from tito_io.engines.protocol import Reply

from .replies import VllmQuestion
from .routes import WAYS


def repeated(way: str, asked: VllmQuestion, reply: Reply) -> bool:
    """Tell whether ids that were sent came back, and the sampled ones by themselves."""
    shape, choice = WAYS[way].shape, reply.raw["choices"][0]
    holder = choice if shape.ids_in_choice else reply.raw
    came = holder.get("prompt_token_ids") is not None and shape.names_ids(choice)
    return asked.sent is not None and came
