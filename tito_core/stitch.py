"""Every id that a model sampled comes back unchanged, or nothing comes back."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import attrs

from .checks import short_repr
from .errors import InputError
from .ids import PACKED, Ids, checked
from .ledger import Ledger, Origin
from .locate import Located, locate
from .message import Message, Messages
from .normalization.receipts import Forgiveness
from .policy import STRICT, OddStop, Policy
from .questions import Questions, TokenizeFn, answer
from .refusal import Reason, Refusal
from .seams.tail import ProfileLike, ProvenTail
from .step import Step


@attrs.frozen(kw_only=True)
class Stitched:
    """The next prompt, with where each of its ids comes from.

    Attributes:
        ids: Ids of the whole prompt, sharing those of the matched step.
        step: The step that the prompt continues.
        bridge: The ids after those of the step.
        ledger: Who wrote each id.
        inserted_close: The part of the turn's close that was missing and was inserted.
        replaced_stop: The sampled stop that the close replaced, if the policy says so.
        kept_stop: The sampled odd stop that stands before the close, if the policy says so.
        forgiven: Differences between the step's messages and the prompt's that did not count.
        environment: The prompt's messages after the step.
    """

    ids: Ids
    step: Step
    _messages: Messages = attrs.field(repr=False)
    bridge: tuple[int, ...]
    ledger: Ledger
    inserted_close: tuple[int, ...]
    replaced_stop: int | None
    kept_stop: int | None
    forgiven: frozenset[Forgiveness]

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
        """Return the step that this prompt and its completion make; it shares the matched step.

        The arguments are those of `Step`.
        """
        shares = self._messages.extends(self.step.messages)
        return Step(
            prompt=self._messages if shares else self.step.messages.then(self.environment),
            completion=completion,
            prompt_ids=self.ids,
            completion_ids=Ids.of(completion_ids, "completion_ids").packed(),
            logprobs=logprobs,
            truncated=truncated,
            key=self.step.key,
            prompt_ledger=self.ledger,
        )


def stitch(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    tokenize_fn: TokenizeFn,
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: ProfileLike | None = None,
) -> list[int] | None:
    """Return the ids of the next prompt, or None if it must go by messages. `try_stitch` says why.

    Args:
        trajectory: The steps so far, in any order.
        prompt: The messages of the next request, the whole conversation.
        suffix: The ids with which the template closes an assistant turn (see `suffix_ids`).
        tokenize_fn: Renders messages and returns ids (see `TokenizeFn`).
        policy: What to do with cut turns and odd stops, and which differences to forgive.
        key: What the prompt is rendered with (see `render_key`); steps with another key never match.
        profile: What is known of the template (see `probe`). It saves all questions but one.

    Raises:
        InputError: An argument is malformed; the message names it.
        TokenizeError: `tokenize_fn` returned something other than ids.

    What `tokenize_fn` raises passes through unchanged, except `TemplateRefused`.

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
    result = try_stitch(trajectory, prompt, suffix, tokenize_fn, policy=policy, key=key, profile=profile)
    return result.ids.tolist() if isinstance(result, Stitched) else None


def try_stitch(
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    tokenize_fn: TokenizeFn,
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: ProfileLike | None = None,
) -> Stitched | Refusal:
    """Return the next prompt with its ledger and receipts, or the `Refusal` that says why not.

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
    profile: ProfileLike | None = None,
) -> Questions[Stitched | Refusal]:
    """Ask what `try_stitch` asks, for callers whose answers must be awaited.

    It is a generator: it yields `Question`s, is sent ids or thrown a `TemplateRefused`, and returns what
    `try_stitch` returns. `tito_io.client.answer` drives it with an async function. `trajectory`, `prompt`,
    `suffix`, `policy`, `key` and `profile` are those of `stitch`.

    >>> questions = stitch_questions([], [{"role": "user", "content": "hi"}], (2,))
    >>> answer(questions, lambda messages, *, add_generation_prompt: [1]).reason.name
    'NO_PREFIX'
    """
    close = _checked(suffix, profile)
    located = locate(trajectory, prompt, policy=policy, key=key)
    if isinstance(located, Refusal):
        return located
    return _join(located, (yield from located.tail_questions(close, profile)), close, profile)


def continue_questions(
    located: Located, suffix: Sequence[int], *, profile: ProfileLike | None = None
) -> Questions[Stitched | Refusal]:
    """Ask for what is new after a `located` step; the second half of `stitch_questions`.

    For callers that look at the step first (see `case_of`). `suffix` and `profile` are those of `stitch`.

    >>> step = Step(prompt=[{"role": "user", "content": "A"}], prompt_ids=[1, 4, 65, 2, 1, 9],
    ...             completion=[{"role": "assistant", "content": "xy"}], completion_ids=[777, 2])
    >>> located = locate([step], [*step.messages, {"role": "user", "content": "B"}])
    >>> answer(continue_questions(located, (2,)), lambda messages, *, add_generation_prompt: [1]).reason.name
    'UNPROVEN_TAIL'
    """
    close = _checked(suffix, profile)
    return _join(located, (yield from located.tail_questions(close, profile)), close, profile)


def _checked(suffix: Sequence[int], profile: object) -> tuple[int, ...]:
    close = checked(suffix, "suffix")
    # By hand: `isinstance` with a protocol takes 14 us, a third of a stitch with a profile.
    lacks = not all(hasattr(profile, name) for name in ("key", "stop_ids", "known_tail_questions"))
    if profile is not None and (lacks or isinstance(profile, type)):
        raise InputError(f"profile is {short_repr(profile)}: give a Profile, such as probe returns, or None")
    return close


def _join(
    located: Located, tail: ProvenTail | Refusal, suffix: tuple[int, ...], profile: ProfileLike | None
) -> Stitched | Refusal:
    """Append the tail to the step's ids, with the close written once."""
    if isinstance(tail, Refusal):
        return tail
    step, choice = located.match.step, located.policy.odd_stop
    written = 0 if step.truncated else overlap(step.completion_ids, tail.ids, suffix)
    odd = not step.truncated and not written
    if odd and not _may_continue(choice, step, () if profile is None else profile.stop_ids):
        return Refusal(Reason.ODD_STOP, f"the turn ended with {step.stop}, not {tail.ids[:1]}")
    replaced = step.stop if odd and choice is OddStop.REPLACE else None
    kept, sampled = step.ids, step.completion_ids.length
    if replaced is not None:
        # Without the stop the turn may end with a part of the close, which must not be written twice.
        text = tuple(step.completion_ids)[:-1]
        kept, sampled, written = step.prompt_ids.then(text), len(text), overlap(text, tail.ids, suffix)
    added = tail.ids[written:]
    # A tail that does not begin with the suffix (the turn ended with the next opener) has no close to insert.
    close = added[: max(len(suffix) - written, 0)] if tail.ids[: len(suffix)] == suffix else ()
    prompt = min(tail.generation_prompt, len(added) - len(close))
    return Stitched(
        ids=kept.then(array(PACKED, added)),
        step=step,
        messages=located.messages,
        bridge=added,
        ledger=step.prompt_ledger.then(
            (Origin.SAMPLED, sampled),
            (Origin.INSERTED_CLOSE, len(close)),
            (Origin.ENVIRONMENT, len(added) - len(close) - prompt),
            (Origin.GENERATION_PROMPT, prompt),
        ),
        inserted_close=close,
        replaced_stop=replaced,
        kept_stop=step.stop if odd and replaced is None else None,
        forgiven=located.match.forgiven,
    )


def _may_continue(choice: OddStop, step: Step, stop_ids: Sequence[int]) -> bool:
    """Return whether the policy accepts an odd stop. REPLACE must not remove the last id of a text."""
    if choice is OddStop.REFUSE or not step.completion_ids:
        return False
    return choice is OddStop.KEEP or not stop_ids or step.stop in stop_ids


def overlap(completion: Sequence[int], tail: Sequence[int], suffix: Sequence[int]) -> int:
    """Return how many ids of the tail the completion ends with: of its close, and of the next opener.

    >>> overlap([5, 7, 7], [7, 7, 1], [7, 7]), overlap([5, 7], [7, 7, 1], [7, 7])
    (2, 1)
    >>> overlap([5, 8], [8, 1], [])            # the next role's marker was sampled as the stop
    1
    """
    closed = len(suffix) if tuple(tail[: len(suffix)]) == tuple(suffix) else 0
    end = tuple(completion[-closed - 1 :])
    for count in range(len(end), 0, -1):  # the largest: a suffix may overlap itself
        if end[-count:] == tuple(tail[:count]):
            return count
    return 0
