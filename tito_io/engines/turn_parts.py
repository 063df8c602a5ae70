"""Join the parts of one turn: what was sampled before an abort, and what followed exactly those ids."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, cast
from uuid import uuid4

import attrs

from tito_core import SamplingMask
from tito_core.samples import MissingRow, RoutedExperts, WeightVersion
from tito_core.samples.experts import merge_experts

from .protocol import Engine, Rendering, Reply, UnsupportedError, Usage
from .replies.output_parser import OutputParser, with_messages
from .replies.output_text import before_stop, ids_before_stop


async def output_parser(engine: Engine) -> OutputParser:
    """Return what makes text and messages of an engine's ids.

    Raises:
        UnsupportedError: The engine's adapter has none, so that parts of a turn make no message.
    """
    make: Any = getattr(engine, "output_parser", None)
    if make is None:
        raise UnsupportedError(
            f"{engine.name}: its adapter makes no messages of ids, so that parts of a turn make none"
        )
    return cast("OutputParser", await make())


async def joined(
    parser: OutputParser, parts: Sequence[Reply], rendering: Rendering | None, notices: Sequence[str] = ()
) -> Reply:
    """Return the parts of one turn as one reply, with the message that all of its ids spell.

    Args:
        parser: Makes text and message of the ids.
        parts: The parts in order; each one's prompt is that of the first and the ids of all before it.
        rendering: What the prompt was rendered with.
        notices: What to add to the notices of the parts.
    """
    whole = joined_ids(parts, notices)
    text = await spelled(parser, whole)
    return await with_messages(
        parser, attrs.evolve(whole, text=text), f"call-{uuid4().hex[:16]}", rendering=rendering
    )


def joined_ids(parts: Sequence[Reply], notices: Sequence[str] = ()) -> Reply:
    """Return the parts of one turn as one reply, without text or message."""
    first, last = parts[0], parts[-1]
    ids = tuple(chain.from_iterable(part.completion_ids for part in parts))
    return attrs.evolve(
        first,
        completion_ids=ids,
        logprobs=_logprobs(parts),
        message=None,
        text="",
        finish_reason=last.finish_reason,
        usage=Usage(
            prompt_tokens=len(first.prompt_ids),
            completion_tokens=len(ids),
            cached_tokens=first.usage.cached_tokens,
        ),
        stop_reason=last.stop_reason,
        weight_versions=joined_versions(parts),
        routed_experts=_experts(parts),
        sampling_mask=joined_mask(parts),
        siblings=(),
        notices=(*chain.from_iterable(part.notices for part in parts), *notices),
        raw={"parts": [part.raw for part in parts]},
    )


def joined_versions(parts: Sequence[Reply]) -> tuple[WeightVersion, ...]:
    """Return which weights sampled which ids of all parts; ids of which no engine says it are in no run.

    >>> one = WeightVersion(version="1", start=0, stop=2)
    >>> def part(ids, *versions):
    ...     return Reply(prompt_ids=(), completion_ids=ids, logprobs=None, message=None, text="", raw={},
    ...                  finish_reason="abort", usage=Usage(prompt_tokens=0, completion_tokens=0),
    ...                  weight_versions=versions)
    >>> [(run.start, run.stop) for run in joined_versions([part((7, 8), one), part((9,)), part((7, 8), one)])]
    [(0, 2), (3, 5)]
    >>> [(run.start, run.stop) for run in joined_versions([part((7, 8), one), part((7, 8), one)])]
    [(0, 4)]
    """
    runs: list[WeightVersion] = []
    start = 0
    for part in parts:
        for run in part.weight_versions:
            moved = attrs.evolve(run, start=run.start + start, stop=run.stop + start)
            if runs and (runs[-1].version, runs[-1].stop) == (moved.version, moved.start):
                moved = attrs.evolve(moved, start=runs.pop().start)
            runs.append(moved)
        start += len(part.completion_ids)
    return tuple(runs)


def joined_mask(parts: Sequence[Reply]) -> SamplingMask | None:
    """Return the masks of all parts, each at its own ids; a part without has none there. None without any."""
    masks, start = [], 0
    for part in parts:
        masks += [] if part.sampling_mask is None else [(start, part.sampling_mask)]
        start += len(part.completion_ids)
    return SamplingMask.placed(masks, start)


async def spelled(parser: OutputParser, reply: Reply) -> str:
    """Return a turn's text before what ended it; a stop string may begin in one part and end in another."""
    ids, stop = ids_before_stop(reply), reply.stop_reason
    text = await parser.tokenizer.decode(ids) if ids else ""
    if not isinstance(stop, str):
        return text
    before = await parser.tokenizer.decode(ids[:-1]) if ids[:-1] else ""
    found = before_stop(stop, before, text)
    return text if found is None else found


def _logprobs(parts: Sequence[Reply]) -> tuple[float | None, ...] | None:
    if all(part.logprobs is None for part in parts):
        return None
    nothing = [
        [None] * len(part.completion_ids) if part.logprobs is None else part.logprobs for part in parts
    ]
    return tuple(chain.from_iterable(nothing))


def _experts(parts: Sequence[Reply]) -> RoutedExperts | None:
    """Return the rows of all parts, where several have one as `merge_experts` chooses; None without any."""
    sent = [
        ("", len(part.prompt_ids) + len(part.completion_ids) - bool(part.completion_ids), part.routed_experts)
        for part in parts
    ]
    known = [(name, passed, experts) for name, passed, experts in sent if experts is not None]
    if len({experts.kind for _, _, experts in known}) != 1:
        return None
    end = max(experts.stop for _, _, experts in known)
    merged = merge_experts(known, end, MissingRow.SHORTER)
    # Zeros between rows would look like rows with one expert per layer.
    if merged is None or not merged.valid or (len(merged.valid) > 1 and merged.shape[1:][-1:] <= (1,)):
        return None
    start, stop = merged.valid[0][0], merged.shape[0]
    whole = RoutedExperts(data=merged.data, dtype=merged.dtype, shape=merged.shape)
    rows = bytes(whole.between(start, stop))
    return attrs.evolve(whole, data=rows, shape=(stop - start, *merged.shape[1:]), start=start)
