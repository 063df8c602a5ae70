"""Random turns in which anything may go wrong at once, and families that render them."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from hypothesis import strategies as st

from tests.core.drift.conversations import (
    END,
    OTHER_END,
    TOY,
    Conversation,
    Family,
    Writer,
    assistant,
    closing,
    forgetful,
    letters,
    shouting,
    trimming,
    user,
    whole,
)
from tito_core.drift.diff import Hunk
from tito_core.samples import StoredCall

WRITERS: tuple[Writer, ...] = (whole, forgetful, trimming, shouting, closing)
TEXTS = ("abba", "yes", "<think>ab</think>yes", "no \n", "<think>", "", "yes, yes, yes, ab", "7<tool_call>ab")


@attrs.frozen
class Turn:
    """What goes wrong in a turn."""

    text: str
    spelled: bool
    stop: str
    parsed: str
    edit: int
    tools: bool
    by_ids: bool
    back: int


TURNS = st.lists(
    st.builds(
        Turn,
        text=st.sampled_from(TEXTS),
        spelled=st.booleans(),
        stop=st.sampled_from((END, END, END, OTHER_END, "")),
        parsed=st.sampled_from(("as it is", "as it is", "stripped", "thinking apart", "thinking lost")),
        edit=st.sampled_from((-1, -1, -1, 0, 1)),
        tools=st.sampled_from((False, False, False, True)),
        by_ids=st.sampled_from((True, True, False)),
        back=st.sampled_from((0, 0, 0, 1)),
    ),
    min_size=1,
    max_size=6,
)
FAMILIES = st.builds(
    Family,
    writer=st.sampled_from(WRITERS),
    opening=st.sampled_from(("", "", "Hi. ")),
    end=st.sampled_from((END, END, OTHER_END)),
)


def message(turn: Turn) -> dict[str, object]:
    before, mark, after = turn.text.partition("</think>")
    if turn.parsed == "thinking apart" and mark:
        return assistant(after, reasoning_content=before.removeprefix("<think>"))
    if turn.parsed == "thinking lost" and mark:
        return assistant(after)
    return assistant(turn.text.strip() if turn.parsed == "stripped" else turn.text)


def calls_of(turns: Sequence[Turn]) -> list[StoredCall]:
    """Take turns, some of which go back to an earlier one."""
    calls: list[StoredCall] = []
    for number, turn in enumerate(turns):
        base = calls[-1 - turn.back] if len(calls) > turn.back else None
        conversation = Conversation(calls=[] if base is None else [base], by_ids=turn.by_ids)
        spell = letters if turn.spelled else TOY.encode
        prompt = [*(base.step.messages if base else ()), user(f"go on {number}")]
        if 0 <= turn.edit < len(prompt):
            prompt[turn.edit] = {**prompt[turn.edit], "content": "edited"}
        conversation.turn(
            "",
            message(turn),
            ids=spell(turn.text + turn.stop),
            truncated=not turn.stop,
            prompt=prompt,
            new=[user(f"go on {number}")],
            tools=[{"name": "f"}] if turn.tools else [],
        )
        calls.append(attrs.evolve(conversation.calls[-1], name=f"t{number}", order=number))
    return calls


def replayed(used: Sequence[int], rendered: Sequence[int], found: Sequence[Hunk]) -> list[int]:
    """Put what a rendering has into the places where it differs."""
    ids, at = [], 0
    for hunk in found:
        ids += [*used[at : hunk.start], *rendered[hunk.begin : hunk.end]]
        at = hunk.stop
    return [*ids, *used[at:]]
