"""Build the ids of the next prompt from a trajectory: sampled ids stay unchanged, or it is refused."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from .ids import Ids, checked
from .join import NextPrompt, SampledIds, join, require_expanded
from .locate import Located, locate
from .media.ranges import PlaceholderIds
from .message import Message, Messages
from .normalization.receipts import Forgiveness
from .policy import STRICT, Policy
from .questions import Questions, TokenizeFn, answer, words_of
from .refusal import Refusal
from .sampling_mask import SamplingMask
from .seams.tail import ProfileLike, require_profile
from .step import Step


@attrs.frozen(kw_only=True)
class Stitched(NextPrompt):
    """The next prompt, with where each of its ids comes from.

    Attributes:
        ids: Ids of the whole prompt, sharing those of the matched step.
        added: The ids after those of the step.
        inserted_close: The part of the turn's close that was missing and was inserted.
        replaced_stop: The sampled stop that the close replaced, if the policy says so.
        kept_stop: The sampled odd stop that stands before the close, if the policy says so.
        generation_prompt: How many ids at the end are the generation prompt.
        ledger: Who wrote each id.
        media: Where media stand in the ids, those of the new messages last.
        unexpanded: How many media of the new messages are still placeholders (see `media.expansion`).
        step: The step that the prompt continues.
        forgiven: Differences between the step's messages and the prompt's that did not count.
        environment: The prompt's messages after the step.
    """

    step: Step
    forgiven: frozenset[Forgiveness]
    _messages: Messages = attrs.field(repr=False)

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
        sampling_mask: SamplingMask | None = None,
    ) -> Step:
        """Return the step that this prompt and its completion make; it shares the matched step.

        The arguments are those of `Step`. Raises `InputError` while media are unexpanded.
        """
        require_expanded(self)
        shares = self._messages.extends(self.step.messages)
        return Step(
            prompt=self._messages if shares else self.step.messages.then(self.environment),
            completion=completion,
            prompt_ids=self.ids,
            completion_ids=Ids.of(completion_ids, "completion_ids").packed(),
            logprobs=logprobs,
            truncated=truncated,
            key=self.step.key,
            media=self.media,
            prompt_ledger=self.ledger,
            sampling_mask=sampling_mask,
        )


def stitch(  # noqa: PLR0913  # what is known of the conversation, of the template and of the model
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    tokenize_fn: TokenizeFn,
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: ProfileLike | None = None,
    stops: Sequence[int] = (),
) -> list[int] | None:
    """Return the ids of the next prompt, or None if it must go by messages. `try_stitch` says why.

    A conversation with images is None here: `try_stitch` takes those.

    Args:
        trajectory: The steps so far, in any order.
        prompt: The messages of the next request, the whole conversation.
        suffix: The ids with which the template closes an assistant turn (see `suffix_ids`).
        tokenize_fn: Renders messages and returns ids (see `TokenizeFn`).
        policy: What to do with cut turns and odd stops, and which differences to forgive.
        key: What the prompt is rendered with (see `render_key`); steps with another key never match.
        profile: What is known of the template (see `probe`). With it two questions are enough for most turns.
        stops: The ids that are known to end a turn, from the model's generation config, beside those of the
            profile. Without any, the last id of a turn that was not cut is its stop.

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
    result = try_stitch(
        trajectory, prompt, suffix, tokenize_fn, policy=policy, key=key, profile=profile, stops=stops
    )
    return result.ids.tolist() if isinstance(result, Stitched) else None


def try_stitch(  # noqa: PLR0913  # as above
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    tokenize_fn: TokenizeFn,
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: ProfileLike | None = None,
    media: PlaceholderIds | None = None,
    stops: Sequence[int] = (),
) -> Stitched | Refusal:
    """Return the next prompt with its ledger and receipts, or the `Refusal` that says why not.

    `trajectory`, `prompt`, `suffix`, `tokenize_fn`, `policy`, `key`, `profile`, `stops` and the errors are
    those of `stitch`. `media` are the ids that the template writes for a medium, such as
    `{"image": [151655]}`. With them the media of the new messages stand in the ids as placeholders (see
    `Stitched.media`); without them a conversation with media is refused. Templates are asked with
    `{"type": "image"}` for an image.

    >>> try_stitch([], [{"role": "user", "content": "hi"}], (2,), print).reason.name
    'NO_PREFIX'
    """
    questions = stitch_questions(
        trajectory,
        prompt,
        suffix,
        policy=policy,
        key=key,
        profile=profile,
        media=media,
        stops=stops,
        words=words_of(tokenize_fn),
    )
    return answer(questions, tokenize_fn)


def stitch_questions(  # noqa: PLR0913  # as above
    trajectory: Sequence[Step],
    prompt: Sequence[Message],
    suffix: Sequence[int],
    *,
    policy: Policy = STRICT,
    key: str | None = None,
    profile: ProfileLike | None = None,
    media: PlaceholderIds | None = None,
    stops: Sequence[int] = (),
    words: Sequence[str] = (),
) -> Questions[Stitched | Refusal]:
    """Ask what `try_stitch` asks, for callers whose answers must be awaited.

    It is a generator: it yields `Question`s, is sent ids or thrown a `TemplateRefused`, and returns what
    `try_stitch` returns. `tito_io.client.answer` drives it with an async function. `trajectory`, `prompt`,
    `suffix`, `policy`, `key`, `profile`, `media` and `stops` are those of `try_stitch`; `words` are
    those that the template looks for in messages (see `TokenizeFn`).

    >>> questions = stitch_questions([], [{"role": "user", "content": "hi"}], (2,))
    >>> answer(questions, lambda messages, *, add_generation_prompt: [1]).reason.name
    'NO_PREFIX'
    """
    located = locate(trajectory, prompt, policy=policy, key=key, media=media)
    if isinstance(located, Refusal):
        _checked(suffix, profile, stops)
        return located
    return (yield from continue_questions(located, suffix, profile=profile, stops=stops, words=words))


def continue_questions(
    located: Located,
    suffix: Sequence[int],
    *,
    profile: ProfileLike | None = None,
    stops: Sequence[int] = (),
    words: Sequence[str] = (),
) -> Questions[Stitched | Refusal]:
    """Ask for what is new after a `located` step; the second half of `stitch_questions`.

    For callers that look at the step first (see `case_of`). `suffix`, `profile`, `stops` and `words`
    are those of `stitch_questions`.

    >>> step = Step(prompt=[{"role": "user", "content": "A"}], prompt_ids=[1, 4, 65, 2, 1, 9],
    ...             completion=[{"role": "assistant", "content": "xy"}], completion_ids=[777, 2])
    >>> located = locate([step], [*step.messages, {"role": "user", "content": "B"}])
    >>> answer(continue_questions(located, (2,)), lambda messages, *, add_generation_prompt: [1]).reason.name
    'UNPROVEN_TAIL'
    """
    close, known = _checked(suffix, profile, stops)
    match, step = located.match, located.match.step
    proof = yield from located.tail_questions(close, profile, known, tuple(words))
    sampled = SampledIds(
        ids=step.ids,
        turn=step.completion_ids,
        count=step.completion_ids.length,
        prompt_ledger=step.prompt_ledger,
        truncated=step.truncated,
        stops=known,
        media=step.media,
        placeholders=located.placeholders,
    )
    prompt = proof if isinstance(proof, Refusal) else join(sampled, proof, close, located.policy)
    if isinstance(prompt, Refusal):
        return prompt
    fields = attrs.asdict(prompt, recurse=False)
    return Stitched(**fields, step=step, forgiven=match.forgiven, messages=located.messages)


def _checked(
    suffix: Sequence[int], profile: ProfileLike | None, stops: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the suffix and all known stops, those of the profile among them."""
    require_profile(profile)
    known = () if profile is None else profile.stop_ids
    return checked(suffix, "suffix"), (*checked(stops, "stops"), *known)
