"""The name of the model that a gateway serves: its user's word, or the engine's."""

from __future__ import annotations

from tito_io.engines.protocol import Engine


async def named_by(engine: Engine) -> str:
    """Return the name of the model that an engine serves; where it does not tell, its own.

    Raises the engine's errors.
    """
    served = getattr(engine, "served", None)
    return engine.name if served is None else str((await served()).name)
