"""Replace the texts of stored calls by placeholders of the same shape, to show a bug without them.

Equal texts become equal placeholders and different ones different: messages match as before, and prompts
continue what they continued. The placeholders are drawn anew in each run.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from random import SystemRandom
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

import attrs

from tito_core import SamplingMask, Step
from tito_core.samples import Forest, StoredCall

from .conversation import HistorySharing, Problem
from .read import StoredConversation

WORDS = frozenset(
    (
        *("assistant", "developer", "function", "system", "tool", "user"),
        *("audio", "file", "image", "image_url", "reasoning", "refusal", "text", "thinking", "video"),
        *("array", "boolean", "integer", "null", "number", "object", "string"),
    )
)
"""Roles, and types of parts, tools and JSON Schema: they stay as the value of `role` or `type`."""
KEYS = frozenset(
    (
        *(
            "arguments",
            "content",
            "function",
            "id",
            "name",
            "role",
            "text",
            "tool_call_id",
            "tool_calls",
            "type",
        ),
        *("audio", "file", "image", "image_url", "input_audio", "refusal", "url", "uuid", "video"),
        *("reasoning", "reasoning_content", "signature", "thinking"),
        *("description", "enum", "items", "parameters", "properties", "required"),
    )
)
"""Keys of messages, parts, calls and tools: they stay."""
IDEOGRAPHS = range(0x4E00, 0xA000)
"""What stands for a character that is not ASCII."""
TRIES = 1000
"""How many placeholders of a shape are drawn before a longer one."""


@attrs.define
class Redaction:
    """Placeholders of one run, the same in all conversations.

    Attributes:
        ids: Whether ids are numbered, too. Else they stay, and spell the texts with the model's tokenizer.

    >>> words = Redaction()
    >>> hidden = words.text("Call 0171 now!")
    >>> len(hidden), hidden[4], hidden[-1], hidden == words.text("Call 0171 now!"), words.text("ok") == hidden
    (14, ' ', '!', True, False)
    """

    ids: bool = False
    _texts: dict[str, str] = attrs.field(factory=dict, init=False)
    _taken: set[str] = attrs.field(factory=set, init=False)
    _numbers: defaultdict[str, dict[Any, int]] = attrs.field(factory=lambda: defaultdict(dict), init=False)
    _random: SystemRandom = attrs.field(factory=SystemRandom, init=False)

    def conversations(
        self, stored: Iterable[StoredConversation | Problem]
    ) -> Iterator[StoredConversation | Problem]:
        """Yield each conversation without its texts, and problems as they are."""
        for one in stored:
            yield one if isinstance(one, Problem) else self._conversation(one)

    def _conversation(self, one: StoredConversation) -> StoredConversation:
        history = HistorySharing()
        calls = [history.share(self.call(call)) for call in one.forest.calls]
        return attrs.evolve(one, name=self.name("conversation", one.name), forest=Forest.of(calls))

    def call(self, call: StoredCall) -> StoredCall:
        """Return a call without its texts, metadata and routed experts."""
        return attrs.evolve(
            call,
            name=self.name("call", call.name),
            step=self._step(call.step),
            weight_versions=[
                attrs.evolve(run, version=self.name("weights", run.version)) for run in call.weight_versions
            ],
            routed_experts=None,
            metadata={},
        )

    def _step(self, step: Step) -> Step:
        mask = step.sampling_mask
        return Step(
            prompt=[self._value(message) for message in step.prompt],
            completion=[self._value(message) for message in step.completion],
            prompt_ids=self._ids(step.prompt_ids),
            completion_ids=self._ids(step.completion_ids),
            logprobs=step.logprobs,
            truncated=step.truncated,
            key=None if step.key is None else self._json(step.key),
            prompt_ledger=step.prompt_ledger,
            media=[
                attrs.evolve(
                    one,
                    identity=self.text(one.identity),
                    collapsed=tuple(self._ids(one.collapsed)),
                )
                for one in step.media
            ],
            sampling_mask=None if mask is None else SamplingMask(self._ids(mask.ids), mask.counts),
        )

    def _ids(self, ids: Sequence[int]) -> list[int]:
        return [self._number("id", one) if self.ids else one for one in ids]

    def name(self, kind: str, text: str) -> str:
        """Return a name's placeholder, such as `call-0001`: names of a kind are numbered as they appear."""
        return f"{kind}-{self._number(kind, text):04}"

    def _number(self, kind: str, value: Any) -> int:
        known = self._numbers[kind]
        return known.setdefault(value, len(known) + 1)

    def _value(self, value: Any, key: str = "") -> Any:
        """Return JSON data without its texts; `key` is where they stand."""
        if isinstance(value, str):
            if key in ("role", "type") and value in WORDS:
                return value
            return self._json(value) if key == "arguments" else self.text(value)
        if isinstance(value, Mapping):
            return {
                name if name in KEYS else self.text(name): self._value(one, name)
                for name, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._value(one, key) for one in value]
        if value is None or isinstance(value, bool):
            return value
        return self._like_number(value)

    def _like_number(self, value: float) -> float:
        """Return another number; an integer stays one, and equal numbers stay equal."""
        number = self._number("number", value)
        return type(value)(number) if type(value) is int or value.is_integer() else number + 0.5

    def _json(self, text: str) -> str:
        """Return JSON text without its texts; other text is replaced whole."""
        try:
            value = json.loads(text)
            if isinstance(value, dict | list):
                tight = text in (_tight(value, ascii_only=True), _tight(value, ascii_only=False))
                hidden = self._value(value)
                return _tight(hidden, ascii_only=False) if tight else json.dumps(hidden, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass  # a model may write anything
        return self.text(text)

    def text(self, text: str) -> str:
        """Return a text's placeholder: white space and ASCII punctuation stay, what else it has is drawn."""
        if text not in self._texts:
            self._texts[text] = self._drawn(text)
            self._taken.add(self._texts[text])
        return self._texts[text]

    def _drawn(self, text: str) -> str:
        drawn = ""
        for tried in count():
            drawn = "".join(map(self._like, text + "x" * (tried // TRIES)))
            if drawn not in self._taken:
                break
        return drawn

    def _like(self, character: str) -> str:
        if not character.isascii():
            return character if character.isspace() else chr(self._random.choice(IDEOGRAPHS))
        for kind in (ascii_lowercase, ascii_uppercase, digits):
            if character in kind:
                return self._random.choice(kind)
        return character


def _tight(value: Any, *, ascii_only: bool) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
