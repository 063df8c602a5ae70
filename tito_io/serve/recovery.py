"""Hand out a stored turn again whose answer was lost, instead of sampling another one.

A turn is stored before the last byte of its answer leaves, and noted as received after that. If the gateway
ends in between, the client repeats its request, and the stored turn is the answer to it. Else two turns
would be trained on where the agent saw one.

A request is known by what it says: it must equal the stored turn's in every field, message and tool. A turn
is handed out once, so that equal requests that are no retries get turns of their own. With the header
`idempotency-key`, the client itself says which requests are one, and gets the same turn however often it
asks. The header `x-stainless-retry-count` does not say it: it counts from 0 again where an agent repeats
what its library gave up (seen in qwen-code), and Claude Code and Codex repeat requests without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import attrs
from starlette.datastructures import Headers

from tito_core import Forgiveness, Message
from tito_core.match import PromptMatcher
from tito_io.engines.protocol import Reply

from .commit import Commit
from .prompt import AnsweredPrompt, MatchedPrompt
from .records import stored_reply
from .resume import new_part
from .session import Session
from .store import StoreError
from .turns import AskedTurn, TurnTaker, UnreceivedTurn, own_fields

RETRY_KEY = "idempotency-key"
"""As in the IETF's draft `draft-ietf-httpapi-idempotency-key-header`; OpenAI's and Anthropic's libraries send
it only if their caller sets it."""


def retry_key(headers: Headers) -> str | None:
    """Return a digest of a request's idempotency key."""
    given = headers.get(RETRY_KEY)
    return None if given is None else hashlib.sha256(given.encode()).hexdigest()[:32]


async def recover(turns: TurnTaker, session: Session, asked: AskedTurn) -> UnreceivedTurn | None:
    """Return the stored turn that answers a request which is repeated; None for any other request.

    Args:
        turns: What would sample the turn.
        session: The session.
        asked: The client's request.

    Raises:
        StoreError: A write failed since the request entered the session; its repetition reads the store.
    """
    candidates = list(_candidates(session, asked.stamp.retry_key))
    if not candidates:
        return None
    if session.must_reload:  # it waited for a request whose turn was taken back, perhaps
        raise StoreError(
            "a write to this session failed, so that its turns are unknown: send the request again"
        )
    matched, forgive = turns.matched(session, asked), turns.sampler.policy.forgive
    # The turn may have been asked for with the prompt as it came, where the template reads a key.
    readings = [matched, *([MatchedPrompt(asked.prompt.messages)] if matched.changed else [])]
    for commit in candidates:
        read = next((one for one in readings if _is_answer(asked, one.messages, forgive, commit)), None)
        if read is not None:
            # Of a continued message, the next prompt is read from its beginning: it lacks the answer.
            answered = AnsweredPrompt(asked.prompt, commit.response, read.forgiven)
            return await _handed_out(
                session, commit, asked.args.sampling.n, answered if asked.continued is None else None
            )
    return None


def _is_answer(
    asked: AskedTurn, messages: Sequence[Message], forgive: frozenset[Forgiveness], commit: Commit
) -> bool:
    """Return whether a turn was asked for with these words; `messages` are the prompt's as turns have it."""
    origin, step = commit.origin, commit.step
    known = (asked.rendering.key, asked.stamp.dialect, own_fields(asked.request.body))
    if (step.key, origin.dialect, origin.request) != known or step.prompt.length != len(messages):
        return False
    if asked.continued is None or origin.continued is None:
        begun = asked.continued is not None or origin.continued is not None
        return not begun and list(step.prompt) == list(messages)
    # What such a turn has of the messages is what the turn had that it continues.
    history = PromptMatcher(messages, forgive, frozenset()).fits(step.prompt)
    return history is not None and asked.continued.is_message(origin.continued, forgive)


def _candidates(session: Session, retry_key: str | None) -> Iterator[Commit]:
    """Yield the turns that may answer a request, oldest first."""
    commits = session.commits.values() if session.unreceived or retry_key is not None else ()
    for commit in commits:
        if commit.origin.retry_key == retry_key and (retry_key or commit.name in session.unreceived):
            yield commit


async def _handed_out(
    session: Session, commit: Commit, count: int, answered: AnsweredPrompt | None
) -> UnreceivedTurn | None:
    """Return the turns of a response; undo them where the gateway ended before it had stored all of them."""
    commits = tuple(one for one in session.commits.values() if one.response == commit.response)
    if len(commits) != count:
        await session.take_back(commits)
        return None
    session.unreceived -= _reserved(commits)
    return UnreceivedTurn(reply=_reply(commits), commits=commits, prompt=answered, stored=True)


def put_back(session: Session, turn: UnreceivedTurn) -> None:
    """Let the next request of its kind have a turn that was handed out again, and did not arrive."""
    session.unreceived |= _reserved(turn.commits) & session.commits.keys()


def _reserved(commits: tuple[Commit, ...]) -> set[str]:
    """Return which turns only one request may get: those without a key that says which request it is."""
    return {one.name for one in commits if one.origin.retry_key is None}


def _reply(commits: tuple[Commit, ...]) -> Reply:
    """Return the engine's reply; of turns that continued a message, what is new in them."""
    first, *others = (_continuation(stored_reply(one), one.origin.continued) for one in commits)
    sampled = sum(len(one.step.completion_ids) for one in commits)
    usage = attrs.evolve(first.usage, completion_tokens=sampled)
    return attrs.evolve(first, usage=usage, siblings=tuple(others))


def _continuation(reply: Reply, before: Message | None) -> Reply:
    if before is None or reply.message is None:
        return reply
    message = new_part(before, reply.message)
    return attrs.evolve(reply, message=message, text=message["content"])
