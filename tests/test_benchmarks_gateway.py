"""The benchmark of the gateway, with few turns: every id that comes back is checked."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.mark.skipif(sys.platform != "linux", reason="it reads what other processes used, as Linux tells it")
def test_nothing_is_lost_or_wrong_in_many_sessions() -> None:
    few = ("--turns", "4", "--sessions", "4", "--session-turns", "3", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.gateway", *few], check=True, capture_output=True, text=True
    )
    loads = json.loads(done.stdout)["loads"]
    assert [(one["name"], one["turns"], one["wrong"]) for one in loads] == [
        ("proxy", 12, 0),
        ("gateway", 12, 0),
        ("gateway", 12, 0),
    ]
    assert all(0 < one["first"]["p50"] <= one["first"]["p99"] for one in loads)
    assert all(one["files"] > 3 for one in loads)
