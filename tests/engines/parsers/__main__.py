"""Record what the engines' own parsers read: `python -m tests.engines.parsers vllm sglang`.

TITO_FAMILIES names the model folders. The engines' environments are made where they are not there yet.
"""

from __future__ import annotations

import argparse

from .recorded import RECORDED, answers, written


def main() -> None:
    """Write the file anew; engines that are not named keep their answers."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.parsers", description=__doc__)
    parser.add_argument("engines", nargs="+", choices=("vllm", "sglang"), help="whose parsers answer")
    new = {engine: answers(engine, print) for engine in parser.parse_args().engines}
    RECORDED.write_text(written(new), encoding="utf-8")


if __name__ == "__main__":
    main()
