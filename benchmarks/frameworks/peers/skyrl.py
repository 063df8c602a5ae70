"""SkyRL's ids of observations, and tito's."""

from __future__ import annotations

import tests.frameworks.skyrl.conftest  # noqa: F401  # it lets SkyRL be imported on Python 3.11
from benchmarks.frameworks.turns import of_merges
from tests.frameworks.skyrl.merges import MERGES

own, tito = of_merges(MERGES)
