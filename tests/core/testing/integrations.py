"""A small framework that keeps ids, and the same with one mistake each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tito_core import Bridge, Extension, Refusal
from tito_core.testing import SampledTurn, Toy

Messages = list[dict[str, Any]]


class RefusedError(Exception):
    """The bridge gives no ids for this turn."""


class Integration:
    """Keeps messages, ids, mask and log-probabilities of one conversation."""

    def __init__(self, template: Toy) -> None:
        self.template = template
        self.bridge = Bridge(template, template.stop_ids, suffix=template.suffix)
        self.messages: Messages = []
        self.ids: list[int] = []
        self.mask: list[int] = []
        self.logprobs: list[float | None] = []
        self.last: SampledTurn | None = None

    def next_prompt(self, new: Messages) -> list[int]:
        added = self.added(new) if self.ids else self.first(new)
        self.messages += new
        self.ids += added
        self.mask += [0] * len(added)
        self.logprobs += [0.0] * len(added)
        return self.ids

    def first(self, new: Messages) -> list[int]:
        return self.template(new, add_generation_prompt=True)

    def added(self, new: Messages) -> list[int]:
        """Return what follows the last turn."""
        return list(self.extended(new, self.ids, self.truncated).added)

    @property
    def truncated(self) -> bool:
        return bool(self.last and self.last.truncated)

    def extended(self, new: Messages, ids: Sequence[int], truncated: bool) -> Extension:
        sampled = len(self.last.ids) if self.last else 0
        *history, turn = self.messages
        found = self.bridge.extend(ids, new, turn=turn, history=history, sampled=sampled, truncated=truncated)
        if isinstance(found, Refusal):
            raise RefusedError(found)
        return found

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        self.messages.append(message)
        self.ids += sampled.ids
        self.mask += [1] * len(sampled.ids)
        self.logprobs += sampled.logprobs or ()
        self.last = sampled


class Rerenders(Integration):
    """Renders the whole conversation for each prompt."""

    def next_prompt(self, new: Messages) -> list[int]:
        self.messages += new
        self.ids = self.template(self.messages, add_generation_prompt=True)
        self.mask = [*self.mask, *[0] * len(self.ids)][: len(self.ids)]
        self.logprobs = [*self.logprobs, *[None] * len(self.ids)][: len(self.ids)]
        return self.ids


class ClosesTwice(Integration):
    """Appends the whole close after a stop that was sampled."""

    def added(self, new: Messages) -> list[int]:
        return list(self.extended(new, self.ids, truncated=True).added)


class TakesCutsForStops(Integration):
    """Takes the last id of a turn that was cut short for a stop."""

    def added(self, new: Messages) -> list[int]:
        found = self.extended(new, self.ids, self.truncated)
        return list(found.added)[self.truncated :]


class LosesSpace(Integration):
    """Strips what it appends, as code does that tokenizes each message by itself."""

    def added(self, new: Messages) -> list[int]:
        text = self.template.decode(super().added(new))
        return self.template.encode(text.lstrip())


class CutsTurns(Integration):
    """Leaves out the last id before the stop."""

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        before, stop = sampled.ids[:-2], sampled.ids[-1:]
        super().record(message, SampledTurn([*before, *stop]) if before else sampled)


class CutsPrompt(Integration):
    """Strips the last id of each prompt."""

    def added(self, new: Messages) -> list[int]:
        return super().added(new)[:-1]


class TakesOneResult(Integration):
    """Appends the first of several new messages."""

    def added(self, new: Messages) -> list[int]:
        return super().added(new[:1])


class UsesDummies(Integration):
    """Renders new messages after a dummy conversation in place of the real one."""

    def added(self, new: Messages) -> list[int]:
        dummy = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
        before = self.template(dummy, add_generation_prompt=False)
        after = self.template([*dummy, *new], add_generation_prompt=True)
        return [*self.template.suffix[not self.truncated :], *after[len(before) :]]


class BeginsTwice(Integration):
    """Writes the first id of the first prompt twice."""

    def first(self, new: Messages) -> list[int]:
        ids = super().first(new)
        return [*ids[:1], *ids]


class ShiftsMask(Integration):
    """Masks as labels are: one place earlier."""

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        super().record(message, sampled)
        self.mask = [*self.mask[1:], 0]

    def next_prompt(self, new: Messages) -> list[int]:
        if self.mask:
            self.mask = [0, *self.mask[:-1]]
        return super().next_prompt(new)


class MasksStops(Integration):
    """Leaves the stop out of the mask."""

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        super().record(message, sampled)
        self.mask[-1] = 0


class ShiftsLogprobs(Integration):
    """Returns log-probabilities one place late."""

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        before = len(self.logprobs)
        super().record(message, sampled)
        self.logprobs[before:] = [0.0, *self.logprobs[before:-1]]


class LosesLogprobs(Integration):
    """Has no log-probability for the stop."""

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        super().record(message, sampled)
        self.logprobs[-1] = None


class Pads(Integration):
    """Ends a row with a padding id."""

    def record(self, message: dict[str, Any], sampled: SampledTurn) -> None:
        super().record(message, sampled)
        self.ids = [*self.ids, 0]

    def next_prompt(self, new: Messages) -> list[int]:
        del self.ids[len(self.ids) - bool(self.ids) :]
        return super().next_prompt(new)


class ForgetsCuts(Integration):
    """Never says that a turn was cut short."""

    @property
    def truncated(self) -> bool:
        return False


class GivesUp(Integration):
    """Refuses every prompt but the first."""

    def added(self, new: Messages) -> list[int]:
        raise RefusedError(new)
