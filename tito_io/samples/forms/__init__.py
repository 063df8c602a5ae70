"""The forms in which others store trajectories, one a file, and how each is told from the others."""

from __future__ import annotations

from . import exchange, miles
from . import tito as own
from . import verifiers_results as verifiers
from . import verifiers_traces as traces
from .form import Batch, CallPlace, Record, StoredForm

FORMS: dict[str, StoredForm] = {
    form.name: form for form in (own.FORM, miles.FORM, verifiers.FORM, traces.FORM, exchange.FORM)
}
"""By name, in the order in which a line is tried: no line is of two forms."""

__all__ = ["FORMS", "Batch", "CallPlace", "Record", "StoredForm", "recognized"]


def recognized(record: Record) -> StoredForm | None:
    """Return the form of a line's object, by the keys that it has.

    >>> form = recognized({"request": {}, "response": {}})
    >>> form.name if form else None
    'exchange'
    """
    return next((form for form in FORMS.values() if form.knows(record)), None)
