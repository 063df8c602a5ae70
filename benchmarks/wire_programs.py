"""What is measured of a turn on the wire: tito's parts and the whole of it, and the `openai` client.

Every program asks a server of its own, and what they sent and got is compared before anything is timed.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
import httpx2
import openai
import orjson

from benchmarks.clock import Work
from benchmarks.history import History, Plain, parsed, texts
from benchmarks.voice import Listening, Replaying
from benchmarks.wire_server import MODEL, SAMPLED, Server
from tito_core import Ids, Message, Trajectory, answer, stitch_questions
from tito_core.stitch import Stitched
from tito_io.client.conversation import ClientTurn, Conversation
from tito_io.engines.protocol import Sampling
from tito_io.engines.replies.shapes import COMPLETED
from tito_io.engines.vllm import COMPLETIONS, VLLM
from tito_io.engines.vllm.replies import VllmQuestion, read
from tito_io.engines.vllm.requests import completion
from tito_io.engines.wire import encoded

T = TypeVar("T")
SAMPLING = Sampling(max_tokens=SAMPLED)
BASE = "http://127.0.0.1:1"
VOCABULARY = 1_000_000
QUESTION = {"role": "user", "content": texts(SAMPLED, 3)[0]}
"""What is new in every turn, beside as many sampled ids: the rest is history."""


def driven(coming: Coroutine[Any, Any, T]) -> T:
    """Run what never waits: nothing here goes further than this process, and no loop is in the time."""
    try:
        coming.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # a coroutine's result is untyped here
    raise RuntimeError("a turn waited for something")


@attrs.define
class Answering:
    """Renders what was asked once, in no time."""

    replayed: Replaying

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the next answer."""
        return self.replayed(messages, add_generation_prompt=add_generation_prompt)

    async def since(
        self, messages: Sequence[Message], text: str, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the next answer."""
        return self.replayed.since(messages, text, add_generation_prompt=add_generation_prompt)


@attrs.define
class Talk:
    """A conversation at a server of its own, as far as a history goes; each call takes its next turn."""

    server: Server
    conversation: Conversation
    messages: list[Plain]
    """The next prompt."""

    def turn(self) -> ClientTurn:
        """Take a turn, and write down the next prompt."""
        turn = driven(self.conversation.turn(self.messages))
        self.messages = [*self.messages, {"role": "assistant", "content": turn.reply.text}, QUESTION]
        return turn


def talk(history: History, *, wired: bool = False) -> Talk:
    """Return a conversation that has come to the end of a history; `wired` shares no text with it."""
    server = Server(history.voice.stop)
    engine = VLLM(BASE, transport=server, model=MODEL, vocab_size=VOCABULARY)
    begun = Conversation(engine=engine, sampling=SAMPLING)
    steps = [attrs.evolve(step, key=begun.key) for step in history.trajectory]
    asked = Listening(history.voice.tokenize)
    profile = attrs.evolve(history.profile, key=begun.key)
    prompt = [*(parsed(history.messages) if wired else history.messages), QUESTION]
    found = answer(stitch_questions(steps, prompt, profile.suffix, key=begun.key, profile=profile), asked)
    assert isinstance(found, Stitched)  # noqa: S101  # what follows measures that it is
    begun.trajectory, begun.profile = Trajectory(steps), profile
    begun.tokenize_fn = Answering(asked.replayed())
    made = Talk(server, begun, prompt)
    server.count = history.last.prompt_ids.length
    server.grows = found.ids.length - history.last.ids.length + SAMPLED
    driven(engine.from_ids(begun.trajectory[-1].prompt_ids, SAMPLING))  # the turn before, once more
    server.count = found.ids.length
    return made


def whole(history: History, *, wired: bool = False) -> Work:
    """Take turn after turn of one conversation."""
    return talk(history, wired=wired).turn


def first(history: History) -> Work:
    """Take a turn that knows nothing of those before: everything is written, and the prompt comes back."""
    ids, count = history.last.prompt_ids, history.last.prompt_ids.length
    listed = ids.tolist()

    def work() -> object:
        engine = VLLM(BASE, transport=Server(history.voice.stop, count), model=MODEL, vocab_size=VOCABULARY)
        return driven(engine.from_ids(listed, SAMPLING))

    return work


@attrs.frozen
class Parts:
    """One turn, taken apart."""

    stitch: Work
    body: Work
    parse: Work
    sent: bytes


def parts(history: History) -> Parts:
    """Return the parts of the turn at the end of a history, to be called again and again."""
    made = talk(history)
    made.server.keeps = True
    conversation, prompt = made.conversation, made.messages
    trajectory, profile, replayed = conversation.trajectory, conversation.profile, conversation.tokenize_fn
    assert profile is not None  # noqa: S101  # it was given above
    assert isinstance(replayed, Answering)  # noqa: S101  # likewise
    again = replayed.replayed

    def stitch() -> Stitched:
        asking = stitch_questions(trajectory, prompt, profile.suffix, key=conversation.key, profile=profile)
        found = answer(asking, again)
        assert isinstance(found, Stitched)  # noqa: S101  # likewise
        return found

    ids = stitch().ids
    turn = made.turn()
    assert turn.reply.prompt_ids == ids  # noqa: S101  # the parts are those of the whole
    engine = conversation.engine
    assert isinstance(engine, VLLM)  # noqa: S101  # likewise
    body = partial(_body, engine, ids)
    return Parts(stitch, body, partial(_parse, engine, made.server.answered, ids), body())


def _body(engine: VLLM, ids: Ids) -> bytes:
    """Write a request, the check of its ids included."""
    wire = engine._wire  # noqa: SLF001  # a part is measured where it lies
    sent = wire.sendable(ids, engine.vocab_size)
    return encoded(completion(MODEL, sent, SAMPLING, SAMPLED, echo=False), wire.digits)


def _parse(engine: VLLM, text: bytes, ids: Ids) -> object:
    """Read an answer."""
    said = orjson.loads(text)
    check = engine._check(COMPLETIONS, said)  # noqa: SLF001  # likewise
    return read(check, said, COMPLETED, VllmQuestion(SAMPLING, ids, echo=False))


class Peer:
    """The `openai` client, at a server of its own. Its list of ids is made outside the clock."""

    def __init__(self, history: History, *, raw: bool) -> None:
        """Make ready; with `raw` the ids go past the client's own look at each of them."""
        found = talk(history)
        self.ids = Ids.of(found.turn().reply.prompt_ids)
        self.server = Server(history.voice.stop, self.ids.length)
        http = httpx2.Client(transport=self.server)
        self.client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0, http_client=http)
        listed = self.ids.tolist()
        extra = {"return_token_ids": True, "add_special_tokens": False, "skip_special_tokens": False}
        self.prompt: Any = "" if raw else listed
        self.extra = {**extra, "prompt": listed} if raw else extra

    def turn(self) -> list[int]:
        """Take a turn; return what was sampled."""
        completion = self.client.completions.create(
            model=MODEL, prompt=self.prompt, max_tokens=SAMPLED, logprobs=0, extra_body=self.extra
        )
        sampled: list[int] = (completion.choices[0].model_extra or {})["token_ids"]
        return sampled
