"""A pure function over many items, on the machines of a Ray cluster.

Results come in the order of the items, whichever worker made them and however often: a worker that dies is
replaced, and what it had is made again, so that the function must do nothing but return a value. Items,
results and the function travel pickled; the machines must have this package installed.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, TypeVar

from tito_core import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")

LOCAL = "local"
"""The address that starts a cluster of this machine alone."""
PIECES = 8
"""Into how many pieces of work items are divided for each processor; a piece is made again when a worker
dies."""


def library() -> Any:
    """Return Ray with its data library; raises `InputError` where it is not installed."""
    try:
        import_module("ray.data")
        return import_module("ray")
    except ImportError:
        raise InputError("a cluster needs Ray: install tito-kernel[ray]") from None


def connect(address: str) -> None:
    """Join the cluster at an address, once a process; raises `InputError` where there is none."""
    ray = library()
    if ray.is_initialized():
        return
    try:
        ray.init(address=None if address == LOCAL else address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        raise InputError(f"no Ray cluster at {address!r:.60}: {str(error).splitlines()[0]:.200}") from None


def spread(
    function: Callable[[Item], Result], items: Sequence[Item], address: str = LOCAL
) -> Iterator[Result]:
    """Yield what `function` makes of each item, in their order.

    An exception of the function comes out as Ray tells it; let it return what went wrong as a value.
    """
    if not items:
        return
    connect(address)
    for row in mapped(dataset(items), function).iter_rows():
        yield pickle.loads(row["made"])  # noqa: S301  # this process's own function made it, on its own cluster


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
