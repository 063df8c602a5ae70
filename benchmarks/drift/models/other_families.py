"""Put the text that a model wrote through another family's tokenizer and template.

The ids that such a model would have sampled for the text are not known. The canonical ones stand for them:
what differs then is due to the template, or to tokens across the borders of turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from tito_core import Message, Step, TitoError, Trajectory, stitch, suffix_ids
from tito_core.samples import Forest, StoredCall
from tito_io.audit.rendering import AuditRendering, FamilyRenderer
from tito_io.samples.conversation import Problem
from tito_io.samples.read import StoredConversation

from .design import Plan
from .measure import Measurement

WORD = "Zephyr"
FIRST = 20
"""The text of so many conversations of each temperature and language is taken, without those with tools."""


@attrs.frozen
class OtherFamily:
    """Another family's tokenizer and template.

    Attributes:
        name: Name of its folder.
        renderer: Renders and encodes.
    """

    name: str
    renderer: FamilyRenderer

    def ids(self, messages: Iterable[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused`."""
        return list(self.renderer.ids(list(messages), None, add_generation_prompt=add_generation_prompt))

    @property
    def takes_plain_text(self) -> bool:
        """Whether the template writes a plain answer of one word as it follows the generation prompt."""
        user, answer = {"role": "user", "content": "Hello."}, {"role": "assistant", "content": WORD}
        try:
            spoken = self.ids([user], add_generation_prompt=True) + self.renderer.family.encode(WORD)
            return self.ids([user, answer, user], add_generation_prompt=True)[: len(spoken)] == spoken
        except TitoError:
            return False

    def restated(self, forest: Forest) -> Forest:
        """Return the calls with this family's ids; raises `TitoError` where the template refuses them."""
        steps = Trajectory()
        suffix = suffix_ids(self.ids)
        for call in forest.calls:
            ids = stitch(steps, call.step.prompt, suffix, self.ids)
            text = "".join(str(message.get("content") or "") for message in call.step.completion)
            closed = [] if call.step.truncated else suffix[:1]
            step = Step(
                prompt=call.step.prompt,
                completion=call.step.completion,
                prompt_ids=self.ids(call.step.prompt, add_generation_prompt=True) if ids is None else ids,
                completion_ids=[*self.renderer.family.encode(text), *closed],
                truncated=call.step.truncated,
            )
            steps = steps.append(step)
        return Forest.of(
            StoredCall(name=call.name, order=call.order, step=step)
            for call, step in zip(forest.calls, steps, strict=True)
        )


def other_families(folder: Path) -> Iterator[OtherFamily]:
    """Yield the families of a folder of model folders."""
    for path in sorted(folder.iterdir()):
        if (path / "tokenizer.json").exists():
            yield OtherFamily(path.name, AuditRendering(family=path).load())


def measured_as(
    family: OtherFamily, found: Iterable[StoredConversation | Problem], model: str, into: Measurement
) -> None:
    """Count the first conversations without tools of each setting, as if `family` had written them."""
    if not family.takes_plain_text:
        into.leave_out(model, family.name)
        return
    for one in found:
        if isinstance(one, Problem):
            continue  # it is reported where the model's own conversations are counted
        plan = Plan.parse(one.name)
        if plan.tools or plan.number >= FIRST:
            continue
        try:
            forest = family.restated(one.forest)
        except TitoError as error:
            into.problems.append(f"{family.name}: {one.name}: {error!s:.200}")
            continue
        into.add(one.name, forest, family.renderer, model=model, family=family.name)
