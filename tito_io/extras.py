"""What a command may lack: an extra of the package, and how to get it, told alike everywhere.

Nothing is imported here, so that this can be told where everything else is missing.
"""

from __future__ import annotations

EXTRAS = {
    "huggingface_hub": "hub",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "ray": "ray",
    "redis": "redis",
    "safetensors": "miles",
    "uvicorn": "serve",
}
"""The extras that bring what a command may lack; `io` brings the rest."""


def extra_of(module: str) -> str:
    """Return the extra that brings a module.

    >>> extra_of("uvicorn.config"), extra_of("click")
    ('serve', 'io')
    """
    return EXTRAS.get(module.partition(".")[0], "io")


def install(extra: str) -> str:
    """Return what to do about an extra that is missing.

    >>> print(install("serve"))
    install it with `pip install 'tito-kernel[serve]'` or, from a checkout, `pip install '.[serve]'`
    """
    released, here = (f"`pip install '{package}[{extra}]'`" for package in ("tito-kernel", "."))
    return f"install it with {released} or, from a checkout, {here}"


def missing(module: str) -> str:
    """Return the line about a module that is not there.

    >>> print(missing("uvicorn.config").partition(" with")[0])
    uvicorn is missing: install it
    """
    return f"{module.partition('.')[0]} is missing: {install(extra_of(module))}"
