"""torchtitan's RL experiment without vLLM and Triton, which its package imports before anything else.

Here that package is entered without what its `__init__` imports. The renderer configuration, the
environments, the rollouts and the training samples are torchtitan's own files.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType

PACKAGE = "torchtitan.experiments.rl"


def enter() -> None:
    """Enter the package without what it imports."""
    spec = find_spec(PACKAGE.rpartition(".")[0])
    assert spec is not None
    assert spec.submodule_search_locations is not None
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [f"{folder}/rl" for folder in spec.submodule_search_locations]


if PACKAGE not in sys.modules:
    enter()
