"""What a template is rendered with: tools or none, and its switch for thinking where it knows one.

A switch is found by trying: a value counts where it changes what is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tito_core import TemplateRefused

from .budget import LintBudget
from .example_conversation import SYSTEM, USER
from .report import SWITCHES, RenderingReport

THOUGHT = {"reasoning": "Add them.", "reasoning_content": "Add them."}
TOLD = ((USER,), (SYSTEM, USER, {"role": "assistant", "content": "Seven.", **THOUGHT}, USER))
Metering = Callable[[RenderingReport], LintBudget]


def renderings(metering: Metering, given: Mapping[str, Any]) -> tuple[RenderingReport, ...]:
    """Return the renderings to look into, the usual one first; raises `Hostile`.

    `given` are template arguments that all of them get; a switch among them is not tried.
    """
    usual = RenderingReport(tools=True, args=given)
    plain = RenderingReport(tools=False, args=given)
    known = _written(metering, usual)
    if _written(metering, usual) != known:  # it is never the same: nothing can be found by trying
        return (usual,)
    others = [plain] if _written(metering, plain) != known else []
    return (usual, *_switched(metering, usual, known), *others)


def _switched(
    metering: Metering, usual: RenderingReport, known: tuple[str | None, ...]
) -> Iterator[RenderingReport]:
    """Yield a rendering for each value of a switch that changes something."""
    for name in SWITCHES:
        for value in (False, True) if name not in usual.args else ():
            turned = RenderingReport(tools=usual.tools, args={**usual.args, name: value})
            if _written(metering, turned) != known:
                yield turned


def _written(metering: Metering, rendering: RenderingReport) -> tuple[str | None, ...]:
    """Return what is written of short conversations; None for one that the template rejects."""
    meter = metering(rendering)
    return tuple(_text(meter, messages) for messages in TOLD)


def _text(meter: LintBudget, messages: tuple[dict[str, Any], ...]) -> str | None:
    try:
        return meter.text(messages, speaking=True)
    except TemplateRefused:
        return None
