"""A committed turn, and its row in a store. Neither changes any more.

A row is JSON and holds only what is new in a turn: the rest is in the parent's row. Read after its parent, a
row gives back the same ids, log-probabilities and messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from tito_core import Ids, InputError, Ledger, Message, Messages, SamplingMask, Step
from tito_core.data import from_data, to_data
from tito_core.ledger import Origin
from tito_core.media.ranges import NO_MEDIA, Media, MediaRange
from tito_core.samples import RoutedExperts, StoredCall, WeightVersion

from .store import LostError

VERSION = 1


@attrs.frozen(kw_only=True)
class TurnOrigin:
    """How a turn came about.

    Attributes:
        dialect: The API of the request.
        route: `TITO` where the prompt was sent as ids, `MITO` where as messages, `KEPT` where an engine with
            sessions of its own kept the ids. `RENDERED` where a prompt was rendered here first: with images,
            or with the beginning of its answer.
        requested: When the request came, in seconds since 1970.
        refusal: Why the prompt was sent as messages although the session had a step.
        forgiven: Differences between the prompt and the stored history that were ignored.
        expected: Number of prompt ids that an earlier turn had, so that the engine may have them cached.
        cached: Number of prompt ids in the engine's prefix cache; None where the engine does not report it.
        stop_reason: The stop token or stop string, where the engine reports it.
        engine_request: The id under which the turn was requested of the engine; None where it had none.
        worker: Which worker sampled it, as a router names it; None where none does.
        continued: The message that the turn continues, which its own message begins with; None where it
            begins by itself.
        instructed: Whether the first message is a response's own instructions; the next turn drops them.
        retry_key: A digest of the request's idempotency key; None where it had none.
        request: The request's body without messages and tools.
    """

    dialect: str
    route: str
    requested: float
    refusal: str | None = None
    forgiven: tuple[str, ...] = ()
    expected: int = 0
    cached: int | None = None
    stop_reason: int | str | None = None
    engine_request: str | None = None
    worker: str | None = None
    continued: Message | None = None
    instructed: bool = False
    retry_key: str | None = None
    request: Mapping[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Commit:
    """A node of a session's forest.

    Attributes:
        call: The turn as training rows see it.
        parent: The commit whose messages this one continues; both share what is the same.
        response: The id of the response; the turns of one request share it.
        at: When it was committed, in seconds since 1970.
        origin: How the turn came about.
    """

    call: StoredCall
    parent: str | None
    response: str
    at: float
    origin: TurnOrigin

    @property
    def name(self) -> str:
        """The node's name."""
        return self.call.name

    @property
    def step(self) -> Step:
        """The turn's messages and ids."""
        return self.call.step


def encode(commit: Commit, parent: Commit | None) -> bytes:
    """Return the row of a commit; `parent` is the commit that it names."""
    step, base = commit.step, None if parent is None else parent.step
    ids = _shared_length(step, base)
    # The ids can be the parent's while a fresh rendering wrote them: then the parent's ledger is not theirs.
    wrote = ids if base is not None and step.prompt_ledger.extends(base.prompt_ledger) else 0
    shared = 0 if base is None else base.messages.length
    origin = attrs.asdict(commit.origin)
    origin["asked"] = origin.pop("request")  # the name in files of version 1
    row = {
        "v": VERSION,
        "name": commit.name,
        "parent": commit.parent,
        "order": commit.call.order,
        "response": commit.response,
        "at": commit.at,
        "messages": list(step.prompt[shared:]),
        "completion": list(step.completion),
        "kept": ids,
        "ids": step.prompt_ids[ids:],
        "sampled": list(step.completion_ids),
        "logprobs": step.logprobs,
        "truncated": step.truncated,
        "wrote": wrote,
        "ledger": [(one.name, count) for one, count in step.prompt_ledger.since(wrote)],
        "finish": commit.call.finish_reason,
        "versions": [(run.version, run.start, run.stop) for run in commit.call.weight_versions],
        "experts": to_data(commit.call.routed_experts),
        "origin": origin,
    }
    if step.media:
        row["media"] = _new_media(step.media, base)
    if step.sampling_mask is not None:
        row["mask"] = to_data(step.sampling_mask)
    if base is None or base.key != step.key:  # a key holds all tools, which most turns inherit
        row["key"] = step.key
    return orjson.dumps(row)


def decode(data: bytes, earlier: Mapping[str, Commit]) -> Commit:
    """Return the commit of a row after the `earlier` commits, by their names.

    Raises `InputError` where `data` is not a row of this version, `LostError` where its parent is missing.
    """
    try:
        row = orjson.loads(data)
        return _commit(row, _base(row, earlier))
    except _OddRowError as error:
        raise InputError(f"a stored turn {error}") from None
    except (KeyError, TypeError, ValueError) as error:  # an `InputError`, too, may quote the conversation
        raise InputError(f"a stored turn cannot be read: {type(error).__name__}") from error


class _OddRowError(Exception):
    """A row is of another version, or does not fit its parent; the text says so without a subject."""


def _base(row: Mapping[str, Any], earlier: Mapping[str, Commit]) -> Step | None:
    """Return the step of the turn that a row continues."""
    if row["v"] != VERSION:
        raise _OddRowError(f"has the form {row['v']!r:.20}, and this gateway reads {VERSION}")
    parent = row["parent"]
    if parent is not None and parent not in earlier:
        raise LostError
    return None if parent is None else earlier[parent].step


def _commit(row: Mapping[str, Any], base: Step | None) -> Commit:
    call = StoredCall(
        name=row["name"],
        step=_step(row, base),
        order=row["order"],
        finish_reason=row["finish"],
        weight_versions=[WeightVersion(version=v, start=a, stop=b) for v, a, b in row["versions"]],
        routed_experts=row["experts"] and from_data(row["experts"], RoutedExperts),
    )
    origin = {**row["origin"], "forgiven": tuple(row["origin"]["forgiven"])}
    return Commit(
        call=call,
        parent=row["parent"],
        response=row["response"],
        at=row["at"],
        origin=TurnOrigin(request=origin.pop("asked"), **origin),
    )


def _step(row: Mapping[str, Any], base: Step | None) -> Step:
    ids, ledger = _shared_prefix(row["kept"], base)
    ledger = ledger if row["wrote"] else Ledger.of(())
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
        prompt_ledger=ledger.then(*((Origin[name], count) for name, count in row["ledger"])),
        media=_read_media(row.get("media"), base),
        sampling_mask=from_data(row["mask"], SamplingMask) if "mask" in row else None,
    )


def _new_media(media: Media, base: Step | None) -> dict[str, Any]:
    """Return how many media ranges a prompt shares with its parent, all of them or none, and the others."""
    kept = 0 if base is None else base.media.length
    kept = kept if base is not None and media[:kept] == base.media else 0
    return {"kept": kept, "new": [attrs.asdict(one) for one in media[kept:]]}


def _read_media(row: Mapping[str, Any] | None, base: Step | None) -> Media:
    if row is None:
        return NO_MEDIA
    known = base.media if base is not None and row["kept"] else NO_MEDIA
    if row["kept"] != known.length:
        raise _OddRowError(f"keeps {row['kept']} media of a parent that has {known.length}")
    return known.then([MediaRange(**one) for one in row["new"]]) if row["new"] else known


def _shared_prefix(length: int, base: Step | None) -> tuple[Ids, Ledger]:
    """Return the ids that a prompt shares with its parent, and their ledger."""
    if base is None or not length:
        return Ids(()), Ledger.of(())
    if length == base.ids.length:
        return base.ids, base.ledger
    if length == base.prompt_ids.length:
        return base.prompt_ids, base.prompt_ledger
    raise _OddRowError(f"keeps {length} ids of a parent that has {base.ids.length}")


def _shared_length(step: Step, base: Step | None) -> int:
    """Return how many ids a prompt shares: all ids of its parent, the parent's prompt ids, or 0."""
    if base is None:
        return 0
    shared = (ids for ids in (base.ids, base.prompt_ids) if step.prompt_ids.extends(ids))
    return next((ids.length for ids in shared), 0)
