"""Where the integration goes into AReaL."""

from __future__ import annotations

from inspect import getsource, signature

from areal.experimental.openai import client

from tito_io.integrations.areal import SEAM, TAKES, ConcatenatedPrompts


def test_the_function_has_its_arguments() -> None:
    assert tuple(signature(ConcatenatedPrompts.__call__).parameters) == ("self", *TAKES)


def test_both_clients_call_it_by_its_name() -> None:
    for kind in (client.AsyncCompletionsWithReward, client.AsyncResponsesWithReward):
        assert f"{SEAM}(" in getsource(kind.create)
