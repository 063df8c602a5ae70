"""Law 4. Longest.

The step used is the one with the longest proper message prefix of the prompt, among those that end with an
assistant's turn, whatever the order of the trajectory.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import Reason, Refusal, Step, Stitched, Trajectory, answer, stitch_questions
from tito_core.testing.strategies.choices import CHOICES
from tito_core.testing.strategies.message import Chat
from tito_core.testing.strategies.respelling import edited, respelled
from tito_core.testing.strategies.stitch_input import ANY_INPUT, StitchInput
from tito_core.testing.toys import toy_named

chatml = toy_named("chatml")

Path = tuple[str, ...]


@given(ANY_INPUT)
@tries(3)
def test_the_step_used_is_the_longest_proper_prefix(stitch_input: StitchInput) -> None:
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key),
        stitch_input.toy,
    )
    usable = oracle.longest(stitch_input.steps, stitch_input.prompt, stitch_input.key)
    if isinstance(found, Stitched):
        assert any(found.step is step for step in usable)
    elif found.reason is Reason.NO_PREFIX:
        assert not usable


@given(ANY_INPUT, st.randoms(use_true_random=False))
@tries(2)
def test_the_order_of_the_trajectory_does_not_matter(stitch_input: StitchInput, random: Any) -> None:
    shuffled = list(stitch_input.steps)
    random.shuffle(shuffled)
    found = [
        answer(
            stitch_questions(steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key),
            stitch_input.toy,
        )
        for steps in (stitch_input.steps, shuffled)
    ]
    lengths = {len(one.step.messages) for one in found if isinstance(one, Stitched)}
    assert len(lengths) <= 1
    if (
        len(oracle.longest(stitch_input.steps, stitch_input.prompt, stitch_input.key)) == 1
        and not stitch_input.toy.nondeterministic
    ):
        assert [type(one) for one in found] in ([Stitched, Stitched], [Refusal, Refusal])


@given(ANY_INPUT)
@tries(2)
def test_of_two_calls_with_the_same_messages_the_latest_is_used(stitch_input: StitchInput) -> None:
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key),
        stitch_input.toy,
    )
    if isinstance(
        found, Stitched
    ):  # it need not be the latest of all: others may spell a message differently
        usable = oracle.longest(stitch_input.steps, stitch_input.prompt, stitch_input.key)
        assert found.step is [step for step in usable if step.messages == found.step.messages][-1]


def message(letter: str) -> dict[str, Any]:
    """Return the message that a letter stands for: small letters ask, capitals answer."""
    return {"role": "user" if letter.islower() else "assistant", "content": letter}


def step_of(path: Path, mark: int, key: str | None = None) -> Step:
    """Return a step with these messages whose ids tell it from every other."""
    messages = [message(letter) for letter in path]
    return Step(
        prompt=messages[:-1],
        completion=messages[-1:],
        prompt_ids=[200 + mark],
        completion_ids=[300 + mark, chatml.suffix[0]],
        key=key,
    )


def paths(letters: str, longest: int) -> list[Path]:
    """Return all sequences of one to `longest` letters."""
    return [path for size in range(1, longest + 1) for path in itertools.product(letters, repeat=size)]


def used(steps: Sequence[Step], prompt: Path, key: str | None = None) -> Step | Reason:
    """Return the step that the kernel takes for a prompt, or why it takes none."""
    asking = stitch_questions(steps, [message(letter) for letter in prompt], chatml.suffix, key=key)
    found = answer(asking, chatml)
    return found.step if isinstance(found, Stitched) else found.reason


def expected(candidates: Sequence[tuple[Path, Step]], prompt: Path) -> Step | Reason:
    """Return what a reader of the law would take: letters compared one by one."""
    fitting = [(path, step) for path, step in candidates if prompt[: len(path)] == path]
    answered = [(path, step) for path, step in fitting if path[-1].isupper()]
    if not answered:
        return Reason.NOT_ASSISTANT if fitting else Reason.NO_PREFIX
    longest = max(len(path) for path, _ in answered)
    path, step = [one for one in answered if len(one[0]) == longest][-1]
    return Reason.NOTHING_NEW if path == prompt else step


def test_every_pair_of_small_steps_meets_every_small_prompt() -> None:
    """All pairs of steps of up to three messages over one question and one answer, prompts of up to four."""
    known = [(path, step_of(path, mark)) for mark, path in enumerate(paths("aA", 3))]
    for prompt in paths("aA", 4):
        for first, second in itertools.product(known, repeat=2):
            pair = [first, second]
            assert used([step for _, step in pair], prompt) is expected(pair, prompt), (
                first[0],
                second[0],
                prompt,
            )


def test_every_small_step_meets_every_small_prompt_over_two_letters() -> None:
    """Steps and prompts of up to three messages over two questions and two answers."""
    known = [(path, step_of(path, mark)) for mark, path in enumerate(paths("abAB", 3))]
    for prompt in paths("abAB", 3):
        for one in known:
            assert used([one[1]], prompt) is expected([one], prompt), (one[0], prompt)


def test_a_whole_forest_is_searched() -> None:
    """All paths of up to four messages at once, in three orders."""
    known = [(path, step_of(path, mark)) for mark, path in enumerate(paths("aAB", 4)) if path[-1].isupper()]
    for order in (known, known[::-1], sorted(known, key=lambda one: one[0][::-1])):
        trajectory = Trajectory(step for _, step in order)
        for prompt in paths("aAB", 5)[::7]:
            if prompt not in dict(order):
                assert used(trajectory, prompt) == expected(order, prompt), prompt


@given(st.data())
@tries(2)
def test_near_misses_are_no_matches(data: st.DataObject) -> None:
    """Steps that differ from the prompt in one message somewhere, before and after the real one."""
    chat: Chat = [message(letter) for letter in "aAbBaAb"]
    steps = []
    for _ in range(data.draw(st.integers(1, 6))):
        place, end = data.draw(st.sampled_from(range(6))), data.draw(st.sampled_from((2, 4, 6)))
        near = [*chat[:place], edited(data.draw(CHOICES), chat[place]), *chat[place + 1 :]][:end]
        steps.append(Step(prompt=near[:-1], completion=near[-1:], prompt_ids=[1], completion_ids=[2]))
    prompt = [respelled(data.draw(CHOICES), one) for one in chat]
    for sequence in (steps, Trajectory(steps)):
        found = answer(stitch_questions(sequence, prompt, chatml.suffix), chatml)
        usable = oracle.longest(sequence, prompt)
        assert found.step in usable if isinstance(found, Stitched) else not usable


def test_a_step_rendered_with_other_tools_is_not_used() -> None:
    """Its ids are those of another prompt."""
    ours, theirs = step_of(("a", "A"), 1, key="ours"), step_of(("a", "A"), 2, key="theirs")
    prompt = ("a", "A", "b")
    assert used([ours, theirs], prompt, "ours") is ours
    assert used([theirs, ours], prompt, "theirs") is theirs
    assert used([theirs], prompt, "ours") is Reason.RENDERED_DIFFERENTLY
    assert used([theirs], prompt) is Reason.RENDERED_DIFFERENTLY
