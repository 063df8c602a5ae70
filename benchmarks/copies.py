"""Compare a stitch with one plain copy of its ids: as a list, as an array, and as a request body."""

from __future__ import annotations

from functools import partial

import attrs

from benchmarks.clock import Timing, race
from benchmarks.history import History
from benchmarks.programs import StitchCall, lists, shared
from benchmarks.renderer import RecordingTokenize
from tito_core import Ids, TokenizeFn


@attrs.frozen
class Copy:
    """Work on all ids of a history, and a plain copy of the same ids.

    Attributes:
        name: Label of the table.
        timing: Of the work.
        floor: Of the copy.
    """

    name: str
    timing: Timing
    floor: Timing

    @property
    def ratio(self) -> float:
        """Time of the work in copies."""
        return self.timing.warm / self.floor.warm


def packed(ids: Ids) -> memoryview[int]:
    """Return the ids as one contiguous array, copied from their shared parts."""
    return memoryview(ids.tobytes()).cast("I")


def copies(history: History) -> list[Copy]:
    """Time stitches to a list and to an array, and the encoding of the request body."""
    stitched = shared(history, history.profile)(history.renderer.tokenize)
    ids: list[int] = stitched.ids.tolist()
    flat = packed(stitched.ids)
    recording = RecordingTokenize(history.renderer.tokenize)
    unshared = lists(history, history.profile)
    assert unshared(recording) == ids == flat.tolist()  # noqa: S101  # the programs below must produce the same ids
    replayed, again = recording.replayed(), shared(history, history.profile)
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


def _packed(stitch_call: StitchCall, tokenize: TokenizeFn) -> memoryview[int]:
    return packed(stitch_call(tokenize).ids)


def _listed(stitch_call: StitchCall, tokenize: TokenizeFn) -> list[int]:
    ids: list[int] = stitch_call(tokenize).ids.tolist()
    return ids


def _body(ids: list[int]) -> list[Copy]:
    try:
        from tito_io.engines.wire import encoded  # noqa: PLC0415  # the kernel can be measured without tito_io
    except ImportError:
        return []
    body = encoded({"prompt": ids})
    timings = race(
        {"copy": lambda: partial(bytearray, body), "made": lambda: partial(encoded, {"prompt": ids})}
    )
    return [Copy("encoding the ids in a request body", timings["made"], timings["copy"])]
