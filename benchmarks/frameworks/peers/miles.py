"""Miles' tokenizers, the class for the family or the default one, and tito's."""

from __future__ import annotations

from benchmarks.frameworks.turns import of_merges
from tests.frameworks.miles.merges import MERGES

own, tito = of_merges(MERGES)
