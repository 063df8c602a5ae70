"""Optional dependencies: which extra of the package installs a module, and how to install it.

Nothing is imported here, so that the advice can be printed where everything else is missing.
"""

from __future__ import annotations

EXTRAS = {
    "agents": "openai-agents",
    "fastokens": "fast",
    "huggingface_hub": "hub",
    "hypothesis": "testing",
    "langchain_core": "langchain",
    "prometheus_client": "serve",
    "pyarrow": "parquet",
    "pydantic_ai": "pydantic-ai",
    "ray": "ray",
    "redis": "redis",
    "renderers": "renderers",
    "safetensors": "miles",
    "miles_tito_tokenizers": "miles-tokenizers",
    "opentelemetry": "otel",
    "openrlhf": "openrlhf",
    "skyrl": "skyrl",
    "tinker_cookbook": "tinker",
    "areal": "areal",
    "trl": "trl",
    "uvicorn": "serve",
    "verl": "verl",
    "xllamacpp": "llamacpp",
    "zstandard": "serve",
}
"""The extras that install these modules; `io` installs the others."""


def extra_of(module: str) -> str:
    """Return the extra that installs `module`.

    >>> extra_of("uvicorn.config"), extra_of("click")
    ('serve', 'io')
    """
    return EXTRAS.get(module.partition(".")[0], "io")


def install(extra: str) -> str:
    """Return how to install a missing `extra`.

    >>> print(install("serve"))
    install it with `pip install 'tito-kernel[serve]'` or, from a checkout, `pip install '.[serve]'`
    """
    released, checkout = (f"`pip install '{package}[{extra}]'`" for package in ("tito-kernel", "."))
    return f"install it with {released} or, from a checkout, {checkout}"


def missing(module: str) -> str:
    """Return the error for a `module` that is not installed.

    >>> print(missing("uvicorn.config").partition(" with")[0])
    uvicorn is missing: install it
    """
    return f"{module.partition('.')[0]} is missing: {install(extra_of(module))}"
