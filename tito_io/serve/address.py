"""The address that the gateway listens on."""

from __future__ import annotations

import errno
import os
import socket

from tito_core import InputError


def check_address(host: str, port: int) -> None:
    """Open the socket and close it again; raises `InputError` where it cannot be opened.

    uvicorn opens it next, and would end the process with a traceback.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise InputError(_fault(error, host, port)) from None


def _fault(error: OSError, host: str, port: int) -> str:
    """Return why an address cannot be listened on. The texts of Python's errors repeat the address."""
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use: stop what listens on {host}:{port}, or choose another --port"
    why = error.strerror if isinstance(error, socket.gaierror) else os.strerror(error.errno or 0)
    return f"{host}:{port} cannot be listened on: {why}; choose another --host or --port"
