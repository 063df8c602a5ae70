"""Turn llama.cpp's answers into replies, and check every invariant.

Of the prompt only its length comes back. Ids stand in `tokens`. Log-probabilities stand in entries that name
their ids, and are fewer than the ids: an id inside a character has none, nor have those that a stop string
cut off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import attrs

from tito_io.engines.protocol import EmptyReplyError, Reply, ServerError, Usage, Watch
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.output_text import text_until
from tito_io.engines.replies.spelling import OTHER_TEXT, Spelling
from tito_io.engines.turn_request import Question, TurnRequest

from .requests import repeated

ENDS: Mapping[str, str] = {"eos": "stop", "word": "stop", "limit": "length"}
"""llama.cpp's names for the end of a turn. `none` is that of a turn of no ids."""
LOST_TURN = "does not match the expected"
"""What builds of about August 2026 answer in place of a turn whose text is not UTF-8."""
LOADING = "Loading model"


class LlamaCppNotice(StrEnum):
    """Notices about data that a reply of llama.cpp lacks, or was completed with.

    Attributes:
        LOGPROBS_MISSING: Some ids have no log-probability (None): the server has none for ids inside a
            character, behind a stop string, or sampled beside a draft.
        LOGPROBS_RECOVERED: Log-probabilities that the server left out were asked for afterwards.
        OTHER_TEXT: The server spells these ids otherwise than the model folder. Look whether both are of the
            same model.
    """

    LOGPROBS_MISSING = "logprobs-missing"
    LOGPROBS_RECOVERED = "logprobs-recovered"
    OTHER_TEXT = OTHER_TEXT


@attrs.frozen(kw_only=True)
class LlamaRequest(TurnRequest):
    """One request for a turn."""

    question: Question
    spelling: Spelling

    async def reply(self, watch: Watch | None) -> Reply:
        """Send the request; return the reply."""
        try:
            return await super().reply(watch)
        except ServerError as error:
            text = str(error.answer.body if error.answer else "")
            if LOST_TURN in text:
                why = "this build loses turns whose text is not valid UTF-8; use a newer one"
            elif LOADING in text:
                why = "the model is still being loaded; ask again later"
            else:
                raise
            raise ServerError(f"{self.where}: {why}", error.answer, where=self.where) from error

    def read(self, check: Check, body: Any) -> Reply:
        """Return the reply that an answer holds: an object, or a list where several turns were requested."""
        items = [check.typed(item, dict, "turn") for item in (body if isinstance(body, list) else [body])]
        count = self.question.sampling.n
        check.count("turns", len(items), "turns requested", count)
        if count > 1:
            items.sort(key=lambda item: check.get(item, "index", int))
            if [item["index"] for item in items] != list(range(count)):
                check.fail(f"the turns do not have the indexes 0 to {count - 1}")
        turns = [self._turn(check, item) for item in items]
        usage = attrs.evolve(
            turns[0].usage, completion_tokens=sum(turn.usage.completion_tokens for turn in turns)
        )
        raw = body if isinstance(body, dict) else {"turns": body}
        first, *others = (attrs.evolve(turn, usage=usage, raw=raw) for turn in turns)
        return attrs.evolve(first, siblings=tuple(others))

    def _turn(self, check: Check, item: dict[str, Any]) -> Reply:
        """Return one turn of an answer, without a message."""
        ids = check.ids(item, "tokens")
        usage = self._usage(check, item, len(ids))
        check_settings(check, item, self.body)
        end = check.get(item, "stop_type", str)
        if end not in ENDS:
            check.fail(f"the turn ended for an unknown reason, {end!r:.40}")
        stop = ids[-1] if end == "eos" else check.get(item, "stopping_word", str) if end == "word" else None
        before = ids[:-1] if end == "eos" else ids
        content = check.get(item, "content", str)
        entries = check.find(item, "completion_probabilities", list) or []
        logprobs = check.logprobs(aligned(check, ids, entries), len(ids))
        notices = (LlamaCppNotice.LOGPROBS_MISSING,) if None in logprobs else ()
        if self.spelling.other_text(ids, content, 0 if end == "word" else len(before)) is not None:
            notices = (*notices, LlamaCppNotice.OTHER_TEXT)
        return Reply(
            prompt_ids=self.question.sent or (),
            completion_ids=ids,
            logprobs=logprobs,
            message=None,
            text=self._text(before, stop, content),
            finish_reason=ENDS[end],
            usage=usage,
            stop_reason=stop,
            notices=notices,
            raw=item,
        )

    def _text(self, ids: Sequence[int], stop: int | str | None, content: str) -> str:
        """Return the text of ids, special tokens included, before the string that ended it.

        The server shows no special tokens. Its text is taken where a stop string is not found in this one: it
        may stand around a special token.
        """
        if not isinstance(stop, str):
            return self.spelling.decode(ids)
        text = text_until(stop, ids, self.spelling.decode)
        return content if text is None else text

    def _usage(self, check: Check, item: Mapping[str, Any], sampled: int) -> Usage:
        """Return the counts, which must be those of the ids.

        The server repeats no prompt ids; it takes a list of ids as it is, so that their number is enough.
        """
        prompt = len(self.question.sent or ())
        check.count("counted prompt ids", check.get(item, "tokens_evaluated", int), "prompt ids", prompt)
        check.count("counted sampled ids", check.get(item, "tokens_predicted", int), "sampled ids", sampled)
        if not sampled:
            raise EmptyReplyError(
                f"{check.where}: the turn has no ids at all", check.answer, where=check.where
            )
        cached = (check.find(item, "timings", dict) or {}).get("cache_n")
        return Usage(
            prompt_tokens=prompt,
            completion_tokens=sampled,
            cached_tokens=cached if type(cached) is int else None,
        )


def check_settings(check: Check, item: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """Demand that the server sampled with what was sent, as far as it repeats that, and with no more.

    Builds know different samplers, and a value that a build cannot read is replaced by the server's default.
    A grammar of the server's command line binds every turn that has none of its own.
    """
    used, sent = check.find(item, "generation_settings", dict) or {}, repeated(body)
    for name in sorted(sent.keys() & used.keys()):
        if not _same(used[name], sent[name]):
            check.fail(
                f"the server sampled with {name} = {used[name]!r:.60}, and {sent[name]!r:.60} was sent"
            )
    if used.get("grammar") and not {"grammar", "json_schema"} & body.keys():
        check.fail("the server was started with a grammar, which binds every turn; start it without")


def _same(used: object, sent: object) -> bool:
    """Whether a setting came back as it was sent; the server has single precision."""
    if isinstance(used, int | float) and isinstance(sent, int | float):
        return math.isclose(used, sent, rel_tol=1e-5)
    return used == (list(sent) if isinstance(sent, tuple) else sent)


def aligned(check: Check, ids: Sequence[int], entries: Sequence[object]) -> list[object]:
    """Return a log-probability for each id; None where it has no entry, or where it is not certain which.

    Entries have the order of the ids, and some ids have none. Where an entry fits at two places, such as at
    either of two equal ids, it is not known which of them it belongs to.
    """
    named = [check.get(entry, "id", int) for entry in entries]
    first = _places(ids, named)
    last = _places(ids[::-1], named[::-1])
    if first is None or last is None:
        check.fail("the log-probabilities belong to other ids than were sampled")
    values: list[object] = [None] * len(ids)
    for entry, place, from_end in zip(entries, first, reversed(last), strict=True):
        if place == len(ids) - 1 - from_end:
            fields = check.typed(entry, dict, "entry")
            # An id that was sampled beside a draft has 0.0.
            values[place] = fields.get("logprob") if check.get(fields, "top_logprobs", list) else None
    return values


def _places(ids: Sequence[int], named: Sequence[int]) -> list[int] | None:
    """Return the first place of each of `named` after that of the one before; None where one has none."""
    places, start = [], 0
    for index in named:
        try:
            place = ids.index(index, start)
        except ValueError:
            return None
        places.append(place)
        start = place + 1
    return places


def alternative(check: Check, body: object, index: int) -> object:
    """Return the raw log-probability of an id among those that came with a single sampled id, or None."""
    entries = check.find(body, "completion_probabilities", list) or []
    listed = [one for entry in entries for one in check.get(entry, "top_logprobs", list)]
    return next((one.get("logprob") for one in listed if check.get(one, "id", int) == index), None)
