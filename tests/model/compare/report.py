"""A disagreement, for people to read: template, tokenizer, messages, and both answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs

from tests.model.compare.ask import asked
from tests.model.compare.cases import Case, a_case
from tests.model.compare.quirks import FromToy, Quirky
from tests.model.compare.trees import compared
from tests.model.compare.verdict import Verdict
from tests.model.messages import plain
from tito_core import Step
from tito_core.join import NextPrompt

ROOMS = ("stitch", "images", "rows")
MOST_TRIES = 250
"""Cases that are tried in search of a smaller one."""
Asked = tuple[str, Verdict, Any, Any]


def verdicts(room: str, data: bytes) -> Iterator[Asked]:
    """Yield what the bytes of a case ask, with the verdict and both answers."""
    if room == "rows":
        verdict, calls, options = compared(data)
        yield "forest and rows", verdict, calls, options
    else:
        yield from asked(a_case(data, pictures=room == "images"))


def first_wrong(room: str, data: bytes) -> Asked | None:
    """Return the first disagreement of a case, None where all agree."""
    return next((one for one in verdicts(room, data) if one[1].wrong), None)


def smallest(data: bytes, is_wrong: Callable[[bytes], bool]) -> bytes:
    """Return a simpler case that is wrong, too: bytes are left out or set to zero, as long as that helps."""
    size, best, left = len(data), data, MOST_TRIES
    while size and left > 0:
        tried = [best[:i] + best[i + size :] for i in range(0, len(best), size)]
        tried += [best[:i] + bytes(size) + best[i + size :] for i in range(0, len(best), size)]
        better = next((one for one in tried[:left] if one != best and is_wrong(one)), None)
        left -= len(tried) if better is None else tried.index(better) + 1
        size, best = (size, better) if better is not None else (size // 2, best)
    return best


def disagreement(room: str, data: bytes) -> str | None:
    """Return the first disagreement of a case as text, made as small as it will get; None where all agree."""
    if first_wrong(room, data) is None:
        return None
    return readable(room, smallest(data, lambda other: first_wrong(room, other) is not None))


def readable(room: str, data: bytes) -> str:
    """Return a disagreement as text."""
    found = first_wrong(room, data)
    if found is None:
        return "all agree"
    name, verdict, kernel, model = found
    lines = [f"{name}: {verdict.kind}", verdict.what]
    if room == "rows":
        return "\n".join([*lines, *(f"  {call}" for call in kernel), f"  {model}"])
    case = a_case(data, pictures=room == "images")
    return "\n".join([*lines, *described(case), *answers(case, kernel, model)])


def described(case: Case) -> Iterator[str]:
    """Yield the lines that describe a case."""
    template, tokenizer = case.family.template, case.family.tokenizer
    yield f"template: {quirks(template)}"
    yield f"tokenizer: {tokenizer}"
    yield f"stops: {texts(case, case.family.stop_ids)}   close: {texts(case, case.family.suffix)}"
    yield f"policy: {case.policy}   key: {case.key}"
    for number, step in enumerate(case.steps):
        yield f"step {number}: {step_line(case, step)}"
        yield from (f"    {message}" for message in step.messages)
    yield "prompt:"
    yield from (f"    {type(message).__name__} {plain(message)}" for message in case.prompt)


def quirks(template: Quirky | FromToy) -> str:
    """Return what is odd about a template."""
    if isinstance(template, FromToy):
        return f"toy {template.toy.name}: {template.toy.quirk}"
    fields = {field.name: (getattr(template, field.name), field.default) for field in attrs.fields(Quirky)}
    return (
        ", ".join(f"{name}={value!r}" for name, (value, usual) in fields.items() if value != usual) or "plain"
    )


def step_line(case: Case, step: Step) -> str:
    """Return the ids of a step as text, and what else is known of it."""
    ids = f"{texts(case, step.prompt_ids)} + {texts(case, step.completion_ids)}"
    known = f"{len(step.completion)} sampled, key {step.key}, media {list(step.media)}"
    return f"{ids}{', truncated' * step.truncated}, {known}"


def texts(case: Case, ids: Any) -> str:
    """Return ids as what each of them writes."""
    return " ".join(repr(case.family.tokenizer.decode([index]))[1:-1] for index in ids) or "nothing"


def answers(case: Case, kernel: Any, model: Any) -> Iterator[str]:
    """Yield both answers: what was added, or why nothing was."""
    yield f"kernel: {texts(case, kernel.added) if isinstance(kernel, NextPrompt) else kernel}"
    if isinstance(model, str):
        yield f"model: {model}"
    for one in [] if isinstance(model, str) else model if isinstance(model, list) else model[2]:
        yield f"model: {texts(case, one.ids[len(one.ids) - len(one.tail.ids) + one.written :])}"
