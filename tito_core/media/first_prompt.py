"""Render a whole prompt with media, and find which placeholder belongs to which medium.

`stitch` continues a step. The first prompt of a conversation continues none, so that all of its ids are the
template's. An engine expands its placeholders as it expands those of later prompts (see `expansion`).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..errors import InputError, TemplateRefused
from ..ids import Ids
from ..join import NextPrompt, require_expanded
from ..ledger import Ledger, Origin
from ..message import Message, Messages
from ..normalization.clean import Plain, clean, lengthened
from ..normalization.media import Medium, media_of
from ..questions import Questions, TokenizeFn, answer, ask
from ..refusal import Reason, Refusal
from ..sampling_mask import SamplingMask
from ..seams.placeholders import NOT_ITS_OWN, differing, is_alone, ranges_at, replaced, unplaced
from ..step import Step
from .ranges import NO_MEDIA, PlaceholderIds, Placeholders, media_runs

AMBIGUOUS = Refusal(
    Reason.UNPROVEN_TAIL, "the template writes a content that is a text otherwise than a list of that text"
)


@attrs.frozen(kw_only=True)
class FirstPrompt(NextPrompt):
    """A prompt whose ids are all the template's.

    Attributes:
        messages: The prompt's messages.
    """

    messages: Messages = attrs.field(repr=False)

    def then(
        self,
        *,
        completion: Sequence[Message],
        completion_ids: Sequence[int],
        logprobs: Sequence[float | None] | None = None,
        truncated: bool = False,
        key: str | None = None,
        sampling_mask: SamplingMask | None = None,
    ) -> Step:
        """Return the step that this prompt and its completion make.

        The arguments are those of `Step`. Raises `InputError` while media are unexpanded.
        """
        require_expanded(self)
        return Step(
            prompt=self.messages,
            completion=completion,
            prompt_ids=self.ids,
            completion_ids=Ids.of(completion_ids, "completion_ids").packed(),
            logprobs=logprobs,
            truncated=truncated,
            key=key,
            media=self.media,
            prompt_ledger=self.ledger,
            sampling_mask=sampling_mask,
        )


def first_prompt(
    prompt: Sequence[Message], tokenize_fn: TokenizeFn, media: PlaceholderIds
) -> FirstPrompt | Refusal:
    """Return a whole prompt's ids with the range of each medium's placeholder, or why they are unknown.

    Args:
        prompt: The messages.
        tokenize_fn: Renders messages; it is asked with `{"type": "image"}` for an image.
        media: The ids that the template writes for a medium, such as `{"image": [151655]}`.

    Raises:
        InputError: An argument is malformed.
        TokenizeError: `tokenize_fn` returned something other than ids.

    >>> def tokenize(messages, *, add_generation_prompt):      # 7 is the placeholder
    ...     ids = []
    ...     for part in messages[0]["content"]:
    ...         ids += [7] if part["type"] == "image" else part["text"].encode()
    ...     return [1, *ids, 2]
    >>> parts = [{"type": "image_url", "uuid": "cat"}, {"type": "text", "text": "?"}]
    >>> found = first_prompt([{"role": "user", "content": parts}], tokenize, {"image": [7]})
    >>> found.ids, [(one.identity, one.offset) for one in found.media]
    (Ids([1, 7, 63, 2]), [('cat', 1)])
    """
    return answer(first_prompt_questions(prompt, media), tokenize_fn)


def first_prompt_questions(
    prompt: Sequence[Message], media: PlaceholderIds
) -> Questions[FirstPrompt | Refusal]:
    """Ask what `first_prompt` asks: the whole prompt, and once more for each medium."""
    placeholders = Placeholders.of(media)
    if placeholders is None:
        raise InputError("media is None: give the ids that the template writes, such as {'image': [7]}")
    messages = Messages.of(prompt)
    shown, bare = media_of(messages), clean(messages)
    refusal = unplaced(shown, placeholders)
    if refusal is not None:
        return refusal
    try:
        asking = yield from _form(bare)
        if isinstance(asking, Refusal):
            return asking
        ids, parts = asking
        places = yield from _placed(bare, ids, shown, placeholders, parts=parts)
    except TemplateRefused as refused:
        return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
    if isinstance(places, Refusal):
        return places
    ranges, whole = ranges_at(places, shown, placeholders), Ids.of(ids)
    return FirstPrompt(
        ids=whole,
        added=ids,
        inserted_close=(),
        replaced_stop=None,
        kept_stop=None,
        generation_prompt=0,
        ledger=Ledger.of(media_runs(Origin.PROMPT, 0, len(ids), ranges)),
        media=NO_MEDIA.then(ranges, (whole, placeholders)) if ranges else NO_MEDIA,
        unexpanded=len(ranges),
        messages=messages,
    )


def _form(bare: tuple[Plain, ...]) -> Questions[tuple[tuple[int, ...], bool] | Refusal]:
    """Return the prompt's ids, and whether its texts have to be lists of one part.

    Many templates for images take lists alone: they refuse a text, or run over its letters and write none.
    """
    if not any(isinstance(message.get("content"), str) for message in bare):
        return (yield from ask(bare)), False
    in_lists = yield from _taken(bare, parts=True)
    if in_lists is None:
        return (yield from ask(bare)), False
    in_texts = yield from _taken(bare, parts=False)
    if in_texts in (None, in_lists):
        return in_lists, True
    texts = [place for place, message in enumerate(bare) if _listed(message) is not message]
    longer = yield from _taken(lengthened(bare, texts), parts=False)
    return (in_lists, True) if longer == in_texts else AMBIGUOUS


def _taken(messages: tuple[Plain, ...], *, parts: bool) -> Questions[tuple[int, ...] | None]:
    """Return the ids of messages; None if the template does not take them."""
    try:
        return (yield from _asked(messages, parts=parts))
    except TemplateRefused:
        return None


def _asked(messages: tuple[Plain, ...], *, parts: bool) -> Questions[tuple[int, ...]]:
    return (yield from ask(tuple(map(_listed, messages)) if parts else messages))


def _listed(message: Plain) -> Plain:
    """Return a message with its text as a list of one part. An empty one stays: templates ask for it."""
    text = message.get("content")
    if not text or not isinstance(text, str):
        return message
    return {**message, "content": [{"type": "text", "text": text}]}


def _placed(
    bare: tuple[Plain, ...],
    ids: tuple[int, ...],
    media: tuple[Medium, ...],
    placeholders: Placeholders,
    *,
    parts: bool,
) -> Questions[list[tuple[int, str]] | Refusal]:
    """Return where the placeholder of each medium stands, once each is shown to be its medium's own."""
    found = placeholders.find(ids)
    if [name for _, name in found] != [medium.modality for medium in media]:
        return Refusal(
            Reason.PLACEHOLDERS, f"{len(found)} placeholders stand for {len(media)} media of the prompt"
        )
    for number, (place, name) in reversed(list(enumerate(found))):
        other = yield from _asked(replaced(bare, number), parts=parts)
        if not is_alone(
            place, len(placeholders.ids(name) or ()), found[: number + 1], *differing(ids, other)
        ):
            return NOT_ITS_OWN
        ids = other
    return found
