"""The oracle: where the sampled turn's text is over in a full render of the real conversation.

It shares nothing with the kernel. It reads the rendered text, finds the word that only the turn has, and
takes the ids from there on by the tokenizer's own offsets. After a tool call it goes on to the first id
that the family names as a stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tests.families.conversations import ARGUMENT, SPOKEN, Case
from tito_io.family import Family


@attrs.frozen
class Tail:
    """The ids of a full render after the turn's own text."""

    ids: tuple[int, ...]
    in_call: bool


def tail(family: Family, case: Case, stops: frozenset[int], template_args: Mapping[str, Any]) -> Tail | None:
    """Return the true tail, or None where the template writes nothing of the turn."""
    text = family.text(case.prompt, tools=case.tools or None, add_generation_prompt=True, **template_args)
    encoding = family.tokenizer.encode(text, add_special_tokens=False)
    begins = [offset[0] for offset in encoding.offsets]
    spoken, called = text.rfind(SPOKEN), text.rfind(ARGUMENT)
    if max(spoken, called) < 0:
        return None
    in_call = called > spoken
    end = called + len(ARGUMENT) if in_call else spoken + len(SPOKEN)
    after = [i for i, begin in enumerate(begins) if begin >= end]
    closing = [i for i in after if encoding.ids[i] in stops] if in_call else after
    return Tail(tuple(encoding.ids[closing[0] :]), in_call) if closing else None
