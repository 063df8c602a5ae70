"""How long a bridge takes, beside the renderer that was written by hand.

    TITO_INSIDE=renderers PYTHONPATH=. python -m tests.frameworks.renderers.times [COUNT ...] [--new COUNT]

Each COUNT is a number of prompt ids; the default is 1000 8000 32000. A new message has 200 ids, or `--new`.
Times are medians in milliseconds of processor time, since machines are shared.
"""

from __future__ import annotations

import argparse
import time
from statistics import median
from typing import Any

import attrs

from tests.frameworks.renderers.models import HAND, QUESTION, SYSTEM, Model, case_of, model
from tests.frameworks.renderers.refused import REFUSED
from tests.model_folders import FAMILIES

TURN, RUNS = 500, 15


@attrs.frozen
class Times:
    """Times of one bridge, in milliseconds of processor time.

    Attributes:
        name: The family.
        shape: The case.
        prompt: Number of prompt ids.
        first: The first bridge of a process, which asks for the profile or reads its file.
        own: The median of further ones.
        unknown: The same where the history is not known.
        hand: The one by hand.
    """

    name: str
    shape: str
    prompt: int
    first: float
    own: float
    unknown: float
    hand: float


def times(one: Model, shape: str, count: int, new: int) -> Times:
    """Measure bridges after a prompt of about `count` ids, a turn of `TURN` and messages of `new`."""
    case = case_of(shape, one.name)
    text = "The river crosses the valley, and 42 boats follow it. "
    per = len(one.tokenizer.encode(text, add_special_tokens=False))
    turn = {**case.turn, "reasoning_content": text * (TURN // per)}
    after = [{**message, "content": text * (new // per)} for message in case.after]
    long = {**QUESTION, "content": text * (count // per)}
    prompt, completion = one.sampled([SYSTEM, long], attrs.evolve(case, turn=turn, after=after))
    own, bare, hand = (make(thinking_retention="all") for make in (one.renderer, one.renderer, one.by_hand))
    own.render_ids([SYSTEM, long], tools=case.tools, add_generation_prompt=True)
    for renderer in (own, bare, hand):  # as `renderers.client.generate` does with every completion
        renderer.parse_response(completion, tools=case.tools, prompt_ids=prompt)
    first, *again = _milliseconds(own, prompt, completion, after, case.tools)
    return Times(
        name=one.name,
        shape=shape,
        prompt=len(prompt),
        first=first,
        own=median(again),
        unknown=median(_milliseconds(bare, prompt, completion, after, case.tools)[1:]),
        hand=median(_milliseconds(hand, prompt, completion, after, case.tools)[1:]),
    )


def _milliseconds(renderer: Any, *given: Any) -> list[float]:
    prompt, completion, after, tools = given
    found = []
    for _ in range(RUNS + 1):
        start = time.process_time()
        assert renderer.bridge_to_next_turn(prompt, completion, after, tools=tools) is not None
        found.append((time.process_time() - start) * 1e3)
    return found


def main(counts: list[int], new: int) -> None:
    """Print a table."""
    print("family shape prompt first own unknown hand own/hand")  # noqa: T201  # it is a command
    for name in HAND if FAMILIES.is_dir() else ():
        for shape in ("user", "tool", "two tools"):
            for count in counts if (name, shape) not in REFUSED else ():
                one = times(model(name), shape, count, new)
                figures = (one.first, one.own, one.unknown, one.hand, one.own / one.hand)
                print(name, shape, one.prompt, *(f"{figure:.2f}" for figure in figures))  # noqa: T201  # likewise


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("counts", type=int, nargs="*", default=[1000, 8000, 32000])
    parser.add_argument("--new", type=int, default=200)
    given = parser.parse_args()
    main(given.counts, given.new)
