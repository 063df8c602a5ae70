"""Routed experts whose data cannot be decoded are the reply's fault."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.engines.protocol import EngineAnswer, InvalidReplyError
from tito_io.engines.replies.experts import bare_experts, described_experts
from tito_io.engines.replies.invariants import Check

CHECK = Check("POST /", EngineAnswer(200, {}))


@pytest.mark.parametrize("data", ["###", "e\u0301", "YQ"])
def test_data_that_are_not_base64_are_refused(data: str) -> None:
    fields: dict[str, Any] = {"data": data, "shape": [1, 1, 1], "dtype": "uint8"}
    with pytest.raises(InvalidReplyError, match="is not base64"):
        described_experts(CHECK, fields, 2)
    with pytest.raises(InvalidReplyError, match="is unreadable"):
        bare_experts(CHECK, data, 2, 0, None)
