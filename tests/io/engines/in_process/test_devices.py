"""The CUDA device of a thread."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from tito_io.engines.in_process.devices import current_device, use_device


def test_the_device_of_a_thread_is_set_only_where_one_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    cuda = SimpleNamespace(current_device=lambda: 3, is_initialized=lambda: True, set_device=chosen.append)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    use_device(current_device())
    assert chosen == [3]
    cuda.is_initialized = lambda: False
    use_device(current_device())
    assert chosen == [3]
