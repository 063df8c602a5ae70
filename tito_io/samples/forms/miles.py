"""Miles' session records: what `GET /sessions/{id}` answers, one session a line.

A record is a request with SGLang's reply, whose `input_ids` are the prompt. A server that branches tells of
its latest branch alone, so that of others nothing can be read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from tito_io.engines.protocol import EngineAnswer
from tito_io.engines.replies.invariants import Check

from . import exchange
from .form import Batch, Record, StoredForm, named


def _batches(record: Record, _: int) -> Iterator[Batch]:
    check = Check("the session", EngineAnswer(200, record))
    parts = [check.get({"record": one}, "record", dict) for one in check.get(record, "records", list)]
    yield Batch(
        conversation=named(record, "session_id"), parts=[partial(exchange.read, one) for one in parts]
    )


FORM = StoredForm(
    name="miles",
    told="session records of Miles",
    whole=True,
    knows=lambda record: "records" in record,
    batches=_batches,
)
