"""AReaL's concatenation of prompts, and tito's."""

from __future__ import annotations

import tests.frameworks.areal.conftest  # noqa: F401  # it lets AReaL be imported without its launchers
from benchmarks.frameworks.turns import of_merges
from tests.frameworks.areal.merges import MERGES

own, tito = of_merges(MERGES)
