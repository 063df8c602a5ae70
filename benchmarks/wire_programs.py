"""The programs of the wire benchmark: the parts of a turn, a whole turn, and the `openai` client.

Every program has a server of its own. What the programs send and receive is compared before they are timed.
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
from benchmarks.renderer import RecordingTokenize, ReplayingTokenize
from benchmarks.wire_server import MODEL, SAMPLED, Server
from tito_core import Ids, Message, Trajectory, answer, stitch_questions
from tito_core.stitch import Stitched
from tito_io.client.conversation import Conversation
from tito_io.client.turn import ClientTurn
from tito_io.engines.protocol import Sampling
from tito_io.engines.replies.shapes import COMPLETED
from tito_io.engines.turn_request import Question
from tito_io.engines.vllm import COMPLETIONS, VLLM
from tito_io.engines.vllm.replies import read
from tito_io.engines.vllm.requests import completion
from tito_io.engines.wire import encoded

T = TypeVar("T")
SAMPLING = Sampling(max_tokens=SAMPLED)
BASE = "http://127.0.0.1:1"
VOCABULARY = 1_000_000
QUESTION = {"role": "user", "content": texts(SAMPLED, 3)[0]}
"""The new message of every turn."""


def driven(coming: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, without an event loop, whose time would be measured too."""
    try:
        coming.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # `StopIteration.value` is untyped
    raise RuntimeError("the coroutine waited for I/O: its transport must answer in this process")


@attrs.define
class ReplayedRenderer:
    """An async renderer that repeats recorded answers."""

    replayed: ReplayingTokenize

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Any:
        """Return the next answer."""
        return self.replayed(messages, add_generation_prompt=add_generation_prompt)

    async def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Any:
        """Return the next answer."""
        speaking = add_generation_prompt
        return self.replayed.rendered(messages, since, add_generation_prompt=speaking, ids=ids)


@attrs.define
class ServedConversation:
    """A conversation with a server of its own, after all turns of a history.

    Attributes:
        server: The server.
        conversation: tito's conversation.
        messages: Messages of the next prompt.
    """

    server: Server
    conversation: Conversation
    messages: list[Plain]

    def turn(self) -> ClientTurn:
        """Take the next turn, and set the prompt after it."""
        turn = driven(self.conversation.turn(self.messages))
        self.messages = [*self.messages, {"role": "assistant", "content": turn.reply.text}, QUESTION]
        return turn


def open_conversation(history: History, *, parsed_prompt: bool = False) -> ServedConversation:
    """Return a conversation at the end of a history.

    With `parsed_prompt` its messages are parsed from JSON and share no text with the history.
    """
    server = Server(history.renderer.stop)
    engine = VLLM(BASE, transport=server, model=MODEL, vocab_size=VOCABULARY)
    conversation = Conversation(engine=engine, sampling=SAMPLING)
    steps = [attrs.evolve(step, key=conversation.rendering.key) for step in history.trajectory]
    recording = RecordingTokenize(history.renderer.tokenize)
    profile = attrs.evolve(history.profile, key=conversation.rendering.key)
    prompt = [*(parsed(history.messages) if parsed_prompt else history.messages), QUESTION]
    stitched = answer(
        stitch_questions(steps, prompt, profile.suffix, key=conversation.rendering.key, profile=profile),
        recording,
    )
    assert isinstance(stitched, Stitched)  # noqa: S101  # the benchmark measures stitches, not refusals
    conversation.trajectory, conversation.known.profile = Trajectory(steps), profile
    replayed = ReplayedRenderer(recording.replayed())
    conversation.renderer = lambda _: replayed
    served = ServedConversation(server, conversation, prompt)
    server.count = history.last.prompt_ids.length
    server.grows = stitched.ids.length - history.last.ids.length + SAMPLED
    driven(
        engine.from_ids(conversation.trajectory[-1].prompt_ids, SAMPLING)
    )  # one turn first, so that the client has sent these ids before
    server.count = stitched.ids.length
    return served


def whole_turn(history: History, *, parsed_prompt: bool = False) -> Work:
    """Return work that takes the next turn of one conversation."""
    return open_conversation(history, parsed_prompt=parsed_prompt).turn


def first_turn(history: History) -> Work:
    """Return work that sends a long prompt for the first time.

    All ids are encoded, and the reply repeats the prompt ids.
    """
    ids, count = history.last.prompt_ids, history.last.prompt_ids.length
    listed = ids.tolist()

    def work() -> object:
        engine = VLLM(
            BASE, transport=Server(history.renderer.stop, count), model=MODEL, vocab_size=VOCABULARY
        )
        return driven(engine.from_ids(listed, SAMPLING))

    return work


@attrs.frozen
class Parts:
    """The parts of one turn, to be called again and again.

    Attributes:
        stitch: Normalizes, matches and stitches.
        body: Encodes the request body.
        parse: Parses the reply.
        sent: The request body.
    """

    stitch: Work
    body: Work
    parse: Work
    sent: bytes


def parts(history: History) -> Parts:
    """Return the parts of the turn at the end of a history."""
    served = open_conversation(history)
    served.server.keeps = True
    conversation, prompt = served.conversation, served.messages
    trajectory, profile, replayed = (
        conversation.trajectory,
        conversation.known.profile,
        conversation.tokenize_fn,
    )
    assert profile is not None  # noqa: S101  # `open_conversation` has set it
    assert isinstance(replayed, ReplayedRenderer)  # noqa: S101  # likewise
    again = replayed.replayed

    def stitch() -> Stitched:
        asking = stitch_questions(
            trajectory, prompt, profile.suffix, key=conversation.rendering.key, profile=profile
        )
        stitched = answer(asking, again)
        assert isinstance(stitched, Stitched)  # noqa: S101  # likewise
        return stitched

    ids = stitch().ids
    turn = served.turn()
    assert turn.reply.prompt_ids == ids  # noqa: S101  # the parts must belong to this turn
    engine = conversation.engine
    assert isinstance(engine, VLLM)  # noqa: S101  # likewise
    body = partial(_body, engine, ids)
    return Parts(stitch, body, partial(_parse, engine, served.server.answered, ids), body())


def _body(engine: VLLM, ids: Ids) -> bytes:
    """Check the ids and encode the request body."""
    wire = engine.wire
    sent = wire.sendable(ids, engine.vocab_size)
    return encoded(completion(MODEL, sent, SAMPLING, SAMPLED, echo=False), wire.digits)


def _parse(engine: VLLM, text: bytes, ids: Ids) -> object:
    """Parse and check a reply."""
    body = orjson.loads(text)
    check = engine._check(COMPLETIONS, body)  # noqa: SLF001  # likewise
    return read(check, body, COMPLETED, Question(SAMPLING, ids, echo=False))


class OpenAIClient:
    """The `openai` client with a server of its own. Its list of ids is built untimed.

    Attributes:
        ids: Ids of the prompt.
        server: The server.
        client: The `openai` client.
        prompt: The client's argument `prompt`.
        extra: The client's argument `extra_body`.
    """

    def __init__(self, history: History, *, raw: bool) -> None:
        """Connect to a server. With `raw` the ids are in `extra_body`, which the client does not inspect."""
        conversation = open_conversation(history)
        self.ids = Ids.of(conversation.turn().reply.prompt_ids)
        self.server = Server(history.renderer.stop, self.ids.length)
        http = httpx2.Client(transport=self.server)
        self.client = openai.OpenAI(base_url=f"{BASE}/v1", api_key="any", max_retries=0, http_client=http)
        listed = self.ids.tolist()
        extra = {"return_token_ids": True, "add_special_tokens": False, "skip_special_tokens": False}
        self.prompt: Any = "" if raw else listed
        self.extra = {**extra, "prompt": listed} if raw else extra

    def turn(self) -> list[int]:
        """Take a turn; return the sampled ids."""
        completion = self.client.completions.create(
            model=MODEL, prompt=self.prompt, max_tokens=SAMPLED, logprobs=0, extra_body=self.extra
        )
        sampled: list[int] = (completion.choices[0].model_extra or {})["token_ids"]
        return sampled
