"""What would a trainer keep that renders the last conversation again, and merges turns after the fact?

It keeps a turn where the prompt and the completion, all their ids, begin that rendering. A turn that several
last conversations hold is lost only where none of them keeps it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from ..errors import TemplateRefused
from ..samples.call import StoredCall
from ..samples.forest import Forest
from ..samples.predecessor import By, Follow
from ..samples.trie import common
from .diff import Packed, packed
from .view import Renderer


@attrs.frozen
class Survival:
    """The calls that were looked for, and those of them that a rendering keeps."""

    sought: Collection[str]
    kept: Collection[str]


def survival(forest: Forest, follows: Mapping[str, Follow], renderer: Renderer) -> Survival:
    """Render the conversation of each call that none goes on from, and look for the turns in it."""
    sought: set[str] = set()
    kept: set[str] = set()
    continued = {follow.of for follow in follows.values()}
    for node in forest.nodes:
        if node.name in continued or node.call.step.messages.multimodal:
            continue
        rendered = _rendered(node.call, renderer)
        if rendered is None:
            continue
        for call, stands in _turns(forest, follows, node.call, rendered):
            sought.add(call.name)
            if stands:
                kept.add(call.name)
    return Survival(sought, kept)


def _rendered(call: StoredCall, renderer: Renderer) -> Packed | None:
    try:
        ids: Sequence[int] = renderer.ids(call.step.messages, call.step.key, add_generation_prompt=False)
    except TemplateRefused:
        return None
    return packed(ids)


def _turns(
    forest: Forest, follows: Mapping[str, Follow], last: StoredCall, rendered: Packed
) -> Iterator[tuple[StoredCall, bool]]:
    """Yield the turns of a conversation, the last first, each with whether the rendering begins with it."""
    call, same = last, _same(last, rendered)
    while True:
        if call.start < call.stop:
            yield call, call.stop <= same
        follow = follows.get(call.name)
        if follow is None:
            return
        call = forest[follow.of].call
        same = same if follow.by is By.IDS else _same(call, rendered)


def _same(call: StoredCall, rendered: Packed) -> int:
    return common(packed(call.ids.tolist()), 0, rendered, 0)
