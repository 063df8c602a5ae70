"""Law 8. Ledger.

As long as the ids; sampled exactly on sampled ids.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import Ledger, OddStop, Origin, Policy, Step, Stitched, Trajectory, answer, stitch_questions
from tito_core.testing.strategies.choices import CHOICES, Choices
from tito_core.testing.strategies.message import Chat, speech
from tito_core.testing.strategies.stitch_input import ANY_INPUT, TIDY_INPUT, StitchInput
from tito_core.testing.tails import true_tails
from tito_core.testing.toys import Toy, toy_named

bracketed, chatml, doubled_close, eos_when_done, grouped, harmony, markers, opens_thinking = map(
    toy_named,
    (
        "bracketed",
        "chatml",
        "doubled_close",
        "eos_when_done",
        "grouped",
        "harmony",
        "markers",
        "opens_thinking",
    ),
)

POLICIES = [Policy(odd_stop=odd) for odd in OddStop]
USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "ab"}


def written_by(ledger: Ledger, ids: list[int], *origins: Origin) -> list[int]:
    """Return the ids that these origins wrote."""
    return [
        number for span in ledger.spans if span.origin in origins for number in ids[span.start : span.stop]
    ]


def check_shape(ledger: Ledger, length: int) -> None:
    """Check that the spans cover the ids without gap or overlap, and that the mask is their shadow."""
    assert len(ledger) == length == len(ledger.mask())
    edges = [edge for span in ledger.spans for edge in (span.start, span.stop)]
    assert edges[::2] == [0, *edges[1:-1:2]][: len(ledger.spans)]
    assert (edges[-1] if edges else 0) == length
    assert all(span.start < span.stop for span in ledger.spans)
    sampled = [
        place
        for span in ledger.spans
        if span.origin is Origin.SAMPLED
        for place in range(span.start, span.stop)
    ]
    assert [place for place, bit in enumerate(ledger.mask()) if bit] == sampled


@given(ANY_INPUT, st.sampled_from(POLICIES))
@tries(3)
def test_a_ledger_is_as_long_as_the_ids_and_sampled_exactly_on_sampled_ids(
    stitch_input: StitchInput, policy: Policy
) -> None:
    asking = stitch_questions(
        stitch_input.steps, stitch_input.prompt, stitch_input.suffix, policy=policy, key=stitch_input.key
    )
    found = answer(asking, stitch_input.toy)
    if not isinstance(found, Stitched):
        return
    ids, step = found.ids.tolist(), found.step
    check_shape(found.ledger, len(ids))
    replaced = int(found.replaced_stop is not None)
    sampled = list(step.completion_ids)[: len(step.completion_ids) - replaced]
    mask = [0] * len(step.prompt_ids) + [1] * len(sampled) + [0] * len(found.added)
    assert found.ledger.mask() == mask
    assert written_by(found.ledger, ids, Origin.PROMPT) == list(step.prompt_ids)
    after = (Origin.INSERTED_CLOSE, Origin.ENVIRONMENT, Origin.GENERATION_PROMPT)
    assert written_by(found.ledger, ids, *after) == list(found.added)


@given(TIDY_INPUT)
@tries(3)
def test_inserted_ids_are_marked_in_the_ledger(stitch_input: StitchInput) -> None:
    """The rest of the close is not sampled, not environment, and trains nothing."""
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix), stitch_input.toy
    )
    if not isinstance(found, Stitched):
        return
    inserted = written_by(found.ledger, found.ids.tolist(), Origin.INSERTED_CLOSE)
    assert inserted == list(found.inserted_close)
    assert inserted == list(found.added)[: len(inserted)]
    sizes = oracle.overlaps(list(found.step.completion_ids), stitch_input.suffix)
    tails = true_tails(stitch_input.toy, stitch_input.prompt, len(found.step.messages)) or []
    if sizes and all(tail[: len(stitch_input.suffix)] == stitch_input.suffix for tail in tails):
        assert inserted == list(stitch_input.suffix[max(sizes) :])


INVITED = {
    chatml: "<|im_start|>assistant\n",
    grouped: "<|im_start|>assistant\n",
    opens_thinking: "<|im_start|>assistant\n<think>\n",
    markers: "<|assistant|>",
    harmony: "<|start|>assistant",
    doubled_close: "<|assistant|>",
    eos_when_done: "<|assistant|>\n",
    bracketed: "",
}


@pytest.mark.parametrize(("toy", "invitation"), INVITED.items(), ids=[toy.name for toy in INVITED])
@pytest.mark.parametrize("truncated", [False, True])
def test_the_ledger_separates_the_generation_prompt_from_the_environment(
    toy: Toy, invitation: str, truncated: bool
) -> None:
    tail = (true_tails(toy, [USER, ANSWER, USER], 2) or [()])[0]
    stop = [] if truncated else list(tail[:1])
    step = Step(
        prompt=[USER], completion=[ANSWER], prompt_ids=[1], completion_ids=[197, *stop], truncated=truncated
    )
    found = answer(stitch_questions([step], [USER, ANSWER, USER], toy.suffix), toy)
    assert isinstance(found, Stitched)
    ids = found.ids.tolist()
    assert toy.tokenizer.decode(written_by(found.ledger, ids, Origin.GENERATION_PROMPT)) == invitation
    close = written_by(found.ledger, ids, Origin.INSERTED_CLOSE)
    assert close == list(toy.suffix if truncated else toy.suffix[1:])
    whole = toy.tokenizer.decode(stop + close + written_by(found.ledger, ids, Origin.ENVIRONMENT))
    assert whole + invitation == toy.tokenizer.decode(tail)


def speak(draw: Any) -> dict[str, Any]:
    """Draw a user's message that is a plain string."""
    return speech(draw(CHOICES)) | {"content": draw(st.sampled_from(("a", "ab", "<|im_end|>")))}


@given(st.data())
@tries(1)
def test_a_rollout_remembers_what_was_sampled_in_every_turn(data: st.DataObject) -> None:
    """Over many turns the mask is 1 on each completion and on nothing else."""
    chat: Chat = [speak(data.draw)]
    step = Step(prompt=chat, completion=[ANSWER], prompt_ids=[1, 2, 3], completion_ids=[197, 2])
    steps = Trajectory([step])
    mask = [0, 0, 0, 1, 1]
    chat = [*chat, ANSWER]
    for _ in range(data.draw(st.integers(1, 5))):
        new = speak(data.draw)
        found = answer(stitch_questions(steps, [*chat, new], chatml.suffix), chatml)
        assert isinstance(found, Stitched)
        sampled = data.draw(st.lists(st.integers(100, 110), max_size=3))
        cut = data.draw(st.booleans())
        ids = sampled if cut else [*sampled, 2]
        steps = steps.append(found.then(completion=[ANSWER], completion_ids=ids, truncated=cut))
        chat = [*chat, new, ANSWER]
        mask = mask + [0] * len(found.added) + [1] * len(ids)
        assert steps[-1].ledger.mask() == mask
        check_shape(steps[-1].ledger, len(steps[-1].ids))
        assert list(steps[-1].messages) == chat


def test_a_step_that_was_rendered_from_messages_was_sampled_in_its_completion_only() -> None:
    step = Step(prompt=[speech(Choices(0))], completion=[ANSWER], prompt_ids=[1, 2], completion_ids=[3])
    assert step.ledger.mask() == [0, 0, 1]
    assert [span.origin for span in step.ledger.spans] == [Origin.PROMPT, Origin.SAMPLED]
