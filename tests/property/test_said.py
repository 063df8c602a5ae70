"""Words that a template looks for: what it remembers of earlier messages is asked about, or refused.

With a profile the whole history is asked about where earlier messages say such a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.profiles import tries
from tito_core import Bridge, Message, Refusal, Step, Stitched, try_stitch
from tito_core.bridge import Known
from tito_core.message import Messages, texts_in
from tito_core.seams.profile import Profile
from tito_core.testing.strategies.choices import CHOICES
from tito_core.testing.strategies.message import Chat
from tito_core.testing.toys import toy_named

CHATML = toy_named("chatml")
WORDS = ("failed", "denied", "not found", "timed out", "empty", "stale")
ROLES = ("user", "tool", "system", "assistant")
HEARD = (("tool",), ("user",), ("user", "tool"), ("system", "user", "tool"), ("assistant", "tool"))
"""The roles that a template listens to."""
CALL = {"id": "callaaaa1", "type": "function", "function": {"name": "get", "arguments": "{}"}}


@attrs.frozen
class Remembering:
    """A template that writes, before the model speaks, which words the messages of some roles have said.

    Attributes:
        template_words: The words.
        roles: The roles that it listens to.
        counts: Whether it writes how often they were said, too.
    """

    template_words: tuple[str, ...]
    roles: tuple[str, ...]
    counts: bool

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = CHATML(messages, add_generation_prompt=False)
        heard = [text for one in messages if one["role"] in self.roles for text in texts_in(one)]
        times = {word: sum(word in text for text in heard) for word in self.template_words}
        said = [f"{word} {count}" if self.counts else word for word, count in times.items() if count]
        speaks = f"<|im_start|>assistant\n{''.join(f'[{one}]' for one in said)}"
        return ids + CHATML.encode(speaks) * add_generation_prompt


@st.composite
def remembered(draw: DrawFn) -> tuple[Remembering, Chat, Chat]:
    """Draw a template, a history with its turn, and what is new."""
    choices = draw(CHOICES)
    words = WORDS[: choices.pick((1, 2, 6))]
    roles = choices.pick(
        (("tool",), ("user",), ("user", "tool"), ("system", "user", "tool"), ("assistant", "tool"))
    )
    chat: Chat = []
    for _ in range(choices.pick((0, 1, 2))):
        chat += [
            {"role": "user", "content": _text(draw, words)},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "callaaaa1", "content": _text(draw, words)},
            *([{"role": "system", "content": _text(draw, words)}] if choices.once_in(3) else []),
            {"role": "assistant", "content": _text(draw, words)},
        ]
    turn = {"role": "assistant", "content": _text(draw, words)}
    chat += [{"role": "user", "content": _text(draw, words)}, turn]
    new = [{"role": "user", "content": _text(draw, words)}]
    return Remembering(words, roles, choices.once_in(2)), chat, new


def _text(draw: DrawFn, words: Sequence[str]) -> str:
    choices = draw(CHOICES)
    return f"{choices.pick(words)}: ab" if choices.once_in(3) else "ab"


def step_of(template: Remembering, chat: Chat) -> Step:
    """Return the last turn as it was sampled."""
    return Step(
        prompt=chat[:-1],
        completion=chat[-1:],
        prompt_ids=template(chat[:-1], add_generation_prompt=True),
        completion_ids=CHATML.encode(f"{chat[-1]['content']}<|im_end|>"),
    )


def tail(template: Remembering, chat: Chat, new: Chat) -> tuple[int, ...]:
    """Return what the template writes after the turn's stop."""
    before = template(chat, add_generation_prompt=False)
    return tuple(template([*chat, *new], add_generation_prompt=True)[len(before) - 1 :])


@given(remembered())
@tries(4)
def test_a_word_that_was_said_changes_no_answer(case: tuple[Remembering, Chat, Chat]) -> None:
    template, chat, new = case
    found = try_stitch([step_of(template, chat)], [*chat, *new], CHATML.suffix, template)
    assert isinstance(found, Refusal) or found.added == tail(template, chat, new)


@given(remembered())
@tries(4)
def test_with_a_profile_the_whole_history_is_asked_about(case: tuple[Remembering, Chat, Chat]) -> None:
    template, chat, new = case
    words: dict[str, Any] = {"words": template.template_words}
    known = Profile(suffix=CHATML.suffix, stop_ids=CHATML.stop_ids, **words)
    found = try_stitch([step_of(template, chat)], [*chat, *new], CHATML.suffix, template, profile=known)
    if isinstance(found, Stitched):
        assert found.added == tail(template, chat, new)
    else:  # the turn's own words are replaced where the history is asked about
        assert any(word in chat[-1]["content"] for word in template.template_words), found


@given(remembered(), st.sampled_from((False, True)), st.integers(0, 2))
@tries(4)
def test_without_the_history_a_word_that_may_have_been_said_changes_no_answer(
    case: tuple[Remembering, Chat, Chat], known: bool, level: int
) -> None:
    template, chat, new = case
    words: dict[str, Any] = {"words": template.template_words}
    profile = Profile(suffix=CHATML.suffix, stop_ids=CHATML.stop_ids, **words) if known else None
    bridge = Bridge(template, CHATML.stop_ids, suffix=CHATML.suffix, profile=profile, spans=False)
    knowledge: list[Known] = [{}, {"turn": chat[-1]}, {"history": chat[:-1]}]
    step = step_of(template, chat)
    found = bridge.extend(step.ids, new, **knowledge[level])
    assert isinstance(found, Refusal) or found.added == tail(template, chat, new)


MESSAGES = st.lists(st.tuples(st.sampled_from(ROLES), st.sampled_from((*WORDS[:3], "ab"))), max_size=6)


@given(MESSAGES, st.integers(0, 6), st.integers(0, 6), st.integers(1, 3))
@tries(6)
def test_what_messages_say_is_known_however_they_were_linked(
    said: list[tuple[str, str]], first: int, second: int, count: int
) -> None:
    """Of all that follows the opening, whatever was asked of earlier links."""
    chat = [{"role": role, "content": f"a {text}"} for role, text in said]
    begin, middle = sorted((first, second))
    words = WORDS[:count]
    early = Messages.of(chat[:begin])
    longer = early.then(chat[begin:middle])
    if count > 1:
        longer.says(words)
    whole = longer.then(chat[middle:])
    opening = next((place for place, (role, _) in enumerate(said) if role != "system"), len(said))
    texts = [text for _, text in said[opening:]]
    assert whole.says(words) == {word for word in words if word in texts}
    assert whole.says(WORDS[:1]) == {word for word in WORDS[:1] if word in texts}
