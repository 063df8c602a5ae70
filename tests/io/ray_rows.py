"""Rows of a file from a Ray cluster of two nodes, one worker of which is killed in the middle.

`python -m tests.io.ray_rows FILE FOLDER` writes the rows to FOLDER/rows.jsonl, and to FOLDER/told.json on
which nodes they were made, which process died, and which did its work instead.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tito_core import SampleOptions
from tito_io.fleet import spread
from tito_io.samples import jsonl
from tito_io.samples.chunks import Reading
from tito_io.samples.make import Made
from tito_io.samples.problem import Problem
from tito_io.samples.read import chunks
from tito_io.samples.spread import Reach, reach, rows_of


def deadly(found: Reach, folder: Path, victim: int) -> tuple[list[Made | Problem], int, str]:
    """Make rows; the first process that comes to the victim's line dies instead."""
    marker = folder / "died.json"
    if victim in found.numbers and not marker.exists():
        marker.write_text(json.dumps(os.getpid()))
        os.kill(os.getpid(), signal.SIGKILL)
    node = import_module("ray").get_runtime_context().get_node_id()
    return rows_of(found, Reading(), SampleOptions()), os.getpid(), node


def main(path: Path, folder: Path) -> None:
    """Start the cluster, make the rows, stop it."""
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    cluster.add_node(num_cpus=1)
    places = [reach(path, one) for one in chunks(path, make=False) if not isinstance(one, Problem)]
    victim = places[len(places) // 2].numbers[0]
    processes, nodes = list[int](), set[str]()
    try:
        with (folder / "rows.jsonl").open("wb") as file:
            work: Any = partial(deadly, folder=folder, victim=victim)
            for several, process, node in spread(work, places, cluster.address):
                processes.append(process)
                nodes.add(node)
                for made in several:
                    if isinstance(made, Made):
                        file.writelines(map(jsonl.line, made.entries))
        died = json.loads((folder / "died.json").read_text())
        told = {"instead": processes[len(places) // 2], "nodes": sorted(nodes), "died": died}
        (folder / "told.json").write_text(json.dumps(told))
    finally:
        import_module("ray").shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
