"""Record what the engines' own parsers read: `python -m tests.engines.parsers vllm sglang`.

TITO_FAMILIES names the model folders. The engines' environments are made where they are not there yet.
"""

from __future__ import annotations

import sys

from .recorded import RECORDED, answers, written


def main() -> None:
    """Write the file anew; engines that are not named keep their answers."""
    new = {engine: answers(engine, print) for engine in sys.argv[1:]}
    RECORDED.write_text(written(new), encoding="utf-8")


if __name__ == "__main__":
    main()
