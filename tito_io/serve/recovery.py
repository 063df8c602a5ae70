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
from collections.abc import Iterator

import attrs
from starlette.datastructures import Headers

from tito_core import Ids, Message, Step
from tito_io.engines.protocol import Reply

from .commit import Commit
from .prompt import AnsweredPrompt, SessionPrompt
from .records import stored_reply
from .resume import last_steps, new_part, without_stop
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
    prompt, key = asked.prompt, asked.rendering.key
    if asked.request.continue_final_message:
        # All of them: another turn with the same words may have come since the request was first made.
        lasts = last_steps(session.trajectory, prompt.messages, key, turns.sampler.policy.forgive)
        histories = [_History.continuing(prompt, step) for step in lasts]
    else:
        matched = turns.matched(session, asked)
        histories = [_History(prompt, list(matched.messages), forgiven=matched.forgiven)]
    known = (key, asked.stamp.dialect, own_fields(asked.request.body))
    for commit in candidates:
        origin, step = commit.origin, commit.step
        same = (step.key, origin.dialect, origin.request) == known
        found = next((one for one in histories if same and one.is_of(step)), None)
        if found is not None:
            return await _handed_out(session, commit, asked.args.sampling.n, found)
    return None


@attrs.frozen
class _History:
    """What a request asks to be continued.

    Attributes:
        prompt: The request's conversation.
        messages: The prompt's messages as its turn has them.
        ids: The ids that are continued, where the last message is.
        before: The last message as the session has it, where it is continued.
        forgiven: Differences that were ignored.
    """

    prompt: SessionPrompt
    messages: list[Message]
    ids: Ids | None = None
    before: Message | None = None
    forgiven: tuple[str, ...] = ()

    @classmethod
    def continuing(cls, prompt: SessionPrompt, step: Step) -> _History:
        """Return what is asked of a prompt whose last message is a step's."""
        return cls(prompt, list(step.prompt), without_stop(step).ids, before=step.completion[0])

    def is_of(self, step: Step) -> bool:
        """Return whether a step is a turn that was asked for with these words."""
        return list(step.prompt) == self.messages and self.ids in (None, step.prompt_ids)

    def answered(self, commit: Commit) -> AnsweredPrompt | None:
        """Return the prompt with its answer, as the session keeps it."""
        return AnsweredPrompt(self.prompt, commit.response, self.forgiven) if self.ids is None else None


def _candidates(session: Session, retry_key: str | None) -> Iterator[Commit]:
    """Yield the turns that may answer a request, oldest first."""
    commits = session.commits.values() if session.unreceived or retry_key is not None else ()
    for commit in commits:
        if commit.origin.retry_key == retry_key and (retry_key or commit.name in session.unreceived):
            yield commit


async def _handed_out(session: Session, commit: Commit, count: int, past: _History) -> UnreceivedTurn | None:
    """Return the turns of a response; undo them where the gateway ended before it had stored all of them."""
    commits = tuple(one for one in session.commits.values() if one.response == commit.response)
    if len(commits) != count:
        await session.take_back(commits)
        return None
    session.unreceived -= _reserved(commits)
    reply, answered = _reply(commits, past.before), past.answered(commit)
    return UnreceivedTurn(reply=reply, commits=commits, prompt=answered, stored=True)


def put_back(session: Session, turn: UnreceivedTurn) -> None:
    """Let the next request of its kind have a turn that was handed out again, and did not arrive."""
    session.unreceived |= _reserved(turn.commits) & session.commits.keys()


def _reserved(commits: tuple[Commit, ...]) -> set[str]:
    """Return which turns only one request may get: those without a key that says which request it is."""
    return {one.name for one in commits if one.origin.retry_key is None}


def _reply(commits: tuple[Commit, ...], before: Message | None) -> Reply:
    """Return the engine's reply; of a turn that continued the message `before`, what is new in it."""
    first, *others = (_continuation(stored_reply(one), before) for one in commits)
    sampled = sum(len(one.step.completion_ids) for one in commits)
    usage = attrs.evolve(first.usage, completion_tokens=sampled)
    return attrs.evolve(first, usage=usage, siblings=tuple(others))


def _continuation(reply: Reply, before: Message | None) -> Reply:
    if before is None or reply.message is None:
        return reply
    message = new_part(before, reply.message)
    return attrs.evolve(reply, message=message, text=message["content"])
