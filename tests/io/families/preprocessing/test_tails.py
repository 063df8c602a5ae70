"""What a stitched prompt ends with is what vLLM's prompt of the whole conversation ends with.

`test_recorded.py` shows that the whole conversations are rendered as in vLLM. The profile `soak` takes every
turn of every template, which lasts some minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from tests.engines.preprocessing.shapes import Conversation, Message, conversations, said, user
from tests.families.table import everything
from tests.model_folders import FAMILIES, needs_families
from tests.profiles import EVERYTHING
from tito_core import OddStop, Policy, Step, Stitched, TemplateRefused, answer, stitch_questions
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe
from tito_io.families.family import Bound, Family
from tito_io.serve.client_noise import NoiseFilter, NoiseRule

SAMPLED = (40, 41)
MARK = "Quixote"
REFUSED_AT_MOST = 0.05
EVERY = 1 if EVERYTHING else 97
"""Of how many turns one is tried; no multiple of how many a template has."""
NOISE = NoiseFilter(frozenset(NoiseRule))


LATE = Conversation(
    "developer, then a late system text",
    [
        *(user(), said(), {"role": "developer", "content": "Be kind."}, user(), said()),
        *({"role": "system", "content": "Be quick."}, user()),
    ],
    None,
)
"""vLLM moves the system text to the beginning, as there is a developer's."""


@attrs.frozen
class Turn:
    """A turn of an assistant with something after it, in the prompt of the next turn."""

    shape: str
    prompt: list[Message]
    place: int
    tools: list[Message] | None

    @property
    def history(self) -> list[Message]:
        """The messages before it."""
        return self.prompt[: self.place]

    def marked(self) -> list[Message]:
        """Return the prompt with a text of our own in every message after the turn."""
        new = self.prompt[self.place + 1 :]
        return [*self.prompt[: self.place + 1], *({**one, "content": MARK} for one in new)]


def turns(one: Conversation, *, by_gateway: bool) -> Iterator[Turn]:
    """Yield the turns of a conversation without media, as it is or as the gateway takes it from a client."""
    messages = one.messages
    if any(word in repr(messages) for word in ("image", "file")):
        return
    if by_gateway:
        messages = [dict(message) for message in NOISE.clean(messages, one.tools or ()).messages]
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for place, end in zip(places, [*places[1:], len(messages)], strict=False):
        words = messages[place].get("content") or messages[place].get("tool_calls")
        if words and end > place + 1:  # Inkling's template writes no turn that says nothing
            yield Turn(one.name, messages[:end], place, one.tools)


@attrs.define
class Judge:
    """Judges the turns of one template; what is learned for one turn is known for the next."""

    family: Family
    stops: list[int]
    profiles: dict[Bound, GrowingProfile] = attrs.field(factory=dict)

    def verdict(self, turn: Turn) -> str:
        """Return whether the prompt is stitched, and rightly."""
        bound = self.family.tokenize_fn(tools=turn.tools)
        try:
            whole = self.family.decode(bound(turn.prompt, add_generation_prompt=True))
            before = list(bound(turn.history, add_generation_prompt=True))
            profile = self._profile(bound)
        except TemplateRefused:
            return "not rendered"
        tail = self._tail(turn, before, bound, profile)
        if tail is None:
            return "refused" if self._writes_all(turn) else "not written after the turn"
        return "right" if whole.endswith(self.family.decode(tail)) else "wrong"

    def _profile(self, bound: Bound) -> GrowingProfile:
        if bound not in self.profiles:
            self.profiles[bound] = GrowingProfile(probe(bound, self.stops))
        return self.profiles[bound]

    def _tail(
        self, turn: Turn, before: Sequence[int], bound: Bound, profile: GrowingProfile
    ) -> list[int] | None:
        """Return what follows the sampled text: from the template's own stop on, or after another one.

        Both are compared as text, since a stop that is not the template's may stand where others merge.
        """
        for policy, stop in product((Policy(), Policy(odd_stop=OddStop.KEEP)), self.stops):
            step = Step(
                prompt=turn.history,
                completion=[turn.prompt[turn.place]],
                prompt_ids=before,
                completion_ids=[*SAMPLED, stop],
            )
            asking = stitch_questions([step], turn.prompt, profile.suffix, policy=policy, profile=profile)
            found = answer(asking, bound)
            if isinstance(found, Stitched):
                own = [] if policy.odd_stop is OddStop.KEEP else [stop]
                return [*own, *found.added]
        return None

    def _writes_all(self, turn: Turn) -> bool:
        """Return whether the template writes every new message, and where it stands in the conversation."""
        given: Mapping[str, Any] = {"tools": turn.tools, "add_generation_prompt": True}
        try:
            text = self.family.text(turn.marked(), **given)
        except TemplateRefused:
            return True
        new = len(turn.prompt) - turn.place - 1
        return text.find(MARK) >= len(self.family.text(turn.history, **given)) and text.count(MARK) >= new


@needs_families
def test_a_stitched_prompt_ends_as_the_engines_own() -> None:
    """A text that the template drops, or that vLLM moves before the turn, is refused, and not counted."""
    counts, wrong, number = Counter[str](), list[tuple[str, str, str]](), 0
    talks = [*conversations(), LATE]
    every = [turn for one in talks for way in (False, True) for turn in turns(one, by_gateway=way)]
    for subject in everything(FAMILIES):
        judge = Judge(subject.family.rendered_as("vllm"), sorted(subject.stops))
        for turn in every:
            number += 1
            if number % EVERY == 0:
                verdict = judge.verdict(turn)
                counts[verdict] += 1
                wrong += [(subject.name, subject.template, turn.shape)] if verdict == "wrong" else []
    print(counts)  # noqa: T201  # shown with -s
    assert not wrong
    assert counts["refused"] <= REFUSED_AT_MOST * (counts["right"] + counts["refused"]), counts
