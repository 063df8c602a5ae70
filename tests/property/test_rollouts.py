"""All laws at once, over whole rollouts: retries, branches, cut turns, compaction, noisy echoes, new tools.

The machine keeps a shadow of every step (its messages, ids and loss mask) that no code of the kernel writes.
"""

from __future__ import annotations

import copy
from typing import Any

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests import oracle
from tito_core import (
    Origin,
    Policy,
    Refusal,
    Step,
    Stitched,
    Trajectory,
    answer,
    render_key,
    stitch_questions,
)
from tito_core.testing.strategies.choices import CHOICES, Choices
from tito_core.testing.strategies.message import Chat, draw_assistant, result, speech
from tito_core.testing.strategies.respelling import edited, respelled
from tito_core.testing.strategies.sampled import completed, rendered
from tito_core.testing.toys import TOYS, Toy

STEADFAST = [toy for toy in TOYS if not toy.nondeterministic]
KEYS = (None, render_key(tools=[{"type": "function", "function": {"name": "f"}}]))


@attrs.frozen
class Shadow:
    """A step as the machine remembers it."""

    chat: Chat
    asked: int
    """How many of the messages were its prompt."""
    ids: list[int]
    mask: list[int]
    key: str | None


class Rollout(RuleBasedStateMachine):
    """An agent, its engine and the kernel between them."""

    @initialize(toy=st.sampled_from(STEADFAST), choices=CHOICES)
    def begin(self, toy: Toy, choices: Choices) -> None:
        """Choose a family and take the first turn."""
        self.toy = toy
        self.key: str | None = None
        self.steps = Trajectory()
        self.shadows: list[Shadow] = []
        self.take_turn([speech(choices)], choices, None)

    def take_turn(self, chat: Chat, choices: Choices, found: Stitched | None) -> None:
        """Let the model answer a prompt, stitched or rendered, and commit the step."""
        turn = draw_assistant(lambda _: choices, may_call="tool" in self.toy.roles)
        whole = [*chat, turn]
        sampled, truncated = completed(
            choices, self.toy, [*whole, {"role": "user", "content": "a"}], len(chat)
        )
        if found is None:
            ids = rendered(self.toy, chat)
            step = Step(
                prompt=chat,
                completion=[turn],
                prompt_ids=ids,
                completion_ids=sampled,
                truncated=truncated,
                key=self.key,
            )
            before = [0] * len(ids)
        else:
            ids = found.ids.tolist()
            step = found.then(completion=[turn], completion_ids=sampled, truncated=truncated)
            parent = next(self.shadows[i] for i, kept in enumerate(self.steps) if kept is found.step)
            before = parent.mask + [0] * (len(ids) - len(parent.ids))
        self.steps = self.steps.append(step)
        mask = before + [1] * len(sampled)
        self.shadows.append(Shadow(copy.deepcopy(whole), len(chat), ids + sampled, mask, self.key))

    def ask(self, prompt: Chat, choices: Choices) -> Stitched | Refusal:
        """Put a prompt to the kernel in some spelling, and judge the answer by the oracle."""
        echoed = [respelled(choices, message) for message in prompt]
        found = answer(stitch_questions(self.steps, echoed, self.toy.suffix, key=self.key), self.toy)
        right = oracle.answers(self.toy, list(self.steps), echoed, self.toy.suffix, Policy(), self.key)
        if isinstance(found, Stitched):
            assert any(found.step is step for step in oracle.longest(self.steps, echoed, self.key))
            assert right is None or found.ids.tolist() in [one.ids for one in right]
        return found

    def follow(self, prompt: Chat, choices: Choices) -> None:
        """Ask, then let the model answer: from the stitched ids, or from messages."""
        found = self.ask(prompt, choices)
        self.take_turn(prompt, choices, found if isinstance(found, Stitched) else None)

    def what_follows(self, chat: Chat, choices: Choices) -> Chat:
        """Return tool results for calls, and a user's message otherwise."""
        called = chat[-1].get("tool_calls") or () if "tool" in self.toy.roles else ()
        return [result(choices, call) for call in called] or [speech(choices)]

    @rule(choices=CHOICES, more=CHOICES)
    def next_turn(self, choices: Choices, more: Choices) -> None:
        """Go on with the newest conversation."""
        chat = self.shadows[-1].chat
        self.follow([*chat, *self.what_follows(chat, choices)], more)

    @rule(choices=CHOICES, more=CHOICES, back=st.integers(1, 8))
    def branch(self, choices: Choices, more: Choices, back: int) -> None:
        """Go on with an older conversation, in its own way."""
        chat = self.shadows[-min(back, len(self.shadows))].chat
        self.follow([*chat, *self.what_follows(chat, choices)], more)

    @rule(choices=CHOICES, back=st.integers(1, 8))
    def retry(self, choices: Choices, back: int) -> None:
        """Send a prompt again, and answer it differently."""
        shadow = self.shadows[-min(back, len(self.shadows))]
        self.follow(shadow.chat[: shadow.asked], choices)

    @rule(choices=CHOICES)
    def compact(self, choices: Choices) -> None:
        """Replace the history by a summary, as a harness does: a new root."""
        self.follow([{"role": "user", "content": f"so far: {choices.pick('abc')}"}], choices)

    @rule(choices=CHOICES, more=CHOICES, place=st.integers(0, 8))
    def rewrite(self, choices: Choices, more: Choices, place: int) -> None:
        """Change something in the history, as a harness does: what was sampled after it is not used."""
        chat = copy.deepcopy(self.shadows[-1].chat)
        place %= len(chat)
        chat[place] = edited(choices, chat[place])
        self.ask([*chat, *self.what_follows(self.shadows[-1].chat, choices)], more)

    @rule(choices=CHOICES)
    def echo_alone(self, choices: Choices) -> None:
        """Ask for nothing new: a prompt that ends where a step ends is refused."""
        if self.shadows[-1].key == self.key:
            assert isinstance(self.ask(self.shadows[-1].chat, choices), Refusal)

    @precondition(lambda self: len(self.shadows) > 1)
    @rule()
    def change_tools(self) -> None:
        """From here on prompts are rendered with other tools."""
        self.key = KEYS[self.key is None]

    @invariant()
    def nothing_committed_ever_changes(self) -> None:
        """Every step still says what was sent and sampled, however much was shared and appended since."""
        for step, shadow in zip(self.steps, self.shadows, strict=True):
            assert step.ids == shadow.ids
            assert len(step.messages) == len(shadow.chat)
            assert all(map(oracle.same_message, step.messages, shadow.chat))
            assert step.ledger.mask() == shadow.mask
            assert step.key == shadow.key

    @invariant()
    def every_sampled_id_is_somewhere_trained_once(self) -> None:
        """In each step's own ledger the last span is its completion."""
        for step, shadow in zip(self.steps, self.shadows, strict=True):
            if len(step.completion_ids):
                last = step.ledger.spans[-1]
                assert last.origin is Origin.SAMPLED
                assert shadow.ids[last.start :] == list(step.completion_ids)


Rollout.TestCase.settings = settings(max_examples=max(1, settings().max_examples), stateful_step_count=10)
TestRollout: Any = Rollout.TestCase
