"""What a long history's ids cost, beside one copy of them: as a list, packed, and on the wire."""

from __future__ import annotations

from functools import partial

import attrs

from benchmarks.clock import Timing, race
from benchmarks.history import History
from benchmarks.programs import Ready, lists, shared
from benchmarks.voice import Listening
from tito_core import Ids, TokenizeFn


@attrs.frozen
class Copy:
    """Something that is made of all ids, and the copy beside it."""

    name: str
    timing: Timing
    floor: Timing

    @property
    def ratio(self) -> float:
        """How many copies it takes."""
        return self.timing.warm / self.floor.warm


def packed(ids: Ids) -> memoryview[int]:
    """Return the ids in one piece of memory, copied from the parts that they are shared in."""
    return memoryview(ids.tobytes()).cast("I")


def copies(history: History) -> list[Copy]:
    """Measure a history: stitching to a list, to shared ids and one array, and the request's body."""
    found = shared(history, history.profile)(history.voice.tokenize)
    ids: list[int] = found.ids.tolist()
    flat = packed(found.ids)
    asked = Listening(history.voice.tokenize)
    unshared = lists(history, history.profile)
    assert unshared(asked) == ids == flat.tolist()  # noqa: S101  # what follows measures the same ids
    replayed, again = asked.replayed(), shared(history, history.profile)
    timings = race(
        {
            "list": lambda: ids.copy,
            "array": lambda: partial(bytes, flat),
            "lists": lambda: partial(unshared, replayed),
            "shared": lambda: partial(_packed, again, replayed),
            "shared list": lambda: partial(_listed, again, replayed),
        }
    )
    return [
        Copy("stitch of lists, to a list", timings["lists"], timings["list"]),
        Copy("stitching of a Trajectory, to one array", timings["shared"], timings["array"]),
        Copy("stitching of a Trajectory, to a list", timings["shared list"], timings["list"]),
        *_body(ids),
    ]


def _packed(made: Ready, tokenize: TokenizeFn) -> memoryview[int]:
    return packed(made(tokenize).ids)


def _listed(made: Ready, tokenize: TokenizeFn) -> list[int]:
    ids: list[int] = made(tokenize).ids.tolist()
    return ids


def _body(ids: list[int]) -> list[Copy]:
    try:
        from tito_io.engines.wire import encoded  # noqa: PLC0415  # the kernel is measured without the rest too
    except ImportError:
        return []
    body = encoded({"prompt": ids})
    timings = race(
        {"copy": lambda: partial(bytearray, body), "made": lambda: partial(encoded, {"prompt": ids})}
    )
    return [Copy("the ids in a request's body", timings["made"], timings["copy"])]
