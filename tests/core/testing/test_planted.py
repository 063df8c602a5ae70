"""Ten lines find and name each usual mistake of an integration, and report nothing for a correct one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.core.testing import integrations
from tito_core.testing import TOYS, Mistake, NotTokenExactError, Toy, assert_token_exact, toy_named
from tito_core.testing.strategies import Rollout, rollouts
from tito_core.testing.strategies.rollout import PLAYABLE, can_play

FITTING = tuple(toy for toy in TOYS if can_play(toy))


def prompt_of(integration: integrations.Integration, new: integrations.Messages) -> list[int] | None:
    """Return the next prompt, None if it is refused."""
    try:
        return integration.next_prompt(new)
    except integrations.RefusedError:
        return None


def played(rollout: Rollout, kind: type[integrations.Integration]) -> None:
    """Play a rollout through an integration, and check each prompt and the row: the ten lines."""
    template = rollout.template
    integration = kind(template)
    for turn in rollout.turns:
        prompt = prompt_of(integration, turn.new_messages)
        if prompt is None and not turn.extendable:
            return
        assert_token_exact(prompt, turn.messages, turn.sampled_before, template, template.decode)
        integration.record(turn.message, turn.sampled)
    assert_token_exact(
        integration.ids,
        rollout.messages,
        rollout.sampled,
        template,
        template.decode,
        mask=integration.mask,
        logprobs=integration.logprobs,
    )


FEW = 40


def found(
    kind: type[integrations.Integration], templates: Sequence[Toy], examples: int = FEW
) -> Counter[Mistake | None]:
    """Return how often each mistake is found; None counts rollouts without one."""
    counted: Counter[Mistake | None] = Counter()

    @given(rollouts(templates))
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def count(rollout: Rollout) -> None:
        try:
            played(rollout, kind)
        except NotTokenExactError as error:
            counted[error.mistake] += 1
        else:
            counted[None] += 1

    count()
    return counted


def test_a_right_integration_passes() -> None:
    assert found(integrations.Integration, FITTING, 100).keys() == {None}


PLANTED = (
    (integrations.Rerenders, "chatml", Mistake.RERENDERED),
    (integrations.Rerenders, "thinking", Mistake.REASONING_DROPPED),
    (integrations.ClosesTwice, "chatml", Mistake.STOP_TWICE),
    (integrations.ClosesTwice, "two_closes", Mistake.STOP_TWICE),
    (integrations.TakesCutsForStops, "chatml", Mistake.CLOSE_CUT),
    (integrations.LosesSpace, "chatml", Mistake.WHITE_SPACE),
    (integrations.LosesSpace, "eos_when_done", Mistake.WHITE_SPACE),
    (integrations.CutsTurns, "chatml", Mistake.TURN_CHANGED),
    (integrations.TakesOneResult, "chatml", Mistake.MESSAGE_DROPPED),
    (integrations.CutsPrompt, "chatml", Mistake.GENERATION_PROMPT),
    (integrations.UsesDummies, "numbered_results", Mistake.SEAM),
    (integrations.BeginsTwice, "chatml", Mistake.PROMPT),
    (integrations.ShiftsMask, "chatml", Mistake.MASK_SHIFTED),
    (integrations.MasksStops, "chatml", Mistake.MASK),
    (integrations.LosesLogprobs, "chatml", Mistake.LOGPROBS),
    (integrations.ShiftsLogprobs, "chatml", Mistake.LOGPROBS_SHIFTED),
    (integrations.Pads, "chatml", Mistake.LONGER),
    (integrations.ForgetsCuts, "chatml", Mistake.REFUSED),
    (integrations.GivesUp, "chatml", Mistake.REFUSED),
)


@pytest.mark.parametrize(
    ("kind", "name", "mistake"), PLANTED, ids=[f"{kind.__name__}-{name}" for kind, name, _ in PLANTED]
)
def test_a_planted_mistake_is_found_and_named(
    kind: type[integrations.Integration], name: str, mistake: Mistake
) -> None:
    # What hypothesis draws first depends on the interpreter: rare mistakes may need more examples.
    assert any(mistake in found(kind, [toy_named(name)], examples) for examples in (FEW, 10 * FEW, 40 * FEW))


@pytest.mark.parametrize("kind", {kind: None for kind, name, _ in PLANTED if name == "chatml"})
def test_ten_lines_find_a_mistake_with_all_templates(kind: type[integrations.Integration]) -> None:
    """Without a choice of templates; a cut turn that is taken for a whole one is rare."""
    assert any(found(kind, PLAYABLE, examples).keys() - {None} for examples in (60, 600))


def test_what_the_bridge_refuses_may_be_refused() -> None:
    """The toy merges the end of a turn with what follows, so that the bridge refuses some of its turns."""
    extendable: Counter[bool] = Counter()

    @given(rollouts([toy_named("plain_merged_header")]))
    @settings(max_examples=40, derandomize=True, database=None, phases=[Phase.generate], deadline=None)
    def count(rollout: Rollout) -> None:
        extendable.update(turn.extendable for turn in rollout.turns)

    count()
    assert extendable.keys() == {True, False}


def test_every_mistake_is_planted() -> None:
    assert {mistake for _, _, mistake in PLANTED} == set(Mistake)
