"""A gateway, made of an engine and choices."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache

import attrs

from tito_core import Forgiveness, OddStop, Policy
from tito_io.dialects.protocol import TokenText, as_id
from tito_io.engines.protocol import Engine
from tito_io.families.family import Family

from .auth import Keys
from .backend import Backend
from .client_noise import DEFAULT, Door, Rule
from .gateway import Gateway
from .limits import Caps
from .metrics import Metrics
from .sessions import Sessions
from .sglang_fields import SessionWire
from .special_tokens import Guard
from .store import Store
from .turns import TurnTaker

SPELLED = 65_536
"""How many ids' texts are kept."""


@attrs.frozen(kw_only=True)
class Choices:
    """What whoever runs a gateway may choose."""

    caps: Caps = attrs.field(factory=Caps)
    forgive: tuple[Rule | Forgiveness, ...] = DEFAULT
    strip_system: tuple[str, ...] = ()
    """Regular expressions: what they find in system texts is left out."""
    policy: Policy = attrs.field(factory=lambda: Policy(odd_stop=OddStop.KEEP))
    """How cut turns and odd stops are followed; what is forgiven is said by `forgive`."""
    guarded: bool = True
    """Whether spelled special tokens are read as text, where there is a family to do it with."""
    keys: tuple[str, ...] = ()
    ignoring: frozenset[str] = frozenset()
    """Request fields that are accepted without effect."""
    later_wire: bool = True
    """Whether the session protocol is spoken as its later servers do."""


def made(
    engine: Engine,
    store: Store,
    *,
    model: str,
    family: Family | None = None,
    choices: Choices | None = None,
    backend: Backend | None = None,
    clock: Callable[[], float] = time.time,
) -> Gateway:
    """Return a gateway in front of an engine.

    `family` is the engine's own model folder: with it prompts are rendered here, special tokens that the
    world spells are read as text, and pages show texts for ids. Raises `InputError` where it cannot do that.
    """
    chosen, metrics = choices or Choices(), Metrics()
    here = None if engine.keeps_ids else family
    return Gateway(
        turns=TurnTaker(
            engine=engine,
            model=model,
            policy=_policy(chosen),
            door=Door(_rules(chosen), chosen.strip_system),
            guard=Guard.of(here, guarded=chosen.guarded) if here is not None else None,
            caps=chosen.caps,
            metrics=metrics,
        ),
        sessions=Sessions(store, chosen.caps, metrics),
        names=Keys(chosen.keys),
        metrics=metrics,
        caps=chosen.caps,
        wire=SessionWire(later=chosen.later_wire),
        ignoring=chosen.ignoring,
        backend=backend,
        spell=as_id if family is None else _spell(family),
        decode=None if family is None else family.decode,
        clock=clock,
    )


def _rules(chosen: Choices) -> frozenset[Rule]:
    return frozenset(one for one in chosen.forgive if isinstance(one, Rule))


def _policy(chosen: Choices) -> Policy:
    forgiven = frozenset(one for one in chosen.forgive if isinstance(one, Forgiveness))
    return attrs.evolve(chosen.policy, forgive=forgiven)


def _spell(family: Family) -> TokenText:
    """Return what tells an id's text; half a character's is its replacement sign, as engines write it."""

    @lru_cache(SPELLED)
    def spell(index: int) -> str:
        return family.decode([index])

    return spell
