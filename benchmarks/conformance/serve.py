"""Answer vectors with a peer, in its environment: `python -m benchmarks.conformance.serve NAME`."""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

from jinja2 import TemplateError

from benchmarks.conformance.asked import Asked, NotOffered

NextPrompt = Callable[[Asked], list[int] | None]
"""Returns the ids of the next prompt; None if the peer renders the whole conversation again."""
LONGEST = 160
"""The most characters of an error's text."""
DELIBERATE = (ValueError, RuntimeError, AssertionError, TemplateError)
"""What programs raise on purpose where they have no answer: a loud refusal. Anything else is an error."""


def answer(next_prompt: NextPrompt, question: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Return the answer of a peer; what it raises is the text of a refusal or an error."""
    try:
        ids = next_prompt(Asked(question, tokenizer))
    except NotOffered as missing:
        return {"not_offered": str(missing)}
    except Exception as error:  # noqa: BLE001  # what peers and templates raise is what is measured
        text = f"raises {type(error).__name__}: {' '.join(str(error).split())}"[:LONGEST]
        return {"refusal" if isinstance(error, DELIBERATE) else "error": text}
    return (
        {"refusal": "it renders the whole conversation again"}
        if ids is None
        else {"ids": list(map(int, ids))}
    )


def main() -> None:
    """Answer the questions on standard input; what peers print goes to standard error."""
    warnings.filterwarnings("ignore")
    lines, sys.stdout = os.fdopen(os.dup(1), "w"), sys.stderr
    os.dup2(2, 1)
    peer = import_module(f"benchmarks.conformance.peers.{sys.argv[1]}")
    logging.disable(logging.WARNING)
    from benchmarks.conformance.toy_family import hf_tokenizer  # noqa: PLC0415  # peers are imported first

    for line in sys.stdin:
        question = json.loads(line)
        found = answer(peer.next_prompt, question, hf_tokenizer(question))
        lines.write(json.dumps({"id": question["id"], **found}) + "\n")
        lines.flush()


if __name__ == "__main__":
    main()
