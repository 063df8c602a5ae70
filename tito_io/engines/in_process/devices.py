"""The CUDA device of a thread: a new thread begins with device 0."""

from __future__ import annotations

import sys
from typing import Any


def current_device() -> int | None:
    """Return the current thread's CUDA device; None where torch has used none."""
    torch: Any = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_initialized() else None


def use_device(device: int | None) -> None:
    """Make a CUDA device the current one of this thread."""
    if device is not None:
        sys.modules["torch"].cuda.set_device(device)
