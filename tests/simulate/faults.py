"""Which faults a seed brings, and how often; at the end of a simulation they all stop."""

from __future__ import annotations

import attrs

from tests.simulate.draws import Draws


@attrs.define
class FaultPlan:
    """What goes wrong in one simulation.

    Attributes:
        on: Whether faults still happen.
        quiet: Whether what failed last is over, too, so that every error is a mistake.
        engine: The share of the engine's replies that fail.
        store: The share of the store's calls that fail.
        slow_store: How long a call of the store may take, in seconds.
        client: The share of requests whose client misbehaves.
        slow: Whether some clients read slowly.
        deaths: How many times a gateway dies.
        pauses: How many times a gateway stands still for seconds.
        power: Whether a death takes the machine with it: what no disk has is lost.
        keyed: The share of requests with an idempotency key.
    """

    on: bool = True
    quiet: bool = False
    engine: float = 0.0
    store: float = 0.0
    slow_store: float = 0.0
    client: float = 0.0
    slow: bool = False
    deaths: int = 0
    pauses: int = 0
    power: bool = False
    keyed: float = 0.0

    @classmethod
    def drawn(cls, draws: Draws) -> FaultPlan:
        """Draw a plan: most seeds have several kinds of faults, some have one, and some have none."""

        def share(chance: float, most: float) -> float:
            return draws.between(0.02, most) if draws.chance(chance) else 0.0

        return cls(
            engine=share(0.4, 0.4),
            store=share(0.4, 0.3),
            client=share(0.6, 0.6),
            slow_store=draws.between(0.1, 2) if draws.chance(0.4) else 0.0,
            slow=draws.chance(0.3),
            deaths=draws.below(4) if draws.chance(0.6) else 0,
            pauses=draws.below(3) if draws.chance(0.25) else 0,
            power=draws.chance(0.5),
            keyed=draws.pick((0.0, 0.5, 1.0)),
        )
