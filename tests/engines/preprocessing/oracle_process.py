"""Answer questions about chat requests with an engine's own code: run in the engine's environment.

    python oracle_process.py vllm|sglang MODEL_FOLDER < questions > answers

Questions and answers are JSON objects, one a line. A question has `template` and `messages`, and may have
`tools` and `variables`. The answer has the `text` that the template writes, or an `error`.
"""

from __future__ import annotations

import json
import logging
import sys
from importlib import import_module
from typing import Any


def _say(value: Any) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def main(engine: str, model: str) -> None:
    """Answer questions until there are no more."""
    oracle = import_module(f"{engine}_oracle").Oracle(model)
    logging.disable(logging.CRITICAL)
    _say({"ready": True})
    for line in sys.stdin:
        _say(oracle.answer(json.loads(line)))


if __name__ == "__main__":
    main(*sys.argv[1:])
