"""A committed turn as a row of a store: only what is new in it. What it shares, its parent has.

A row is JSON. Read after its parent, it gives the same values back: every id, log-probability and message.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

import attrs
import orjson

from tito_core import Ids, InputError, Ledger, Messages, Step
from tito_core.ledger import Origin as Wrote
from tito_core.samples import RoutedExperts, StoredCall, WeightVersion

from .commit import Commit, TurnOrigin

VERSION = 1


def encode(commit: Commit, parent: Commit | None) -> bytes:
    """Return a commit's row; `parent` is the commit that it names as such."""
    step, base = commit.step, None if parent is None else parent.step
    kept = _kept(step, base)
    wrote = kept if base is not None and step.prompt_ledger.extends(base.prompt_ledger) else 0
    shared = 0 if base is None else base.messages.length
    row = {
        "v": VERSION,
        "name": commit.name,
        "parent": commit.parent,
        "order": commit.call.order,
        "response": commit.response,
        "at": commit.at,
        "messages": list(step.prompt[shared:]),
        "completion": list(step.completion),
        "kept": kept,
        "ids": step.prompt_ids[kept:],
        "sampled": list(step.completion_ids),
        "logprobs": step.logprobs,
        "truncated": step.truncated,
        "wrote": wrote,
        "ledger": [(origin.name, count) for origin, count in step.prompt_ledger.since(wrote)],
        "finish": commit.call.finish_reason,
        "versions": [(run.version, run.start, run.stop) for run in commit.call.weight_versions],
        "experts": _experts(commit.call.routed_experts),
        "origin": attrs.asdict(commit.origin),
    }
    if base is None or base.key != step.key:  # a key holds all tools, which most turns inherit
        row["key"] = step.key
    return orjson.dumps(row)


def decode(data: bytes, found: Callable[[str], Commit]) -> Commit:
    """Return the commit of a row; `found` returns the commit of a name.

    Raises `InputError` where the row is no row of this version.
    """
    try:
        row = orjson.loads(data)
        if row["v"] != VERSION:
            raise InputError(f"a stored turn has the form {row['v']!r:.20}, and this gateway reads {VERSION}")
        parent = None if row["parent"] is None else found(row["parent"])
        return _commit(row, None if parent is None else parent.step)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"a stored turn cannot be read: {type(error).__name__}") from error


def _commit(row: Mapping[str, Any], base: Step | None) -> Commit:
    call = StoredCall(
        name=row["name"],
        step=_step(row, base),
        order=row["order"],
        finish_reason=row["finish"],
        weight_versions=[WeightVersion(version=v, start=a, stop=b) for v, a, b in row["versions"]],
        routed_experts=_read_experts(row["experts"]),
    )
    origin = {**row["origin"], "forgiven": tuple(row["origin"]["forgiven"])}
    return Commit(
        call=call, parent=row["parent"], response=row["response"], at=row["at"], origin=TurnOrigin(**origin)
    )


def _step(row: Mapping[str, Any], base: Step | None) -> Step:
    ids, ledger = _before(row["kept"], base)
    ledger = ledger if row["wrote"] else Ledger.of(())  # rendered anew, though the ids came out the same
    new = Ids.of(row["ids"]).packed()
    messages = Messages.of(row["messages"]) if base is None else base.messages.then(row["messages"])
    return Step(
        prompt=messages,
        completion=row["completion"],
        prompt_ids=ids.then(new.part) if ids else new,
        completion_ids=Ids.of(row["sampled"]).packed(),
        logprobs=row["logprobs"],
        truncated=row["truncated"],
        key=row["key"] if "key" in row or base is None else base.key,
        prompt_ledger=ledger.then(*((Wrote[name], count) for name, count in row["ledger"])),
    )


def _before(kept: int, base: Step | None) -> tuple[Ids, Ledger]:
    """Return the ids that a prompt begins with, and who wrote them."""
    if base is None or not kept:
        return Ids(()), Ledger.of(())
    if kept == base.ids.length:
        return base.ids, base.ledger
    if kept == base.prompt_ids.length:
        return base.prompt_ids, base.prompt_ledger
    raise InputError(f"a stored turn keeps {kept} ids of a parent that has {base.ids.length}")


def _kept(step: Step, base: Step | None) -> int:
    """Return how many ids a prompt shares: all of its parent's, those of its prompt, or none."""
    if base is None:
        return 0
    shared = (ids for ids in (base.ids, base.prompt_ids) if step.prompt_ids.extends(ids))
    return next((ids.length for ids in shared), 0)


def _experts(experts: RoutedExperts | None) -> dict[str, Any] | None:
    if experts is None:
        return None
    said = {"dtype": experts.dtype, "shape": experts.shape, "start": experts.start}
    return {**said, "data": b64encode(experts.data).decode()}


def _read_experts(said: Mapping[str, Any] | None) -> RoutedExperts | None:
    if said is None:
        return None
    data = b64decode(said["data"], validate=True)
    return RoutedExperts(data=data, dtype=said["dtype"], shape=tuple(said["shape"]), start=said["start"])
