"""The server's settings that pages state."""

from __future__ import annotations

from tests.faults.fault import ROOT
from tito_io.serve.server import KEEP_ALIVE_SECONDS


def test_a_page_says_when_idle_connections_are_closed() -> None:
    """A proxy that keeps them longer gets 502 for some requests."""
    page = (ROOT / "docs/howto/deploy.md").read_text()
    assert f"before the gateway does so, after {KEEP_ALIVE_SECONDS} seconds" in page
