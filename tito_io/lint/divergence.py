"""Where the next prompt, rendered afresh, first differs from the ids in use."""

from __future__ import annotations

from tito_core.seams.seam import common_prefix
from tito_io.families.family import Family

from .example_conversation import Played
from .report import Divergence
from .tokens import tokens

CONTEXT, SHOWN, COMPARED = 6, 12, 60
"""How many tokens are shown before the place and from it on; and how many are compared."""
ANCHOR = 3
"""So many ids in a row are no accident."""


def divergence(family: Family, found: Played) -> Divergence | None:
    """Return the first place, None where the render repeats all that was used."""
    at = common_prefix(found.used, found.rendered)
    if at == len(found.used):
        return None
    used, rendered = found.used[at : at + COMPARED], found.rendered[at : at + COMPARED]
    gone, new = _until_alike(used, rendered)
    return Divergence(
        at=at,
        before=tokens(family, found.used[max(at - CONTEXT, 0) : at]),
        used=tokens(family, used[:SHOWN]),
        rendered=tokens(family, rendered[:SHOWN]),
        in_prompt=at < len(found.prompt),
        dropped=family.decode(used[:gone]),
        added=family.decode(rendered[:new]),
        gone=gone,
        new=new,
    )


def _until_alike(used: tuple[int, ...], rendered: tuple[int, ...]) -> tuple[int, int]:
    """Return how many ids on each side stand before both agree again, for a few ids or up to the end.

    Something that is only left out, or only added, is likelier than one thing in the place of another.

    >>> _until_alike((7, 8, 5, 6, 2), (5, 6, 2, 1)), _until_alike((3, 2), (4, 5, 2))
    ((2, 0), (1, 2))
    """
    places = [(gone, new) for gone in range(len(used)) for new in range(len(rendered)) if gone or new]
    for gone, new in sorted(places, key=_cost):
        here = used[gone : gone + ANCHOR]
        if rendered[new : new + len(here)] == here:
            return gone, new
    return len(used), min(len(used), len(rendered))


def _cost(place: tuple[int, int]) -> int:
    return sum(place) * (2 if all(place) else 1)
