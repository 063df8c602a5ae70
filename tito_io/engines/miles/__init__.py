"""Miles' sessions, as a client: the server keeps a conversation's ids, the client sends messages.

Exact where the server is: every turn's ids come back, and are compared with what it recorded.
"""

from tito_io.engines.replies.samples_container import MilesSample, MilesSamples

from .engine import Miles
from .errors import (
    CutTurnError,
    NotRecordedError,
    RecordsUnavailableError,
    SamplesRefusedError,
    SessionNotFoundError,
    SessionUsedError,
)
from .records import Record, Records
from .requests import request_kwargs
from .router import Agent, Health, MilesRouter, Rolled
from .session import MilesSession

__all__ = [
    "Agent",
    "CutTurnError",
    "Health",
    "Miles",
    "MilesRouter",
    "MilesSample",
    "MilesSamples",
    "MilesSession",
    "NotRecordedError",
    "Record",
    "Records",
    "RecordsUnavailableError",
    "Rolled",
    "SamplesRefusedError",
    "SessionNotFoundError",
    "SessionUsedError",
    "request_kwargs",
]
