"""The package `fastokens`: loaded if it is installed, and asked so that no failure of it is an error."""

from __future__ import annotations

import platform
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from tito_core import InputError
from tito_io.extras import missing
from tito_io.families.tokenizer import PANIC

NAME = "fastokens"


def library() -> Any:
    """Return the package; raises `InputError` where it is missing."""
    try:
        return import_module(NAME)
    except ImportError:
        raise InputError(f"fast: {missing(NAME)}") from None


def installed_version() -> str:
    """Return the version of the package."""
    return version(NAME)


@cache
def code_digest() -> str:
    """Return a hash of what compares and of what is compared: this folder, the package and the machine.

    Two builds of one version of a package may differ, and one build may choose its code by the processor.
    """
    compiled = [file for file in Path(library().__file__).parent.iterdir() if file.suffix in (".so", ".pyd")]
    files = sorted((*Path(__file__).parent.glob("*.py"), *compiled))
    digests = [sha256(file.read_bytes()).hexdigest() for file in files]
    return " ".join([platform.machine(), platform.system(), *digests])


def loaded(tokenizer: Tokenizer) -> Any | None:
    """Return the package's own tokenizer of the same vocabulary; None where it cannot read it."""
    return attempted(library().Tokenizer.from_json_str, tokenizer.to_str())


def attempted(function: Any, *args: Any, **options: Any) -> Any | None:
    """Return what a function of the package returns; None where it fails, in whatever way."""
    try:
        return function(*args, **options)
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == PANIC:
            return None
        raise
