"""A command on a Ray cluster of two nodes, a worker or a whole node of which is lost in the middle.

`python -m tests.io.samples.ray_rows worker|node FOLDER COMMAND...` runs `tito COMMAND... --ray ADDRESS`, and
writes to FOLDER/told.json which node did which piece of work, who was lost, and the command's status.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from tito_io.samples import ray as cluster_work

PATIENCE = 120.0
"""Seconds that work waits for a loss that is due."""


@attrs.frozen
class Deadly:
    """Work in the middle of which somebody is lost, once."""

    work: Callable[[Any], Any]
    folder: Path
    victim: int
    """The piece of work that is not finished the first time."""
    doomed: str | None
    """The node that is to be lost; without, it is the first process that comes to the victim."""

    def __call__(self, numbered: tuple[int, Any]) -> tuple[Any, int, str]:
        number, item = numbered
        node = import_module("ray").get_runtime_context().get_node_id()
        if number >= self.victim and not self.marker.exists():
            self._lose(node)
        return self.work(item), os.getpid(), node

    @property
    def marker(self) -> Path:
        """What is there once somebody is as good as lost."""
        return self.folder / "lost.json"

    def _lose(self, node: str) -> None:
        """Die, or wait for death; on another node, wait until it is due there."""
        if self.doomed in (None, node):
            self.marker.write_text(json.dumps(os.getpid() if self.doomed is None else node))
            if self.doomed is None:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(PATIENCE)
            raise RuntimeError("the node was to be lost, and is still there")
        waited(self.marker)


def waited(path: Path) -> None:
    """Wait for a file."""
    end = time.monotonic() + PATIENCE
    while not path.exists():
        if time.monotonic() > end:
            raise RuntimeError(f"{path} does not come")
        time.sleep(0.05)


@attrs.define
class Told:
    """Spreads work as the commands do, and keeps who did it."""

    folder: Path
    doomed: str | None
    processes: list[int] = attrs.field(factory=list)
    nodes: list[str] = attrs.field(factory=list)
    status: Any = None

    def spread(self, work: Callable[[Any], Any], items: Sequence[Any], address: str) -> Iterator[Any]:
        """Yield what the work makes of the items."""
        deadly = Deadly(work, self.folder, len(items) // 2, self.doomed)
        for made, process, node in cluster_work.spread(deadly, list(enumerate(items)), address):
            self.processes.append(process)
            self.nodes.append(node)
            yield made

    def write(self) -> None:
        """Write who did what."""
        lost = json.loads((self.folder / "lost.json").read_text())
        told = {"processes": self.processes, "nodes": self.nodes, "lost": lost, "status": self.status}
        (self.folder / "told.json").write_text(json.dumps(told))


def run(command: Sequence[str], told: Told, address: str) -> None:
    """Run a command with its work spread so; conversations go in small pieces."""
    from tito_io.audit import command as auditing, distributed as audits  # noqa: PLC0415, I001  # in this process only
    from tito_io.samples import command as sampling, distributed as rows  # noqa: PLC0415  # likewise

    audits.TOGETHER = 2
    for module in (audits, rows):
        module.spread = told.spread  # type: ignore[attr-defined]  # what they import from `samples.ray`
    name, *rest = command
    commands = {"samples": sampling.samples, "audit": auditing.audit}
    commands[name].main([*rest, "--ray", address], standalone_mode=False)


def main(fate: str, folder: Path, command: Sequence[str]) -> None:
    """Start the cluster, run the command, stop the cluster."""
    cluster = import_module("ray.cluster_utils").Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    told = Told(folder, second.node_id if fate == "node" else None)
    if fate == "node":
        threading.Thread(target=lose, args=(cluster, second, folder), daemon=True).start()
    try:
        run(command, told, cluster.address)
    except SystemExit as ended:  # the command's own
        told.status = ended.code
    finally:
        import_module("ray").shutdown()
        cluster.shutdown()
    told.write()


def lose(cluster: Any, node: Any, folder: Path) -> None:
    """Kill a node with all its processes as soon as it is at work on the victim."""
    waited(folder / "lost.json")
    cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
