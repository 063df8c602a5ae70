"""What fakes of servers sample, and a streamed body that knows whether it was closed before its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from itertools import chain

import anyio
import attrs
import httpx2

from tito_io.embedded import family
from tito_io.engines.protocol import Delta

MODEL = family()
END = MODEL.stop_ids[0]
PROMPT = tuple(MODEL.ids([{"role": "user", "content": "Is it raining?"}], add_generation_prompt=True))


def spelled(text: str) -> list[int]:
    """Return the ids of a text, letter by letter, so that hardly any text has these ids otherwise."""
    return [MODEL.encode(letter)[0] for letter in text]


@attrs.frozen(kw_only=True)
class Script:
    """A turn that a fake samples.

    Attributes:
        ids: The ids, the stop token included.
        finish: Why it ends, in the server's word.
        stop: The id or the string that ends it, where the server names that.
    """

    ids: tuple[int, ...] = (*spelled("Yes."), END)
    finish: str = "stop"
    stop: int | str | None = None

    @property
    def text(self) -> str:
        """The text that a server shows, without what ends it."""
        by_id = self.finish == "stop" and not isinstance(self.stop, str)
        text = MODEL.decode(self.ids[:-1] if by_id else self.ids)
        return text.removesuffix(self.stop) if isinstance(self.stop, str) else text

    @property
    def logprobs(self) -> tuple[float, ...]:
        """One log-probability an id, each another."""
        return tuple(-0.5 - 0.25 * place for place in range(len(self.ids)))

    @property
    def kept(self) -> list[list[int]]:
        """The ids that could have been sampled in place of each id: one to three, its own among them."""
        others = [[300 + place, 400 + place][: place % 3] for place in range(len(self.ids))]
        return [[*some, index] for some, index in zip(others, self.ids, strict=True)]

    def within(self, most: int) -> Script:
        """Return the turn cut after `most` ids."""
        return self if len(self.ids) <= most else Script(ids=self.ids[:most], finish="length")


YES = Script()
CALL = Script(
    ids=(*MODEL.encode('<tool_call>\n{"name": "look", "arguments": {"at": "sky"}}\n</tool_call>'), END)
)


@attrs.define
class Streamed(httpx2.AsyncByteStream):
    """Parts of a body. After the last one nothing comes, where it `hangs`.

    Attributes:
        parts: The parts.
        hangs: Whether the body never ends.
        closed: Whether it was closed.
    """

    parts: Sequence[bytes]
    hangs: bool = False
    closed: bool = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the parts."""
        for part in self.parts:
            yield part
        if self.hangs:
            await anyio.sleep_forever()

    async def aclose(self) -> None:
        """Remember that nothing more is read."""
        self.closed = True


@attrs.define
class Heard:
    """Collects the deltas of one turn."""

    deltas: list[Delta] = attrs.field(factory=list)

    async def __call__(self, delta: Delta) -> None:
        """Keep a delta."""
        self.deltas.append(delta)

    def of(self, index: int) -> Heard:
        """Return what came of one of several turns."""
        return Heard([one for one in self.deltas if one.index == index])

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids so far."""
        return tuple(chain.from_iterable(one.ids for one in self.deltas))

    @property
    def logprobs(self) -> tuple[float | None, ...]:
        """The log-probabilities so far."""
        return tuple(chain.from_iterable(one.logprobs or () for one in self.deltas))

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(one.text for one in self.deltas)
