"""Let torchvision be imported beside the CPU build of torch, for which its own library is not built."""

from __future__ import annotations

from pathlib import Path

SHIM = '''\
"""Declares this package's operators, which no library brings along here: else it cannot be imported."""
import pathlib
import re

import torch

library = torch.library.Library("torchvision", "DEF")
source = (pathlib.Path(__file__).parent / "_meta_registrations.py").read_text()
for name in sorted(set(re.findall(r'register_(?:fake|meta)\\("(?:torchvision::)?(\\w+)"', source))):
    boxes = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
    library.define(name + (boxes if name.endswith("nms") else "(Tensor a) -> Tensor"))
'''


def declare_operators(packages: Path) -> None:
    """Let the torchvision among installed packages declare its operators without having them.

    Image processors resize with torch itself and use none of them.
    """
    (packages / "torchvision" / "_cpu_shim.py").write_text(SHIM)
    first = packages / "torchvision" / "__init__.py"
    if "_cpu_shim" not in first.read_text():
        first.write_text("from . import _cpu_shim\n" + first.read_text())
