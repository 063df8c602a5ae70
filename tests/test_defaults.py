"""A default is of the type that its field has, and says nothing unless it is listed here."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any, Union, get_args, get_origin, get_type_hints

import attrs
import pytest

from tests.faults.fault import ROOT
from tito_core import OddStop, Truncated
from tito_core.samples import (
    AuxiliaryRule,
    ConversationScope,
    Cut,
    EdgeKind,
    MissingRow,
    Owner,
    Retries,
    Rewards,
    RowPer,
    TurnRule,
)
from tito_core.seams.history import OFF, UNLIKELY
from tito_core.seams.seam import SHORT
from tito_io.engines.aborted_turns import OnAbort
from tito_io.samples.line_groups import Group
from tito_io.serve.text_check import OnOtherText

ROOMS = ("tito_core", "tito_io/samples", "tito_io/serve")


def classes() -> Iterator[type]:
    """Yield the classes of values."""
    for path in (path for room in ROOMS for path in sorted((ROOT / room).rglob("[a-z]*.py"))):
        if path.stem != "ray" and "testing" not in path.parts:
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = import_module(name)
            made = [one for one in vars(module).values() if isinstance(one, type) and attrs.has(one)]
            yield from (one for one in made if one.__module__ == name)


def fits(value: object, kind: Any) -> bool:
    """Return whether a value is of a type, as far as that can be seen from outside."""
    if kind is Any:
        return True
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in get_args(kind))
    kind = origin or kind
    if not isinstance(kind, type) or getattr(kind, "_is_protocol", False):
        return value is not None and value != ""  # a type that is known by what it does
    return isinstance(value, kind) and (type(value) is bool) <= (kind is bool)


STATED: dict[str, dict[str, Any]] = {
    "tito_core.drift.breaks.BreakText": {"ids": 1},
    "tito_core.policy.Policy": {"truncated": Truncated.CLOSE, "odd_stop": OddStop.REFUSE},
    "tito_core.questions.Question": {"add_generation_prompt": True, "ids": True},
    "tito_core.seams.seam.Seam": {"said": SHORT},
    "tito_core.samples.node.Node": {"kind": EdgeKind.UNRELATED},
    "tito_core.samples.options.SampleOptions": {
        "rows": RowPer.LEAF,
        "owner": Owner.FIRST,
        "cut": Cut.AT_TURN,
        "rewards": Rewards.BROADCAST,
        "conversation": ConversationScope.FOREST,
        "truncated": TurnRule.KEEP,
        "aborted": TurnRule.KEEP,
        "empty": TurnRule.DROP,
        "retries": Retries.ALL,
        "auxiliary": AuxiliaryRule.KEEP,
        "missing_row": MissingRow.SHORTER,
    },
    "tito_core.seams.profile.Profile": {"version": 2},
    "tito_core.message.Summary": {"instructed": -1},
    "tito_core.seams.experiments.Experiment": {"needed": True},
    "tito_core.seams.history.Past": {
        "role": "user",
        "tool": UNLIKELY,
        "words": OFF,
        "shown": 1,
        "more": True,
    },
    "tito_core.seams.turn.SampledTurn": {"after": "user", "history_known": True},
    "tito_io.samples.line_groups.LineGrouper": {"make_calls": True},
    "tito_io.samples.line_groups.ReadOptions": {"group": Group.ID, "max_line": 256 << 20},
    "tito_io.serve.fetch.ImageFetcher": {"most_bytes": 20 << 20, "most_together": 64 << 20, "seconds": 20.0},
    "tito_io.serve.gateway.GatewayOptions": {
        "guarded": True,
        "on_abort": OnAbort.RAISE,
        "later_wire": True,
        "on_other_text": OnOtherText.NOTICE,
        "ping_seconds": 10.0,
    },
    "tito_io.serve.prompt.SessionPrompt": {"only_texts": True},
    "tito_io.serve.redis.RedisStore": {
        "shared": True,
        "lease_seconds": 10.0,
        "life_seconds": 30 * 24 * 3600.0,
    },
    "tito_io.serve.refusals.GatewayLimits": {
        "body_bytes": 64 << 20,
        "containers": 200_000,
        "scalars": 500_000,
        "messages": 12_288,
        "header_bytes": 32 << 10,
        "turns": 4096,
        "nodes": 16384,
        "tokens": 16_000_000,
        "images": 999,
        "media_bytes": 256 << 20,
        "sessions": 100_000,
        "idle_seconds": 24 * 3600.0,
        "loaded_seconds": 600.0,
        "calls": 256,
        "connections": 8192,
        "header_seconds": 10.0,
        "body_seconds": 60.0,
    },
    "tito_io.serve.sessions.Sessions": {"patience": 15.0},
    "tito_io.serve.turn_engine.TurnEngine": {"by_messages": True},
    "tito_io.serve.unread.DiscardUnread": {"most": 256 << 20, "seconds": 10.0},
    "tito_io.serve.unread._Body": {"more": True},
}
"""Defaults of each class that are neither None, nor zero, nor false, nor empty."""


def said(kind: type) -> dict[str, Any]:
    """Return the defaults of a class that say something, of plain values and choices."""
    defaults = {field.name: field.default for field in attrs.fields(kind)}
    return {
        name: value
        for name, value in defaults.items()
        if isinstance(value, bool | int | float | str | bytes | Enum) and value
    }


@pytest.mark.parametrize("kind", sorted(set(classes()), key=str), ids=str)
def test_defaults_are_of_their_type(kind: type) -> None:
    try:
        hints = get_type_hints(kind)
    except (NameError, TypeError):  # Python knows no arrays of a type
        hints = dict.fromkeys(attrs.fields_dict(kind), Any)
    for field in attrs.fields(kind):
        if field.default is not attrs.NOTHING and not isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a class
            assert fits(field.default, hints[field.name]), field


@pytest.mark.parametrize("kind", sorted(set(classes()), key=str), ids=str)
def test_a_default_says_nothing_unless_it_is_listed(kind: type) -> None:
    """Where it can be None, it is: an empty text or tuple, a zero and False would say something."""
    assert said(kind) == STATED.get(f"{kind.__module__}.{kind.__qualname__}", {})
    for field in attrs.fields(kind):
        if str(field.type).endswith("| None") and not isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a class
            assert field.default in (attrs.NOTHING, None), field


def test_all_classes_whose_defaults_are_listed_exist() -> None:
    assert set(STATED) <= {f"{kind.__module__}.{kind.__qualname__}" for kind in classes()}
