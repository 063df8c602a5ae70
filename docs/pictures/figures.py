"""The pictures, one function each, named for what they show."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from pathlib import Path

from tito_core import Origin
from tito_core.samples import Forest, make_rows
from tito_io.embedded import family

from .drawing import GAP, HEIGHT, LETTER, MARGIN, Box, Picture, width_of, wrapped
from .rollout import QUESTIONS, spelled, turns, user

WIDEST = 900.0
TUTORIALS = Path(__file__).parent.parent / "tutorials"
RUNS = {1: "sampled", 2: "environment"}
"""The runs of the tutorial that trains a model: their seeds, and their styles."""
STYLES = {
    Origin.PROMPT: "plain",
    Origin.SAMPLED: "sampled",
    Origin.INSERTED_CLOSE: "close",
    Origin.ENVIRONMENT: "environment",
    Origin.GENERATION_PROMPT: "speaks",
}
LEGEND = {
    "plain": "prompt",
    "sampled": "sampled",
    "close": "inserted close",
    "environment": "new message",
    "speaks": "generation prompt",
}


def drift() -> Picture:
    """Draw one turn's sampled ids above the ids of a re-render of its message."""
    first = turns()[0]
    sampled = first.step.completion_ids.tolist()
    whole = family().ids([*first.messages, user(QUESTIONS[1])])
    rendered = _last_turn(whole, len(first.step.prompt_ids), sampled[-1])
    picture = Picture("Retokenization drift: a sampled turn and its re-render")
    names = ("sampled", "re-render")
    left = MARGIN + LETTER * max(map(len, names)) + 12
    y = MARGIN
    for place, ids in zip((y, y + HEIGHT + GAP), (sampled, rendered), strict=True):
        picture.text(MARGIN, place + 33, f"{len(ids)} ids", "soft")
    for row in _rows(list(_columns(sampled, rendered)), WIDEST - left):
        x = left
        for place, name in zip((y, y + HEIGHT + GAP), names, strict=True):
            picture.text(MARGIN, place + 17, name, "title")
        for above, below in row:
            picture.row(x, y, above)
            picture.row(x, y + HEIGHT + GAP, below)
            width = max(width_of(above), width_of(below))
            for place, boxes in ((y, above), (y + HEIGHT + GAP, below)):
                if not boxes:
                    picture.rectangle(x, place, width - GAP, HEIGHT, "absent")
            x += width
        y += 2 * (HEIGHT + GAP) + 14
    picture.text(left, y + 6, "green: the same ids; thick red: other ids; dashed: no id there", "soft")
    return picture


def turn() -> Picture:
    """Draw one turn as ids: the prompt, then the completion with the stop token last."""
    step = turns()[0].step
    picture = Picture("A turn: prompt ids, then completion ids")
    prompt = [Box(spelled(token), str(token)) for token in step.prompt_ids]
    sampled = [Box(spelled(token), str(token), "sampled") for token in step.completion_ids]
    y = _titled_rows(picture, MARGIN + 12, f"prompt_ids: {len(prompt)} ids, rendered from messages", prompt)
    _titled_rows(
        picture, y + 12, f"completion_ids: {len(sampled)} ids, sampled; the last is the stop token", sampled
    )
    return picture


def seam() -> Picture:
    """Draw two renders that differ in the turn's text alone: the ids after the text are the same."""
    picture = Picture("A seam: what the chat template writes after a turn")
    y = MARGIN + 12
    for text in ("Zephyr", "4096"):
        ids = _rendered(text)
        start, tail = len(_rendered(None)), len(ids) - _end_of_text(text)
        boxes = [
            Box(spelled(token), str(token), "plain" if index < len(ids) - tail else "speaks")
            for index, token in enumerate(ids)
        ]
        picture.text(MARGIN, y, f'the assistant says "{text}"', "title")
        y = _below(picture, y + 8, wrapped(boxes[start:], WIDEST)) + 24
    picture.text(MARGIN, y, "coloured: the same ids after both texts", "soft")
    return picture


def bridge() -> Picture:
    """Draw the second prompt of the rollout, each id in the colour of its origin."""
    second = turns()[1]
    if second.stitched is None:
        raise RuntimeError("the second turn was not sent by ids")
    ids, spans = second.stitched.ids.tolist(), second.stitched.ledger.spans
    boxes = [
        Box(spelled(token), str(token), STYLES[span.origin])
        for span in spans
        for token in ids[span.start : span.stop]
    ]
    picture = Picture("A stitched prompt: earlier ids, then the bridge")
    y = _below(picture, MARGIN, wrapped(boxes, WIDEST)) + 22
    x = MARGIN
    for style, name in LEGEND.items():
        picture.rectangle(x, y - 11, 14, 14, style)
        x = picture.text(x + 20, y, name) + 24
    return picture


def branch() -> Picture:
    """Draw the rollout's calls as a forest, with its training rows."""
    names = ("call 1", "call 2", "call 3", "call 4")
    calls = [one.call(name, order) for order, (name, one) in enumerate(zip(names, turns(), strict=True))]
    forest = Forest.of(calls)
    rows = make_rows(forest).rows
    picture = Picture("A branch: two calls continue the same turn")
    places = dict(zip(names, ((0, 0), (1, 0), (2, 0), (1, 1)), strict=True))
    for node in forest.nodes:
        column, line = places[node.name]
        x, y = MARGIN + column * 290, MARGIN + line * 80
        picture.rectangle(x, y, 230, 56, "plain")
        picture.text(x + 10, y + 18, node.name, "title")
        picture.text(x + 10, y + 34, str(node.call.step.prompt[-1]["content"]))
        count = len(node.call.step.completion_ids)
        picture.text(x + 10, y + 50, f"{count} {'id' if count == 1 else 'ids'} sampled", "soft")
        if node.parent is not None:
            above = places[node.parent]
            start = MARGIN + above[0] * 290 + 230, MARGIN + above[1] * 80 + 28
            picture.line(start, (x - 30, start[1]), (x - 30, y + 28), (x, y + 28))
    y = MARGIN + 2 * 80 + 20
    for index, row in enumerate(rows):
        path, trained = " > ".join(forest.path(row.name)), sum(row.loss_mask)
        picture.text(MARGIN, y + 20 * index, f"row {index + 1}: {path}; {trained} of {len(row)} ids train")
    return picture


def training() -> Picture:
    """Draw the mean reward of each update, as the tutorial's code wrote it."""
    picture = Picture("Mean reward by update, of two runs")
    left, top, across, height = MARGIN + 40, MARGIN + 20, 24, 200
    runs = {seed: _rewards(TUTORIALS / f"rewards-{seed}.csv") for seed in RUNS}
    longest = max(map(len, runs.values()))
    picture.text(MARGIN, MARGIN + 4, "mean reward", "title")
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        picture.text(MARGIN, y + 4, f"{share:.1f}", "soft")
        picture.line((left, y), (left + across * longest, y))
    for update in (1, *range(5, longest + 1, 5)):
        picture.text(left + across * (update - 0.5) - 4, top + height + 20, str(update), "soft")
    for seed, rewards in runs.items():
        places = [(left + across * (at + 0.5), top + height * (1 - one)) for at, one in enumerate(rewards)]
        picture.line(*places)
        for x, y in places:
            picture.rectangle(x - 4, y - 4, 8, 8, RUNS[seed])
    x = picture.text(left, top + height + 44, "update", "title") + 24
    for seed, style in RUNS.items():
        picture.rectangle(x, top + height + 35, 8, 8, style)
        x = picture.text(x + 16, top + height + 44, f"seed {seed}") + 24
    return picture


def _rewards(path: Path) -> list[float]:
    with path.open(encoding="utf-8", newline="") as file:
        return [float(row["reward"]) for row in csv.DictReader(file)]


PICTURES: Mapping[str, Callable[[], Picture]] = {
    "branch": branch,
    "bridge": bridge,
    "drift": drift,
    "seam": seam,
    "training": training,
    "turn": turn,
}


def _last_turn(ids: Sequence[int], start: int, stop: int) -> list[int]:
    """Return the ids of a rendered turn, from where it begins to its stop."""
    return list(ids[start : list(ids).index(stop, start) + 1])


def _columns(sampled: list[int], rendered: list[int]) -> Iterator[tuple[list[Box], list[Box]]]:
    """Pair what was sampled with what was rendered; equal ids stand one above the other."""
    for kind, a, b, c, d in SequenceMatcher(None, sampled, rendered, autojunk=False).get_opcodes():
        style = "sampled" if kind == "equal" else "changed"
        above, below = _boxes(sampled[a:b], style), _boxes(rendered[c:d], style)
        if kind == "equal":
            yield from (([one], [other]) for one, other in zip(above, below, strict=True))
        else:
            extra = _unmatched(above, below)
            if extra:
                yield above[:extra], []
            yield above[extra:], below


def _unmatched(above: Sequence[Box], below: Sequence[Box]) -> int:
    """Return how many tokens stand before those that spell the text of `below`; 0 where none spell it.

    >>> _unmatched([Box("<think>", "1"), Box("How", "2"), Box("ever", "3")], [Box("However", "4")])
    1
    """
    text = _text(below)
    return next((start for start in range(len(above)) if _text(above[start:]) == text), 0)


def _text(boxes: Iterable[Box]) -> str:
    return "".join(box.text for box in boxes)


def _boxes(ids: Iterable[int], style: str) -> list[Box]:
    return [Box(spelled(token), str(token), style) for token in ids]


def _rows(
    columns: list[tuple[list[Box], list[Box]]], limit: float
) -> list[list[tuple[list[Box], list[Box]]]]:
    """Break columns into rows of at most `limit` pixels."""
    rows: list[list[tuple[list[Box], list[Box]]]] = [[]]
    used = 0.0
    for column in columns:
        width = max(map(width_of, column))
        if rows[-1] and used + width > limit:
            rows.append([])
            used = 0.0
        rows[-1].append(column)
        used += width
    return rows


def _rendered(text: str | None) -> list[int]:
    """Return a prompt's ids in which the assistant says a text, or is about to speak."""
    if text is None:
        return family().ids([user("Hello.")], add_generation_prompt=True)
    messages = [user("Hello."), {"role": "assistant", "content": text}, user("Go on.")]
    return family().ids(messages, add_generation_prompt=True)


def _end_of_text(text: str) -> int:
    """Return where the assistant's text ends: where a longer text makes the first difference."""
    pairs = zip(_rendered(text), _rendered(f"{text} more"), strict=False)
    return next(place for place, (short, longer) in enumerate(pairs) if short != longer)


def _titled_rows(picture: Picture, y: float, title: str, boxes: Sequence[Box]) -> float:
    picture.text(MARGIN, y, title, "title")
    return _below(picture, y + 8, wrapped(boxes, WIDEST))


def _below(picture: Picture, y: float, rows: Iterable[Sequence[Box]]) -> float:
    """Draw rows of tokens one below the other; return where the next text's baseline may stand."""
    for row in rows:
        picture.row(MARGIN, y, row)
        y += HEIGHT + GAP + 4
    return y + LETTER
