"""Bound the open connections of clients by the limit of open files."""

from __future__ import annotations

import os

import attrs

from tito_core import InputError

from .refusals import GatewayLimits

OTHER_FILES = 64
"""Open files beside connections of clients and of `--max-calls` turns: the store, logs, loaded modules."""
FEWEST = 8
"""With fewer connections there would be no room for those that are answered with 503."""


def raise_open_files() -> int | None:
    """Allow this process as many open files as the system lets it; return the number, None for no limit."""
    if os.name != "posix":
        return None
    import resource  # noqa: PLC0415  # Windows has no such module

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # macOS calls the hard limit infinite, and allows less
        hard = soft
    return None if hard == resource.RLIM_INFINITY else hard


@attrs.frozen
class ConnectionBounds:
    """Limits of the connections of clients.

    Attributes:
        files: How many files this process may open; None for no limit.
        served: How many connections are served at once.
        accepted: How many connections are open at once. Those above `served` get status 503.
        header_seconds: How long the headers of a request may take.
    """

    files: int | None
    served: int
    accepted: int
    header_seconds: float

    @classmethod
    def of(cls, limits: GatewayLimits, files: int | None) -> ConnectionBounds:
        """Return the bounds that fit into a number of open files; raises `InputError` if that is too few."""
        accepted = 2 * limits.connections
        if files is not None:
            accepted = min(accepted, files - limits.calls - OTHER_FILES)
        if accepted < min(FEWEST, limits.connections):
            raise InputError(
                f"this process may open {files} files, and --max-calls {limits.calls} and {OTHER_FILES} "
                "others leave none for clients; raise the limit (ulimit -n, LimitNOFILE=) or lower "
                "--max-calls"
            )
        # An eighth is left for connections that are answered with 503.
        return cls(files, min(limits.connections, accepted - accepted // 8), accepted, limits.header_seconds)

    def text(self) -> str:
        """Return what is said of them at the start."""
        files = "open files are not limited" if self.files is None else f"{self.files} open files allowed"
        return f"at most {self.served} connections at once; {files}"
