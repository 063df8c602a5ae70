"""Build the next prompt from ids and new messages, without steps and perhaps without the history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import attrs

from .checks import require
from .errors import InputError, TemplateRefused
from .ids import Ids, checked
from .join import NextPrompt, SampledIds, join
from .ledger import Ledger, Origin
from .locate import strayed, turn_after
from .media.ranges import NO_MEDIA, Media, MediaRange, PlaceholderIds, Placeholders, media_runs
from .message import LISTENED_TO, Message, Messages, called_ids, copied, is_multimodal, message_copy
from .normalization.clean import flattened
from .normalization.media import Medium, media_of
from .policy import STRICT, Policy
from .questions import Questions, TokenizeFn, answer, require_callable, words_of
from .refusal import Reason, Refusal
from .seams.close import END
from .seams.placeholders import unplaced
from .seams.prove import Proof
from .seams.spans import MessageSpan, spans_questions
from .seams.suffix import suffix_questions
from .seams.tail import ProfileLike, require_profile, tail_questions
from .seams.turn import Environment, SampledTurn
from .seams.turns import possible_turns

F = TypeVar("F")
ANYWHERE = frozenset(LISTENED_TO.values())


@attrs.frozen(kw_only=True)
class Extension(NextPrompt):
    """The next prompt: the ids so far, and what the template writes after them.

    Attributes:
        ids: Ids of the whole prompt.
        added: The ids after the given ones; after all but the last, if that is a replaced stop.
        inserted_close: The part of the turn's close that was missing and was inserted.
        replaced_stop: The sampled stop that the close replaced, if the policy says so.
        kept_stop: The sampled odd stop that stands before the close, if the policy says so.
        generation_prompt: How many ids at the end are the generation prompt.
        ledger: Who wrote each id. Given ids count as `Origin.PROMPT` unless `sampled` was given.
        media: Where media stand in the ids, those of the new messages last.
        unexpanded: How many media of the new messages are still placeholders (see `media.expansion`).
        spans: For each new message its positions in `added`; a refusal that says why they are unknown, or
            None if the bridge was made with `spans=False`.
    """

    spans: tuple[MessageSpan, ...] | Refusal | None


class Known(TypedDict, total=False):
    """The facts that a caller of `Bridge.extend` may know; a missing one, or None, is unknown.

    Attributes:
        turn: The assistant message that the completion is. If unknown, tool results are taken to answer
            its calls if they stand right after it, of the tools that they name, and its content to be a
            string.
        history: The messages before the turn. If unknown, a template may look in them for switches that
            cannot be foreseen; `/think`, `/no_think` and `/nothink` are tried.
        sampled: How many of the ids, at the end, were sampled.
        truncated: Whether the turn was cut short. If unknown, the stop ids tell it.
        ledger: Who wrote each prompt id, such as the `ledger` of the extension that the prompt was. It needs
            `sampled`.
        media: Where media stand in the ids, such as the `media` of the extension that the prompt was.
    """

    turn: Message | None
    history: Sequence[Message] | None
    sampled: int | None
    truncated: bool | None
    ledger: Ledger | None
    media: Sequence[MediaRange] | None


class BridgeQuestions(Generic[F]):
    """The questions of a bridge, for drivers of your own; see `Bridge` for the arguments."""

    def __init__(
        self,
        tokenize_fn: F,
        stop_ids: Sequence[int] = (),
        *,
        policy: Policy = STRICT,
        profile: ProfileLike | None = None,
        suffix: Sequence[int] | None = None,
        spans: bool = True,
        media: PlaceholderIds | None = None,
    ) -> None:
        """Ask nothing yet. Raises `InputError` that names the argument which is malformed."""
        require_callable(tokenize_fn)
        require(spans, bool, "spans", "True or False")
        require(policy, Policy, "policy", "a Policy, such as Policy(odd_stop=OddStop.KEEP)")
        require_profile(profile)
        self.tokenize_fn = tokenize_fn
        self.words = words_of(tokenize_fn)
        known = () if profile is None else profile.stop_ids
        suffix = profile.suffix if suffix is None and profile is not None else suffix
        self.stop_ids = tuple(dict.fromkeys((*checked(stop_ids, "stop_ids"), *known)))
        self.policy = policy
        self.profile = profile
        self.suffix = None if suffix is None else checked(suffix, "suffix")
        self.spans = spans
        self.placeholders = Placeholders.of(media)

    def extend_questions(
        self, ids: Sequence[int], new_messages: Sequence[Message], **known: Unpack[Known]
    ) -> Questions[Extension | Refusal]:
        """Ask what `Bridge.extend` asks; the arguments and the result are its own."""
        end = _EndOfTurn.of(ids, new_messages, known, self.placeholders)
        if end.unfit is not None:
            return end.unfit
        if self.suffix is None:
            try:
                self.suffix = yield from suffix_questions()
            except TemplateRefused as refused:
                return Refusal(Reason.TEMPLATE_REFUSED, f"no close can be asked for: {refused!s:.200}")
        found = yield from self._prompt(end, self.suffix)
        if isinstance(found, Refusal):
            return found
        prompt, proof = found
        spans = (yield from spans_questions(proof)) if self.spans else None
        if isinstance(spans, tuple):
            spans = tuple(span.moved(len(prompt.added) - len(proof.ids)) for span in spans)
        return Extension(**attrs.asdict(prompt, recurse=False), spans=spans)

    def _prompt(
        self, end: _EndOfTurn, suffix: tuple[int, ...]
    ) -> Questions[tuple[NextPrompt, Proof] | Refusal]:
        """Return the next prompt after the known turn, or the same one after all turns that it may be."""
        found: list[tuple[NextPrompt, Proof]] = []
        refusal = Refusal(Reason.TEMPLATE_REFUSED)
        for turn in end.turns(self.stop_ids):
            proof = yield from tail_questions(turn, end.environment, suffix, self.profile, words=self.words)
            prompt = proof if isinstance(proof, Refusal) else self._joined(end, proof, suffix)
            if isinstance(proof, Proof) and not isinstance(prompt, Refusal):
                found.append((prompt, proof))
                continue
            refusal = prompt if isinstance(prompt, Refusal) else refusal
            if end.turn is not None or refusal.reason is not Reason.TEMPLATE_REFUSED:
                return refusal  # a template that takes no such turn: it cannot be the real one
        if any(prompt != found[0][0] for prompt, _ in found):
            return Refusal(Reason.UNPROVEN_TAIL, "what follows depends on the turn: give it as `turn`")
        return found[0] if found else refusal

    def _joined(self, end: _EndOfTurn, proof: Proof, suffix: tuple[int, ...]) -> NextPrompt | Refusal:
        # A call's close may be longer than the suffix.
        most = max(proof.cut.closed, len(suffix), END) + 2
        return join(end.sampled_ids(most, self.stop_ids), proof, suffix, self.policy)


class Bridge(BridgeQuestions[TokenizeFn]):
    """Extends ids by what a template writes for new messages.

    Args:
        tokenize_fn: Renders messages and returns ids (see `TokenizeFn`).
        stop_ids: The ids that end a turn, from the model's generation config.
        policy: What to do with cut turns and odd stops.
        profile: What is known of the template (see `tito_core.seams.probe`). It saves questions.
        suffix: The ids with which the template closes a turn (see `suffix_ids`); asked once unless given.
        spans: Whether to ask which ids belong to which new message, once or twice for each.
        media: The ids that the template writes for a medium, such as `{"image": [151655]}`. Without them
            media are refused.

    >>> def tokenize(messages, *, add_generation_prompt):      # 1 opens a turn, 2 closes it
    ...     ids = [i for m in messages for i in (1, len(m["role"]), *m["content"].encode(), 2)]
    ...     return ids + [1, len("assistant")] * add_generation_prompt
    >>> bridge = Bridge(tokenize, stop_ids=[2])
    >>> extension = bridge.extend([1, 4, 65, 2, 1, 9, 777, 2], [{"role": "user", "content": "B"}])
    >>> extension.ids.tolist()
    [1, 4, 65, 2, 1, 9, 777, 2, 1, 4, 66, 2, 1, 9]
    >>> extension.spans
    (MessageSpan(start=0, stop=4, content_start=2, content_stop=3),)
    """

    def extend(
        self, ids: Sequence[int], new_messages: Sequence[Message], **known: Unpack[Known]
    ) -> Extension | Refusal:
        """Return the next prompt: `ids`, then what the template writes for `new_messages`.

        Without a turn or a history several are tried, and if they disagree, the answer is a refusal. Giving
        them saves questions and refusals. It changes an answer only if the template looks at something that
        is not tried (see docs/limits.md), such as a word in the history.

        Args:
            ids: Ids of the last prompt and of its completion.
            new_messages: The messages after the turn: tool results, user messages.
            known: `turn`, `history`, `sampled`, `truncated`, `ledger` and `media`, as far as known (see
                `tito_core.bridge.Known`).

        Raises:
            InputError: An argument is malformed; the message names it.
            TokenizeError: `tokenize_fn` returned something other than ids.
        """
        return answer(self.extend_questions(ids, new_messages, **known), self.tokenize_fn)


@attrs.frozen
class _EndOfTurn:
    """What the caller knows, checked and copied."""

    ids: Ids
    environment: Environment
    turn: dict[str, Any] | None
    history: Messages | None
    sampled: int | None
    truncated: bool | None
    ledger: Ledger | None
    media: Media
    placeholders: Placeholders | None
    new_media: tuple[Medium, ...]

    @classmethod
    def of(
        cls,
        ids: Sequence[int],
        new_messages: Sequence[Message],
        known: Known,
        placeholders: Placeholders | None,
    ) -> _EndOfTurn:
        """Copy and check; raises `InputError`, and `TypeError` for a name that `Known` has not."""
        unknown = known.keys() - Known.__annotations__.keys()
        if unknown:
            names = ", ".join(Known.__annotations__)
            raise TypeError(f"extend has no argument {', '.join(sorted(unknown))}: give {names}")
        turn, history = known.get("turn"), known.get("history")
        sampled, truncated = known.get("sampled"), known.get("truncated")
        messages, media = copied(new_messages, "new_messages"), known.get("media")
        end = cls(
            Ids.of(ids, "ids"),
            flattened(messages),
            None if turn is None else message_copy(turn, "turn"),
            None if history is None else Messages.of(history, "history"),
            sampled,
            truncated,
            known.get("ledger"),
            NO_MEDIA if media is None else Media.of(media),
            placeholders,
            media_of(messages),
        )
        require(truncated, (bool, type(None)), "truncated", "True, False, or None if it is unknown")
        if sampled is not None and (type(sampled) is not int or not 0 <= sampled <= len(end.ids)):
            raise InputError(f"sampled is {sampled!r:.60}: give how many of {len(end.ids)} ids were sampled")
        require(end.ledger, (Ledger, type(None)), "ledger", "the ledger of the extension before, or None")
        if end.ledger is not None and end.ledger.length != len(end.ids) - (sampled or 0):
            prompt = len(end.ids) - (sampled or 0)
            raise InputError(
                f"ledger covers {end.ledger.length} ids, the prompt has {prompt}: give `sampled`, too"
            )
        return end

    @property
    def unfit(self) -> Refusal | None:
        """Why these ids cannot be extended, None if they can."""
        turn = () if self.turn is None else (self.turn,)
        if self.ids.length in (0, self.sampled):
            return Refusal(Reason.NO_IDS, "there are no prompt ids")
        if not self.environment:
            return Refusal(Reason.NOTHING_NEW, "there are no new messages")
        if turn and turn[0]["role"] != "assistant":
            return Refusal(Reason.NOT_ASSISTANT, f"the turn is a {turn[0]['role']} message")
        return self._unfit_media(turn) if self.shows_media or self.placeholders else None

    @property
    def shows_media(self) -> bool:
        """Whether the known part of the conversation has media."""
        messages = (*self.environment, *([self.turn] if self.turn else ()))
        history = self.history is not None and self.history.multimodal
        return history or bool(self.media) or is_multimodal(messages)

    def _unfit_media(self, turn: Sequence[Message]) -> Refusal | None:
        """Return why these media cannot be continued, None if they can."""
        prompt, shown = self.ids.length - (self.sampled or 0), len(self.media)
        if self.media and self.media[-1].stop > prompt:
            raise InputError(f"media ends at {self.media[-1].stop} of {prompt} prompt ids")
        if self.placeholders is None or is_multimodal(turn):
            return Refusal(Reason.MULTIMODAL, "the conversation has media")
        if self.history is not None:
            known = [(one.modality, one.identity) for one in media_of(self.history)]
            if known != [(one.modality, one.identity) for one in self.media]:
                return Refusal(
                    Reason.MULTIMODAL, f"the {shown} ranges are not those of the history's {len(known)} media"
                )
        return unplaced(self.new_media, self.placeholders) or strayed(self.ids, self.media, self.placeholders)

    def sampled_ids(self, most: int, stops: Sequence[int]) -> SampledIds:
        """Return the end of the ids, of which a close may need `most`."""
        count = most if self.sampled is None else min(self.sampled, most)
        prompt = self.ids.length - (self.sampled or 0)
        return SampledIds(
            ids=self.ids,
            turn=self.ids[-count:] if count else (),
            count=self.sampled or 0,
            prompt_ledger=self.ledger or Ledger.of(media_runs(Origin.PROMPT, 0, prompt, self.media)),
            truncated=self.truncated,
            stops=stops,
            media=self.media,
            placeholders=self._shown,
        )

    def turns(self, stops: tuple[int, ...]) -> list[SampledTurn]:
        """Return the turns that the ids may end with, each with the others that have as many calls."""
        possible = [(self.turn, ())] if self.turn else possible_turns(self.environment)
        stop = self.sampled_ids(1, stops).stop
        end = tuple(self.sampled_ids(END, stops).turn)
        return [
            attrs.evolve(self._turn(turn), stop=stop, end=end, stops=stops, others=others)
            for turn, others in possible
        ]

    @property
    def _shown(self) -> Placeholders | None:
        """What the template writes for media; None where the whole conversation is known to have no media."""
        return self.placeholders if self.history is None or self.shows_media else None

    def _turn(self, message: dict[str, Any]) -> SampledTurn:
        if self.history is not None:
            turn = turn_after(self.history, message, self.environment)
        else:
            reused = tuple(called_ids(message, self.environment))
            turn = SampledTurn(message=message, history_known=False, reused=reused, switched=ANYWHERE)
        shown = len(self.media)
        return attrs.evolve(turn, media=self.new_media, placeholders=self._shown, shown=shown)
