"""Plant every fault and see that the tests notice:  python -m tests.faults [WORDS OF A DESCRIPTION].

With `--one-a-file` only the first fault of each file is planted, for those who have less time. Exits with 1
if any fault survives.
"""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from rich.console import Console

from tests.faults import forests, seams, stitching
from tests.faults.fault import Fault

ONE_A_FILE = "--one-a-file"
FAULTS = (*stitching.FAULTS, *seams.FAULTS, *forests.FAULTS)


def main() -> int:
    """Plant every fault, or those whose description holds the words of the command line."""
    console, given = Console(), sys.argv[1:]
    words = " ".join(word for word in given if word != ONE_A_FILE)
    chosen = [fault for fault in FAULTS if words in f"{fault.file}: {fault.what}"]
    if ONE_A_FILE in given:
        chosen = list({fault.file: fault for fault in reversed(chosen)}.values())
    if not chosen:
        sys.exit(f"no fault is described with {words!r}")
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (fault, dead) in enumerate(zip(chosen, pool.map(Fault.killed, chosen), strict=True), 1):
            survivors += not dead
            said = "killed  " if dead else "SURVIVED"
            console.print(f"{number:3}/{len(chosen)} {said} {fault.file}: {fault.what}", markup=False)
    console.print(f"{len(chosen) - survivors} of {len(chosen)} faults killed")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
