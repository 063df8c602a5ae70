"""How often prompts are rendered, and what prompts that went by messages are compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tests.core.drift.conversations import (
    END,
    TOOLS,
    TOY,
    Conversation,
    Family,
    assistant,
    causes_of,
    forgetful,
    letters,
    thinks,
    trimming,
    turns,
    user,
    whole,
)
from tito_core import Message
from tito_core.drift import Cause


class Marked(Family):
    """Has marks of thinking among its special tokens."""

    @property
    def markers(self) -> frozenset[int]:
        return super().markers | set(TOY.encode("<think></think>"))


def test_by_messages_a_turn_ends_where_the_rendering_closes_it() -> None:
    """Though it has fewer markers than the turn had: the question after it is no part of the break."""
    conversation = Conversation(by_ids=False).turn("<think>hm</think>yes", thinks())
    prompt = [*conversation.calls[0].step.messages, user("next")]
    family = Marked(forgetful)
    conversation.turn("so", prompt=prompt, prompt_ids=family.ids(prompt, None, add_generation_prompt=True))
    audited = conversation.audit(family)
    assert causes_of(audited) == [("t0", "REASONING", "THINKING")]
    one = audited.breaks[0]
    assert ("".join(piece.text for piece in one.used), one.rendered_ids) == ("<think>hm</think>", 0)
    assert one.happened


def test_by_messages_it_happened() -> None:
    conversation = Conversation(by_ids=False).turn("ab", ids=letters("ab" + END)).turn("so")
    audited = conversation.audit()
    assert causes_of(audited) == [("t0", "CONTENT", "RETOKENIZED")]
    assert audited.breaks[0].happened
    assert audited.tally.actual_breaks == 1


def test_a_turn_is_rendered_as_it_was_sampled_once() -> None:
    """In the place of its message: two prompts, one of them with the text that was sampled, and one whole."""
    family, conversation = Family(), Conversation().turn("yes \n ab ", assistant("yes\nab")).turn("so")
    assert {cause for _, _, cause in causes_of(conversation.audit(family))} == {"WHITESPACE"}
    assert family.rendered == [1, 3, 3, 4]


def test_a_turn_that_was_cut_is_rendered_with_its_last_id() -> None:
    conversation = Conversation().turn("yes no", assistant("yes"), truncated=True).turn("so")
    assert causes_of(conversation.audit()) == [("t0", "CONTENT", "PARSE")]


def test_each_prompt_is_rendered_once_where_nothing_differs() -> None:
    """And the last conversation once: five prompts and one whole."""
    family = Family()
    turns(5, spelled=-1).audit(family)
    assert family.rendered == [1, 3, 5, 7, 9, 10]


class TrimmingWithoutTools(Family):
    """Keeps a turn's text as it is only where tools are offered."""

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        family = Family(whole if key and json.loads(key)[0] else trimming)
        return family.ids(messages, key, add_generation_prompt=add_generation_prompt)


def test_a_turn_is_rendered_as_it_was_sampled_with_the_tools_that_it_had() -> None:
    """What the template does without them is the tools' doing: here the parse lost the white space."""
    conversation = Conversation(TOOLS).turn(" yes ", assistant("yes")).turn("so", tools=[])
    breaks = conversation.audit(TrimmingWithoutTools()).breaks
    assert [one.detail for one in breaks if one.cause is Cause.WHITESPACE] == ["the parse lost or added it"]
