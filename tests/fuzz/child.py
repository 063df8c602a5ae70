"""One fuzzer, in a process of its own:  python -m tests.fuzz.child TARGET FOLDER [options of libFuzzer].

It is started by `python -m tests.fuzz`. Findings of one kind are written once and the run goes on, so that
one finding does not hide the next. A hang, or too much memory, ends the process: libFuzzer writes that input.
"""

from __future__ import annotations

import logging
import sys
import traceback
import warnings
from pathlib import Path
from random import Random
from types import TracebackType

from .mutation import mutated

ROOM = ("/tito_core/", "/tito_io/")


def place_of(trace: TracebackType | None) -> str:
    """Return the innermost line of the project in a traceback: where a finding is counted."""
    frames = [frame for frame in traceback.extract_tb(trace) if any(room in frame.filename for room in ROOM)]
    return f"{Path(frames[-1].filename).stem}-{frames[-1].lineno}" if frames else "outside"


def found(folder: Path, data: bytes, error: BaseException) -> None:
    """Write an input and its traceback, unless the same error at the same line has a shorter one."""
    path = folder / f"finding-{type(error).__name__}-{place_of(error.__traceback__)}"
    if path.exists() and path.stat().st_size <= len(data):
        return
    path.write_bytes(data)
    text = "".join(traceback.format_exception(error))
    path.with_suffix(".txt").write_text(text, encoding="utf-8", errors="backslashreplace")


def main() -> None:
    """Run the fuzzer that the arguments describe."""
    import atheris  # noqa: PLC0415  # tests collect this module, and the dependency group `fuzz` alone has it

    with atheris.instrument_imports(include=["tito_core", "tito_io"], enable_loader_override=False):
        from tests.fuzz.targets import TARGETS  # noqa: PLC0415  # what is imported here is instrumented
    name, place, *options = sys.argv[1:]
    target, folder = TARGETS[name], Path(place)
    # What a parser logs or warns of is not read, and would be most of the run's time.
    logging.disable()
    warnings.simplefilter("ignore")

    def run(data: bytes) -> None:
        try:
            target.run(data)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001  # a panic of a Rust library is no Exception
            found(folder, data, error)

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        random = Random(seed)  # noqa: S311  # a fuzzer's choices are no secrets
        if not target.json and random.randrange(2):
            return bytes(atheris.Mutate(data, longest))
        return mutated(data, random, as_json=target.json, longest=longest)

    atheris.Setup([sys.argv[0], *options], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
