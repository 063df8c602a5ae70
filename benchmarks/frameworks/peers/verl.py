"""verl's Continuous Token builders, and tito's."""

from __future__ import annotations

from benchmarks.frameworks.turns import of_merges
from tests.frameworks.verl.merges import MERGES

own, tito = of_merges(MERGES)
