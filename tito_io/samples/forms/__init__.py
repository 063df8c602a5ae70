"""The formats in which trajectories are stored, and how a line's format is recognized."""

from __future__ import annotations

from . import atif, exchange, harbor, nemo_gym, verifiers_results, verifiers_traces
from . import tito as own
from .form import Batch, CallPlace, Record, StoredForm

FORMS: dict[str, StoredForm] = {
    form.name: form
    for form in (
        own.FORM,
        atif.FORM,
        harbor.FORM,
        nemo_gym.CAPTURED,
        nemo_gym.ROLLOUTS,
        exchange.MILES,
        verifiers_results.FORM,
        verifiers_traces.FORM,
        exchange.FORM,
    )
}
"""By name, in the order in which a line is tried."""

__all__ = ["FORMS", "Batch", "CallPlace", "Record", "StoredForm"]
