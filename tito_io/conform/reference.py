"""tito's own answers to vectors: `tito conform -- python -m tito_io.conform.reference`.

It reads a JSON line for each question from standard input and writes a JSON line with the answer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from tito_core import (
    Bridge,
    Extension,
    InputError,
    OddStop,
    Policy,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    TokenizeFn,
    try_stitch,
)
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_io.families.folder import Source
from tito_io.families.template import ChatTemplate
from tito_io.families.template_values import plain_messages

from .toy_tokenizer import ToyTokenizer

POLICY = Policy(odd_stop=OddStop.KEEP)
_NOW = datetime(2026, 1, 1, tzinfo=UTC)
_PROFILES: dict[str, GrowingProfile] = {}
_compiled = cache(lambda text: ChatTemplate.compile(Source(text, "template")))


def tokenize_fn(question: Mapping[str, Any]) -> TokenizeFn:
    """Return what renders and encodes as a vector says."""
    template, tokenizer = _compiled(question["template"]), ToyTokenizer.of(question["tokenizer"])
    fixed = {**question["template_arguments"], "tools": question["tools"]}

    def ids(messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        given = {"messages": plain_messages(messages), "add_generation_prompt": add_generation_prompt}
        return tokenizer.encode(template.render({**fixed, **given}, now=_NOW))

    return ids


def answer(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a vector: ids and spans, or the reason of a refusal.

    >>> from .scenario import vector
    >>> from .scenarios import scenarios
    >>> first = vector(next(scenarios()))
    >>> answer(first)["ids"] == list(first["expected"]["answers"][0]["ids"])
    True
    """
    ask = tokenize_fn(question)
    try:
        profile = _profile(ask, question)
    except (InputError, TemplateRefused) as error:
        return {"refusal": f"nothing can be found out about the template: {error}"}
    steps = [step(one) for one in question["trajectory"]]
    found = try_stitch(
        steps, question["messages"], profile.profile.suffix, ask, policy=POLICY, profile=profile
    )
    if isinstance(found, Refusal):
        return {"refusal": found.reason.name}
    spans = _spans(Bridge(ask, profile=profile, policy=POLICY), found)
    return {"ids": found.ids.tolist(), **({} if spans is None else {"spans": spans})}


def _profile(ask: TokenizeFn, question: Mapping[str, Any]) -> GrowingProfile:
    """Return what is known of a rendering; it is asked once."""
    rendering = json.dumps(
        [question[name] for name in ("template", "tools", "template_arguments", "stop_ids")]
    )
    if rendering not in _PROFILES:
        _PROFILES[rendering] = GrowingProfile(probe(ask, question["stop_ids"]))
    return _PROFILES[rendering]


def step(data: Mapping[str, Any]) -> Step:
    """Return a step of a vector's trajectory."""
    return Step(
        prompt=data["messages"],
        completion=[data["turn"]],
        prompt_ids=data["prompt_ids"],
        completion_ids=data["sampled_ids"],
        truncated=data["cut"],
    )


def _spans(bridge: Bridge, found: Stitched) -> list[list[int] | None] | None:
    """Return where the contents of new messages stand in all ids; None if the bridge cannot tell."""
    step = found.step
    extension = bridge.extend(
        step.ids,
        found.environment,
        turn=step.completion[-1],
        history=step.prompt,
        sampled=len(step.completion_ids),
        truncated=step.truncated,
    )
    if not isinstance(extension, Extension) or not isinstance(extension.spans, tuple):
        return None
    if extension.ids != found.ids:
        return None
    moved = len(extension.ids) - len(extension.added)
    return [
        [moved + one.content_start, moved + one.content_stop]
        if one.content_start < one.content_stop
        else None
        for one in extension.spans
    ]


def serve(answered: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer the questions on standard input, line by line."""
    for line in sys.stdin:
        question = json.loads(line)
        print(json.dumps({"id": question["id"], **answered(question)}), flush=True)  # noqa: T201  # the protocol


if __name__ == "__main__":
    serve(answer)
