"""What steps of a trajectory share, and what follows them."""

from __future__ import annotations

from array import array

from tito_core import Trajectory, try_stitch
from tito_core.shared import Chain
from tito_core.testing.toys import toy_named

CHATML = toy_named("chatml")


def sharing(trajectory: Trajectory) -> list[tuple[int, int, int, int]]:
    """Return for each pair of steps how many messages, ids and ids of the ledger they share by identity."""

    def common(chain: Chain, other: Chain) -> int:
        return max((link.length for link in chain.links() if other.extends(link)), default=0)

    return [
        (
            common(step.messages, other.messages),
            common(step.prompt, other.prompt),
            common(step.ids, other.ids),
            common(step.prompt_ledger, other.prompt_ledger),
        )
        for place, step in enumerate(trajectory)
        for other in trajectory[:place]
    ]


def packed(trajectory: Trajectory) -> bool:
    """Return whether all ids take four bytes each."""
    return all(isinstance(part, array) for step in trajectory for part in step.ids.parts() if part)


def stitched(trajectory: Trajectory) -> list[object]:
    """Return what a stitch gives for a prompt that continues each step."""
    prompts = [[*step.messages, {"role": "user", "content": "what now?"}] for step in trajectory]
    return [try_stitch(trajectory, prompt, CHATML.suffix, CHATML) for prompt in prompts]
