"""Measure a framework in its own environment: `python -m benchmarks.frameworks.measure NAME FAMILY...`.

It prints a JSON line for each answer. `python -m benchmarks.frameworks` starts it.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any
from unittest.mock import patch

import attrs
from jinja2 import Template

from benchmarks.frameworks.answers import DIFFERENT, EQUAL, RAISES, REFUSED, Answer
from benchmarks.frameworks.turns import Extend, NotOffered, Turn, turns
from tests.frameworks.turns import stop_ids
from tests.model_folders import FAMILIES
from tito_io.integrations.next_prompts import RefusedError


@attrs.define
class RenderCount:
    """Counts the renders of chat templates.

    The tokenizer stays as it is: one whose `apply_chat_template` is replaced is asked otherwise by tito.
    """

    count: int = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count within the block."""
        render = Template.render

        def counted(template: Template, *args: Any, **values: Any) -> str:
            self.count += 1
            return render(template, *args, **values)

        with patch.object(Template, "render", counted):
            yield


def judged(extend: Extend, turn: Turn) -> tuple[str, str]:
    """Return the verdict on an answer, and its cause."""
    try:
        ids = extend(turn)
    except RefusedError as error:
        return REFUSED, error.refusal.reason.name
    except Exception as error:  # what frameworks and templates raise is what is measured
        if isinstance(error, NotOffered):
            raise
        return RAISES, f"{type(error).__name__}: {error}".partition("\n")[0][:80]
    if ids is None:
        return REFUSED, "renders again, or ends"
    if ids in turn.right:
        return EQUAL, ""
    kept = ids[: len(turn.ids)] == turn.ids
    return DIFFERENT, "the ids after the turn" if kept else "sampled ids changed"


def answers(framework: str, family: str) -> Iterator[Answer]:
    """Yield what a framework's own way and tito's make of a family's turns."""
    from transformers import AutoTokenizer  # noqa: PLC0415  # seconds, and help needs none

    peer = import_module(f"benchmarks.frameworks.peers.{framework}")
    for way in ("own", "tito"):
        tokenizer = AutoTokenizer.from_pretrained(FAMILIES / family)
        every = list(turns(tokenizer, stop_ids(family)))
        try:
            extend = getattr(peer, way)(tokenizer, family)
        except Exception as error:  # noqa: BLE001  # likewise
            extend = partial(_raise, error)
        for turn in every:
            try:
                judged(extend, turn)  # what is asked once is asked now
            except NotOffered:
                continue
            counted = RenderCount()
            with counted.counting():
                began = time.process_time()
                verdict, cause = judged(extend, turn)
                took = 1e3 * (time.process_time() - began)
            case = turn.prompt.case, turn.ending
            yield Answer(framework, way, family, *case, verdict, cause, counted.count, took)


def _raise(error: Exception, _: Turn) -> None:
    raise error


def main() -> None:
    """Print the answers to standard output, and nothing else."""
    warnings.filterwarnings("ignore")
    logging.disable(logging.WARNING)
    lines, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr  # frameworks print what they like
    framework, *families = sys.argv[1:]
    for family in families:
        for answer in answers(framework, family):
            lines.write(answer.line() + "\n")
            lines.flush()


if __name__ == "__main__":
    main()
