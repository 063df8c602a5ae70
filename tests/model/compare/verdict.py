"""Verdicts: do the kernel's answer and the model's agree, and if not, who is to explain it?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tests.model.messages import calls
from tests.model.stitch import Answer
from tito_core import Extension, Reason, Refusal
from tito_core.join import NextPrompt
from tito_core.message import texts_in

LOCATING = {
    Reason.NO_PREFIX,
    Reason.RENDERED_DIFFERENTLY,
    Reason.NOTHING_NEW,
    Reason.NOT_ASSISTANT,
    Reason.NO_IDS,
    Reason.TRUNCATED,
    Reason.MULTIMODAL,
}
"""Reasons for which a step alone is looked at: the model must have the same one."""
WITH_CARE = {
    Reason.UNPROVEN_TAIL,
    Reason.ODD_STOP,
    Reason.CLOSE_MISMATCH,
    Reason.SWALLOWED,
    Reason.TEMPLATE_REFUSED,
}
"""Reasons for which the kernel may refuse what the model, which sees more, can answer."""
MISFITS = {"MULTIMODAL", "KEY_DIFFERS"}
"""Reasons for which a step that fits in neither way may be refused."""


@attrs.frozen
class Verdict:
    """What came of one case.

    Attributes:
        kind: `agreed`, `refused alike`, `refused rightly`, `refused with care`, `without truth`, `DISAGREED`;
            or `decided otherwise`, where both answers can be defended.
        what: The reasons, or the first thing that differs.
    """

    kind: str
    what: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the two disagree."""
        return self.kind == "DISAGREED"


def judged(  # noqa: PLR0911  # one return a verdict
    kernel: NextPrompt | Refusal, model: Sequence[Answer] | str, *, authored: str, located: bool = True
) -> Verdict:
    """Compare the answers. `authored` is empty for a template that does not say who wrote what."""
    if isinstance(kernel, Refusal):
        if isinstance(model, str):
            both = {kernel.reason.name, model}
            same, first = len(both) == 1 or both == MISFITS, {one.name for one in LOCATING}
            if located and not same and (kernel.reason in LOCATING or model in first):
                return Verdict(
                    "DISAGREED", f"the kernel refuses for {kernel.reason.name}, the model for {model}"
                )
            return (
                Verdict("refused alike", model)
                if same
                else Verdict("refused rightly", f"{kernel.reason.name} for {model}")
            )
        # A bridge that is not told takes a turn that ended with no known stop for one that was cut.
        if kernel.reason in LOCATING and (located or kernel.reason is not Reason.TRUNCATED):
            return Verdict("DISAGREED", f"the kernel refuses for {kernel.reason.name}, the model answers")
        careful = kernel.reason in WITH_CARE or kernel.reason in LOCATING
        return Verdict("refused with care" if careful else "DISAGREED", kernel.reason.name)
    if isinstance(model, str):
        if model == "TEMPLATE_REFUSED":
            return Verdict("without truth", model)
        return Verdict("DISAGREED", f"the kernel answers, the model refuses for {model}")
    if any(close_was_sampled(kernel, one) for one in model):
        return Verdict("decided otherwise", "CLOSE_SAMPLED")
    found = [difference(kernel, one, authored=authored) for one in model]
    return Verdict("agreed") if None in found else Verdict("DISAGREED", str(found[0]))


def close_was_sampled(kernel: NextPrompt, model: Answer) -> bool:
    """Return whether the answers differ in one id that was sampled: the model writes it once more.

    The id is a template's close after calls, and no known stop. The kernel sees that it stands there.
    """
    added, right = list(kernel.added), model.ids[len(model.ids) - len(model.tail.ids) + model.written :]
    last = list(kernel.ids[-len(added) - 1 :][:1]) if added else []
    return bool(last) and right == [*last, *added]


def difference(kernel: NextPrompt, model: Answer, *, authored: str) -> str | None:
    """Return the first thing in which two answers differ, None if they agree."""
    ours: dict[str, Any] = {"ids": kernel.ids.tolist(), "mask": kernel.ledger.mask()}
    theirs: dict[str, Any] = {"ids": model.ids, "mask": [int(one == "SAMPLED") for one in model.ledger]}
    ours |= {"replaced stop": kernel.replaced_stop, "kept stop": kernel.kept_stop}
    theirs |= {"replaced stop": model.replaced, "kept stop": model.kept}
    ours |= {"media": [(one.offset, one.stop) for one in kernel.media]}
    theirs |= {"media": model.media}
    if authored and model.tail.clear:
        ours |= {"close": list(kernel.inserted_close), "generation prompt": kernel.generation_prompt}
        theirs |= {"close": model.close, "generation prompt": model.prompt}
        ours |= {"ledger": [origin.name for origin in kernel.ledger]}
        theirs |= {"ledger": model.ledger}
        if isinstance(kernel, Extension) and isinstance(kernel.spans, tuple):
            written = [i for i, m in enumerate(model.new) if m["role"] != "assistant" and not calls(m)]
            written = [place for place in written if "".join(texts_in(model.new[place])).strip()]
            ours |= {"spans": [(span.start, span.stop) for span in kernel.spans]}
            ours |= {
                "contents": [(kernel.spans[i].content_start, kernel.spans[i].content_stop) for i in written]
            }
            theirs |= {"spans": moved(model, model.tail.wholes) if authored != "grouped" else ours["spans"]}
            theirs |= {"contents": moved(model, [model.tail.bodies[i] for i in written])}
    for name in theirs:
        if ours[name] != theirs[name]:
            return apart(name, ours[name], theirs[name])
    return None


def apart(name: str, ours: Any, theirs: Any) -> str:
    """Return two values as text, lists from the first place on in which they differ."""
    place = 0
    if isinstance(ours, list) and isinstance(theirs, list):
        place = next(
            (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
            min(len(ours), len(theirs)),
        )
        ours, theirs = ours[place : place + 12], theirs[place : place + 12]
    return f"{name}, from place {place}: the kernel says {ours}, the model {theirs}"


def moved(model: Answer, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return places in the tail as places in what was added."""
    return [(max(a - model.written, 0), max(b - model.written, 0)) for a, b in places]
