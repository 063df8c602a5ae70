"""Each line of `refused.jsonl` is a request that is refused, with the whole answer.

A line has the `path`, and the `body` or its `raw` text in Latin-1. Where they matter it has the `method`, the
`media` type and the application's `options`. The messages are vLLM 0.32's wherever it refuses the same.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .embedded_client import client

pytestmark = pytest.mark.anyio
LINES = list(map(json.loads, Path(__file__).with_name("refused.jsonl").read_bytes().splitlines()))


@pytest.mark.parametrize("line", LINES, ids=lambda one: one["rule"])
async def test_a_request_is_refused_as_its_line_says(line: dict[str, Any]) -> None:
    headers = {"content-type": line.get("media", "application/json")}
    content = line["raw"].encode("latin-1") if "raw" in line else json.dumps(line.get("body")).encode()
    async with client(**line.get("options", {})) as opened:
        method = line.get("method", "POST")
        answer = await opened.request(method, line["path"], content=content, headers=headers)
    assert (answer.status_code, answer.json()) == (line["status"], line["answer"])
