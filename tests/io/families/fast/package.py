"""A stand-in for the package `fastokens`, whose ids are those of `tokenizers` but where a fault is planted.

It has the part of fastokens 0.3.5 that is used: `Tokenizer.from_json_str`, which refuses normalizers such as
NFKC with a ValueError, and `encode`, which takes both options by name and answers with an object that has
`ids`. Text with half a surrogate pair is a UnicodeEncodeError, a failure in compiled code a PanicException.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tito_io.families.fast import library

SOURCE = """
import json
import tokenizers


class PanicException(BaseException):
    pass


class Encoding:
    def __init__(self, ids):
        self.ids = ids


class Tokenizer:
    encoded = []
    planted = []
    failing = []

    def __init__(self, text):
        self.inner = tokenizers.Tokenizer.from_str(text)

    @staticmethod
    def from_json_str(json_str):
        if (json.loads(json_str)["normalizer"] or {}).get("type") == "NFKC":
            raise ValueError("normalizer error: unsupported normalizer type: NFKC")
        return Tokenizer(json_str)

    def encode(self, input, add_special_tokens=False, split_special_tokens=False):
        assert add_special_tokens is False
        input.encode()
        self.encoded.append(input)
        if any(one in input for one in self.failing):
            raise PanicException("called `Option::unwrap()` on a `None` value")
        self.inner.encode_special_tokens = split_special_tokens
        ids = self.inner.encode(input, add_special_tokens=False).ids
        return Encoding([*ids, 0] if any(one in input for one in self.planted) else ids)
"""

COMPILED = "fastokens/_native.abi3.so"
"""Where fastokens 0.3.5 has its compiled code."""


@contextmanager
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "0.3.5") -> Iterator[Any]:
    """Install the stand-in below `folder` and yield its class `Tokenizer`."""
    package = folder / f"site-{version}"
    said = f"Metadata-Version: 2.4\nName: fastokens\nVersion: {version}\n"
    files = {
        COMPILED: version,
        "fastokens/__init__.py": SOURCE,
        f"fastokens-{version}.dist-info/METADATA": said,
    }
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    monkeypatch.delitem(sys.modules, "fastokens", raising=False)
    monkeypatch.syspath_prepend(package)
    library.code_digest.cache_clear()
    yield library.library().Tokenizer
    library.code_digest.cache_clear()
