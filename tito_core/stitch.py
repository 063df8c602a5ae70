"""Every id that a model sampled comes back unchanged, or nothing comes back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import attrs

from .errors import InputError
from .ids import PACKED, Ids, checked
from .ledger import Ledger, Origin
from .locate import Located, locate
from .message import Message, Messages
from .normalization.receipts import Forgiveness
from .policy import STRICT, OddStop, Policy
from .questions import Questions, TokenizeFn, answer
from .refusal import Reason, Refusal
from .seams.profile import Profile
from .seams.tail import ProvenTail
from .step import Step


@attrs.frozen(kw_only=True)
class Stitched:
    """The next prompt, and how it came about."""

    ids: Ids
    """The ids of the whole prompt, sharing those of the matched step."""
    step: Step
    """The step that the prompt continues."""
    _messages: Messages
    bridge: tuple[int, ...]
    """The ids after those of the step."""
    ledger: Ledger
    """Where each id comes from."""
    inserted_close: tuple[int, ...]
    """What was missing of the turn's close."""
    replaced_stop: int | None
    """The sampled stop in whose place the close stands, where the policy says so."""
    kept_stop: int | None
    """The sampled stop that stands before the close, where the policy says so."""
    forgiven: frozenset[Forgiveness]
    """Differences between the step's messages and the prompt's that did not count."""

    @property
    def environment(self) -> Messages:
        """The prompt's messages after the step."""
        return Messages.of(self._messages[self.step.messages.length :])

    def then(
        self,
        *,
        completion: Sequence[Message],
        completion_ids: Sequence[int],
        logprobs: Sequence[float | None] | None = None,
        truncated: bool = False,
    ) -> Step:
        """Return the step that this prompt and its completion make; it shares the matched step."""
        return Step(
            prompt=self._kept(),
            completion=completion,
            prompt_ids=self.ids,
            completion_ids=Ids.of(completion_ids, "completion_ids").packed(),
            logprobs=logprobs,
            truncated=truncated,
            key=self.step.key,
            prompt_ledger=self.ledger,
        )

    def _kept(self) -> Messages:
        """Return the prompt's messages, those that it shares with the step as the step has them."""
        messages = self.step.messages
        return self._messages if self._messages.extends(messages) else messages.then(self.environment)


def stitch(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    tokenize_fn: TokenizeFn,
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: Profile | None = None,
) -> list[int] | None:
    """Return the ids of the next prompt, or None where it must go by messages.

    `trajectory` holds the steps so far in any order; `prompt` is the whole conversation; `suffix` is the
    template's turn close (see `suffix_ids`); `policy` says what becomes of cut turns and odd stops, and which
    differences are forgiven; `key` says what the prompt is rendered with (`render_key`); `profile` is what is
    known of the template (`probe`), which saves all questions but one.
    Raises `InputError` for malformed input, `TokenizeError` where `tokenize_fn` returns no ids, and what
    `tokenize_fn` raises. `stitch_questions` gives the reason for None.

    >>> from tito_core import suffix_ids
    >>> def tokenize(messages, *, add_generation_prompt):      # 1 opens a turn, 2 closes it
    ...     ids = [i for m in messages for i in (1, len(m["role"]), *m["content"].encode(), 2)]
    ...     return ids + [1, len("assistant")] * add_generation_prompt
    >>> hello, question = {"role": "user", "content": "A"}, {"role": "user", "content": "B"}
    >>> step = Step(prompt=[hello], completion=[{"role": "assistant", "content": "xy"}],
    ...             prompt_ids=[1, 4, 65, 2, 1, 9], completion_ids=[777, 2])   # 777 is how "xy" was sampled
    >>> stitch([step], [*step.messages, question], suffix_ids(tokenize), tokenize)
    [1, 4, 65, 2, 1, 9, 777, 2, 1, 4, 66, 2, 1, 9]
    """
    found = try_stitch(trajectory, prompt, suffix, tokenize_fn, policy=policy, key=key, profile=profile)
    return found.ids.tolist() if isinstance(found, Stitched) else None


def try_stitch(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    tokenize_fn: TokenizeFn,
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: Profile | None = None,
) -> Stitched | Refusal:
    """Return the next prompt with its ledger and receipts, or the `Refusal` that says why there is none.

    `trajectory`, `prompt`, `suffix`, `tokenize_fn`, `policy`, `key`, `profile` and the errors are those of
    `stitch`.

    >>> try_stitch([], [{"role": "user", "content": "hi"}], (2,), print).reason.name
    'NO_PREFIX'
    """
    questions = stitch_questions(trajectory, prompt, suffix, policy=policy, key=key, profile=profile)
    return answer(questions, tokenize_fn)


def stitch_questions(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: Profile | None = None,
) -> Questions[Stitched | Refusal]:
    """Ask for what is new and return the next prompt, or the reason why there is none.

    The arguments are those of `stitch`. Run it with `answer`, or with a driver of your own: it yields an
    `Ask` and is sent ids, or is thrown a `TemplateRefused`. Raises `InputError` for malformed input and
    `TokenizeError` where it is sent what is not ids.

    >>> asking = stitch_questions([], [{"role": "user", "content": "hi"}], (2,))
    >>> answer(asking, lambda messages, *, add_generation_prompt: [1]).reason.name
    'NO_PREFIX'
    """
    close = checked(suffix, "suffix")
    _check(profile)
    located = locate(trajectory, prompt, policy=policy, key=key)
    if isinstance(located, Refusal):
        return located
    return _join(located, (yield from located.tail_questions(close, profile)), close, profile)


def continue_questions(
    located: Located, suffix: Sequence[int], *, profile: Profile | None = None
) -> Questions[Stitched | Refusal]:
    """Ask for what is new and return the prompt that goes on at a place, or the reason why there is none.

    The second half of `stitch_questions`, for callers who look at the place first (`Located.case`).

    >>> step = Step(prompt=[{"role": "user", "content": "A"}], prompt_ids=[1, 4, 65, 2, 1, 9],
    ...             completion=[{"role": "assistant", "content": "xy"}], completion_ids=[777, 2])
    >>> located = locate([step], [*step.messages, {"role": "user", "content": "B"}])
    >>> answer(continue_questions(located, (2,)), lambda messages, *, add_generation_prompt: [1]).reason.name
    'UNPROVEN_TAIL'
    """
    close = checked(suffix, "suffix")
    _check(profile)
    return _join(located, (yield from located.tail_questions(close, profile)), close, profile)


def _check(profile: object) -> None:
    if not isinstance(profile, Profile | None):
        raise InputError(f"profile is {profile!r:.60}: give a Profile, such as probe makes, or None")


def _join(
    located: Located, bridge: ProvenTail | Refusal, suffix: tuple[int, ...], profile: Profile | None
) -> Stitched | Refusal:
    """Put the bridge after the step's ids, with the close standing once."""
    if isinstance(bridge, Refusal):
        return bridge
    step, policy = located.match.step, located.policy
    stop_ids = () if profile is None else profile.stop_ids
    written = 0 if step.truncated else overlap(step.completion_ids, bridge.ids, suffix)
    odd = not step.truncated and not written
    if odd and not _is_chosen(policy.odd_stop, step, stop_ids):
        return Refusal(Reason.ODD_STOP, f"the turn ended with {step.stop}, not {bridge.ids[:1]}")
    replaced = step.stop if odd and policy.odd_stop is OddStop.REPLACE else None
    kept, sampled = step.ids, step.completion_ids.length
    if replaced is not None:
        kept, sampled, written = _without_stop(step, bridge, suffix)
    added = bridge.ids[written:]
    close = added[: max(len(suffix) - written, 0)] if bridge.ids[: len(suffix)] == suffix else ()
    return Stitched(
        ids=kept.then(array(PACKED, added)),
        step=step,
        messages=located.messages,
        bridge=added,
        ledger=step.prompt_ledger.then(
            (Origin.SAMPLED, sampled), *_runs(len(close), len(added), bridge.generation_prompt)
        ),
        inserted_close=close,
        replaced_stop=replaced,
        kept_stop=step.stop if odd and replaced is None else None,
        forgiven=located.match.forgiven,
    )


def _is_chosen(choice: OddStop, step: Step, stop_ids: Sequence[int]) -> bool:
    """Tell whether the policy says what becomes of an odd stop; of a text that ended the turn it does not."""
    if choice is OddStop.REFUSE or not step.completion_ids:
        return False
    return choice is OddStop.KEEP or not stop_ids or step.stop in stop_ids


def _without_stop(step: Step, bridge: ProvenTail, suffix: tuple[int, ...]) -> tuple[Ids, int, int]:
    """Return the ids but the stop, how many were sampled, and how much of the bridge they end with."""
    sampled = tuple(step.completion_ids)[:-1]
    return step.prompt_ids.then(sampled), len(sampled), overlap(sampled, bridge.ids, suffix)


def overlap(completion: Sequence[int], bridge: Sequence[int], suffix: Sequence[int]) -> int:
    """Return how much of the bridge the completion already ends with: of its close, and the next opener.

    >>> overlap([5, 7, 7], [7, 7, 1], [7, 7]), overlap([5, 7], [7, 7, 1], [7, 7])
    (2, 1)
    >>> overlap([5, 8], [8, 1], [])            # the next role's marker was sampled as the stop
    1
    """
    closed = len(suffix) if tuple(bridge[: len(suffix)]) == tuple(suffix) else 0
    end = tuple(completion[-closed - 1 :])
    for count in range(len(end), 0, -1):
        if end[-count:] == tuple(bridge[:count]):
            return count
    return 0


def _runs(close: int, added: int, prompt: int) -> tuple[tuple[Origin, int], ...]:
    prompt = min(prompt, added - close)
    return (
        (Origin.INSERTED_CLOSE, close),
        (Origin.ENVIRONMENT, added - close - prompt),
        (Origin.GENERATION_PROMPT, prompt),
    )
