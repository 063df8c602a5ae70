"""A pure function over many items, on the machines of a Ray cluster.

Results come in the order of the items, whichever worker made them and however often: a worker that dies is
replaced, and what it had is made again, so that the function must do nothing but return a value. Items,
results and the function travel pickled; the machines must have this package installed.
"""

from __future__ import annotations

import logging
import pickle
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from typing import Any, TextIO, TypeVar

from tito_core import InputError
from tito_io.extras import install

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCAL = "local"
"""The address that starts a cluster of this machine alone."""
CLIENT = "ray://"
"""Begins the addresses of Ray's own proxies."""
PATIENCE = 5.0
"""Seconds that a cluster has to take a connection."""
PIECES = 8
"""Into how many pieces of work items are divided for each processor; a piece is made again when a worker
dies."""


def library() -> Any:
    """Return Ray with its data library; raises `InputError` where it is not installed."""
    try:
        import_module("ray.data")
        return import_module("ray")
    except ImportError:
        raise InputError(f"a cluster needs Ray: {install('ray')}") from None


def connect(address: str) -> bool:
    """Join the cluster at an address, once a process; tell whether it was not joined before.

    Raises `InputError` where there is none.
    """
    ray = library()
    if ray.is_initialized():
        return False
    knock(address)
    try:
        ray.init(address=None if address == LOCAL else address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # noqa: BLE001  # a node that starts too slowly is a bare one
        raise InputError(
            f"no Ray cluster at {address!r:.60}: {(str(error) or repr(error)).splitlines()[0]:.200}"
        ) from None
    return True


@contextmanager
def aside(address: str | None) -> Iterator[TextIO]:
    """Lend standard output for this program's own lines.

    With a cluster, whatever else is printed goes to standard error: Ray tells of dead workers on standard
    output, in the midst of anybody's rows.
    """
    own = sys.stdout
    with redirect_stdout(own if address is None else sys.stderr):
        yield own


def knock(address: str) -> None:
    """Raise `InputError` where an address has a port that nobody listens at: Ray would try for minutes.

    Addresses without a port, such as `auto`, are Ray's own to look up.
    """
    host, _, port = address.removeprefix(CLIENT).partition("/")[0].rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE):
            pass
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"no Ray cluster at {address!r:.60}: nobody answers there: {reason}") from None


def spread(
    function: Callable[[Item], Result], items: Sequence[Item], address: str = LOCAL
) -> Iterator[Result]:
    """Yield what `function` makes of each item, in their order; leave the cluster if it was joined for this.

    An exception of the function comes out as Ray tells it; let it return what went wrong as a value.
    """
    if not items:
        return
    joined = connect(address)
    try:
        for row in mapped(dataset(items), function).iter_rows():
            yield pickle.loads(row["made"])  # noqa: S301  # this process's own function made it
    finally:
        if joined:
            library().shutdown()


def dataset(items: Sequence[Any]) -> Any:
    """Return items as a Ray dataset with a column `item`, to be mapped in one's own pipeline."""
    ray = library()
    context = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    pieces = max(int(ray.cluster_resources().get("CPU", 1)), 1) * PIECES
    rows = [{"item": pickle.dumps(item)} for item in items]
    return ray.data.from_items(rows, override_num_blocks=min(len(rows), pieces))


def mapped(found: Any, function: Callable[[Any], Any]) -> Any:
    """Return a dataset with a column `made`: what `function` makes of each `item`, pickled."""
    return found.map(Applied(function))


class Applied:
    """A function on a row of a dataset."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        """Hold the function."""
        self.function = function

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return the row's result."""
        made = self.function(pickle.loads(row["item"]))  # noqa: S301  # likewise
        return {"made": pickle.dumps(made)}
