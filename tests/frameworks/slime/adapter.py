"""What the integration uses of slime's adapters, without HTTP.

In the order of `BaseAdapter._run_turn`, `slime/agent/adapters/common.py` of THUDM/slime 624b824: the session
is found, the messages are rendered, the engine samples, the turn is recorded by keywords.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from tests.frameworks.sampler import Engine
from tito_io.integrations.slime import BridgeSessions


@frozen
class TurnRecord:
    """A turn as slime records it."""

    prompt_ids: list[int]
    output_ids: list[int]
    finish_reason: str


@define(slots=False)
class Manager:
    """Keeps what it is given, as `TrajectoryManager.record_turn` takes it."""

    recorded: list[tuple[str, TurnRecord, list[Any], Any]] = field(factory=list)

    def record_turn(
        self,
        sid: str,
        *,
        turn: TurnRecord,
        prompt_messages: list[Any],
        response_message: Any,
        metadata: Any = None,
    ) -> None:
        assert metadata == {"sid": sid}
        self.recorded.append((sid, turn, prompt_messages, response_message))


class BaseAdapter:
    """slime's adapter without HTTP; each session has an engine of its own."""

    def __init__(self, *, tokenizer: Any, sglang_url: str) -> None:
        assert sglang_url
        self.tokenizer = tokenizer
        self.manager = Manager()
        self.shut: list[str] = []

    def _session_id(self, request: Any, body: Mapping[str, Any]) -> str:
        assert request is not None
        return str(body["user"])

    async def shutdown_session(self, sid: str, *, wait_timeout: float = 5.0) -> None:
        assert wait_timeout
        self.shut.append(sid)

    async def turn(self, sid: str, messages: Sequence[Any], engine: Engine) -> tuple[TurnRecord, Any]:
        """Take one turn; return it, and the assistant message that a client gets."""
        sid = self._session_id(object(), {"user": sid})
        encoded = self.tokenizer.apply_chat_template(
            messages, tools=None, tokenize=True, add_generation_prompt=True
        )
        has_fields = hasattr(encoded, "__getitem__") and "input_ids" in encoded
        prompt_ids = list(encoded["input_ids"] if has_fields else encoded)
        reply = engine.sample(prompt_ids)
        turn = TurnRecord(prompt_ids, list(reply.ids), reply.finish_reason)
        text = self.tokenizer.decode(turn.output_ids, skip_special_tokens=False).strip()
        message = {"role": "assistant", "content": text}
        self.manager.record_turn(
            sid,
            turn=turn,
            prompt_messages=list(messages),
            response_message=message,
            metadata={"sid": sid},
        )
        return turn, message


class Adapter(BridgeSessions, BaseAdapter):
    """The adapter that a user of slime writes."""
