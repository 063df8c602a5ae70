"""Faults of closes: where a turn is over, and how much of its close was sampled."""

from __future__ import annotations

from tests.faults.fault import Fault

CLOSES = ("tests/core/seams/test_closes.py",)
CLOSED = ("tests/core/seams/test_close.py",)
JOINED = ("tests/core/test_join.py",)

FAULTS = (
    Fault(
        "of a close whose first id is one with the end of a call the shown rest alone is written",
        "seams/close.py",
        "if missing <= 0 or not close or suffix[missing:] != close or cut.whole:",
        "if True:",
        CLOSES,
    ),
    Fault(
        "a turn that ends inside of its close sampled nothing of it",
        "seams/close.py",
        "            return attrs.evolve(cut, sampled=sampled)\n",
        "            return cut\n",
        CLOSES,
    ),
    Fault(
        "the id before a close is not compared",
        "seams/close.py",
        "size for size in sizes if end[-size:] != both[-size:]",
        "size for size in sizes",
        CLOSES,
    ),
    Fault(
        "what a turn is shown to have sampled of its close is written again where no stops are known",
        "join.py",
        "    written = written or proof.cut.sampled\n",
        "",
        JOINED,
    ),
    Fault(
        "a stop that stands before another role alone closes a call",
        "seams/close.py",
        "shared = tail[: common_prefix(tail, alone)]",
        "shared = tail",
        CLOSES,
    ),
    Fault(
        "a call ends where nothing follows it, however it is written before more",
        "seams/close.py",
        "is not None or end <= len(shared):",
        "is not None or True:",
        CLOSES,
    ),
    Fault(
        "an id that is one of a turn's text and its close is an odd stop",
        "seams/close.py",
        "if odd or tail[place] == end[-1]]",
        "if tail[place] == end[-1]]",
        CLOSED,
    ),
    Fault(
        "a turn that went on after a stop sampled its whole close, or half of it",
        "seams/close.py",
        "return 0 if 0 < exact < by_stop else max(exact, by_stop)",
        "return max(exact, by_stop)",
        JOINED,
    ),
    Fault(
        "the beginning of the next opener is taken for the close",
        "seams/close.py",
        "begun = size and (turn.stops or turn.stop not in always[:-size])",
        "begun = size",
        CLOSES,
    ),
    Fault(
        "a stop was sampled without the one before it",
        "seams/close.py",
        "if len(same) == 1 and set(stops).isdisjoint(close[: same[0] - 1]):",
        "if len(same) == 1:",
        JOINED,
    ),
)
