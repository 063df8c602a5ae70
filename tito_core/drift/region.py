"""Which call wrote a place of a prompt's ids?"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from ..samples.call import StoredCall
from ..samples.forest import Forest
from .diff import Hunk


@attrs.frozen(kw_only=True)
class Region:
    """Ids from `start` to `stop` of a path: a call's completion, or what stands in its prompt before it."""

    call: StoredCall
    start: int
    stop: int
    sampled: bool
    above: StoredCall | None = None
    """For what is not sampled: the call whose completion ends where the region begins; None for the first."""

    def holds(self, hunk: Hunk) -> int:
        """Return how many ids of a hunk lie here."""
        return max(min(self.stop, hunk.stop) - max(self.start, hunk.start), 0)


def regions(forest: Forest, name: str, *, whole: bool, down_to: int) -> Iterator[Region]:
    """Yield the regions of a call's ids (with `whole`) or of its prompt ids, the last first.

    None that ends before `down_to` is yielded.

    >>> from tito_core import Step
    >>> def call(name, prompt_ids, completion_ids):
    ...     return StoredCall(name=name, step=Step(prompt=[], completion=[], prompt_ids=prompt_ids,
    ...                                      completion_ids=completion_ids))
    >>> forest = Forest.of([call("a", [1], [2, 3]), call("b", [1, 2, 3, 4], [5])])
    >>> [(one.call.name, one.start, one.stop, one.sampled)
    ...  for one in regions(forest, "b", whole=True, down_to=0)]
    [('b', 4, 5, True), ('b', 3, 4, False), ('a', 1, 3, True), ('a', 0, 1, False)]
    """
    node = forest[name]
    if whole:
        yield Region(call=node.call, start=node.call.start, stop=node.call.stop, sampled=True)
    while True:
        above = None if node.parent is None else forest[node.parent]
        start = 0 if above is None else above.call.stop
        if node.call.start >= down_to:
            yield Region(
                call=node.call,
                start=start,
                stop=node.call.start,
                sampled=False,
                above=None if above is None else above.call,
            )
        if above is None or start < down_to:
            return
        yield Region(call=above.call, start=above.call.start, stop=start, sampled=True)
        node = above
