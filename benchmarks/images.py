"""Measure conversations with images at a running engine: by ids with the images beside them, and by messages.

python -m benchmarks.images --base-url URL --family FOLDER [--engine vllm] [--conversations 10] [--turns 6]

Every turn shows an image, two, none, or one that was shown before, in a user message or in a tool result. The
images are noise. Both ways sample the same number of ids. The engine has to serve a model with images: vLLM
with `--enable-scale-out`.
"""

from __future__ import annotations

import base64
import json
import random
import struct
import sys
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import attrs
import click
import httpx2

from benchmarks.command import interruptible
from tito_core import Message, Step, Trajectory
from tito_core.normalization.media import media_of
from tito_io.cli.options import WholeRange
from tito_io.client import InThread, TokenClient
from tito_io.engines.protocol import Rendering
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families import Family, image_placeholder

SIZES = ((56, 56), (84, 56), (112, 112), (224, 224))
"""Width and height of the images."""
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ENGINES = ("vllm", "sglang")
Part = dict[str, Any]


@attrs.define
class Counting(httpx2.AsyncBaseTransport):
    """Counts the bytes of the requests that sample.

    Attributes:
        sent: Bytes so far.
        inner: The transport that connects.
    """

    sent: int = 0
    inner: httpx2.AsyncBaseTransport = attrs.field(factory=httpx2.AsyncHTTPTransport)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Count a request, and send it on."""
        if not request.url.path.endswith("tokenize"):
            self.sent += int(request.headers.get("content-length", 0))
        return await self.inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


@attrs.define
class ImageResults:
    """What the turns of one way came to.

    Attributes:
        turns: Turns that were sampled.
        image_turns: Turns whose prompts have images.
        routes: Turns by route.
        refusals: Turns by the reason why they did not go by ids.
        kept: Later turns whose prompt begins with all ids of the turn before.
        moved: Images in such prompts whose range is not that of the turn before.
        without_logprobs: Sampled ids without a log-probability.
        images: Distinct images in the prompts.
        notices: Images that were sent, left out or sent again, as the engine's adapter counts them.
        sent: Bytes of the requests that sampled.
        seconds: Seconds of the turns.
    """

    turns: int = 0
    image_turns: int = 0
    routes: Counter[str] = attrs.field(factory=Counter)
    refusals: Counter[str] = attrs.field(factory=Counter)
    kept: int = 0
    moved: int = 0
    without_logprobs: int = 0
    images: set[str] = attrs.field(factory=set)
    notices: Counter[str] = attrs.field(factory=Counter)
    sent: int = 0
    seconds: float = 0.0

    def data(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        return {**attrs.asdict(self), "images": len(self.images)}

    def add(self, step: Step, before: Step | None, seconds: float) -> None:
        """Count a turn."""
        self.turns += 1
        self.image_turns += bool(step.prompt.multimodal)
        self.seconds += seconds
        self.images.update(medium.identity or "" for medium in media_of(step.prompt))
        self.without_logprobs += [*(step.logprobs or [None] * len(step.completion_ids))].count(None)
        if before is not None and step.prompt_ids.starts_with(before.ids):
            self.kept += 1
            self.moved += sum(one not in step.media for one in before.media)


def png(seed: int) -> bytes:
    """Return an image of noise; its size, too, depends on the seed."""
    width, height = SIZES[seed % len(SIZES)]
    rows = random.Random(seed)  # noqa: S311  # noise, not a secret
    pixels = b"".join(b"\0" + rows.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def image(seed: int) -> Part:
    """Return a content part with an image."""
    url = f"data:image/png;base64,{base64.b64encode(png(seed)).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def new_message(conversation: int, turn: int) -> Message:
    """Return what is new before a turn."""
    seed = 100 * conversation + turn
    shown = [[image(seed)], [image(seed), image(seed + 50)], [], [image(100 * conversation)]][turn % 4]
    role = "tool" if turn % 5 == 4 else "user"  # noqa: PLR2004  # every fifth turn
    more = {"tool_call_id": "call_1"} if role == "tool" else {}
    return {"role": role, "content": [{"type": "text", "text": f"Turn {turn}: "}, *shown], **more}


def answered(message: Message, new: Message) -> list[Message]:
    """Return the turn's message, and what is new after it; a result follows a call."""
    if new["role"] != "tool":
        return [message, new]
    return [
        message,
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        new,
    ]


async def converse(
    client: TokenClient, results: ImageResults, conversation: int, turns: int, sampling: dict[str, Any]
) -> Sequence[Step]:
    """Take one conversation's turns."""
    prompt, steps = [new_message(conversation, 0)], Trajectory([])
    for turn in range(turns):
        began = time.perf_counter()
        done = await client.turn(steps, prompt, sampling={**sampling, "seed": 1000 * conversation + turn})
        results.add(done.step, steps[-1] if steps else None, time.perf_counter() - began)
        steps = steps.append(done.step)
        prompt = [*prompt, *answered(done.message, new_message(conversation, turn + 1))]
    return steps


async def measured(
    engine_name: str, base_url: str, family: Family, conversations: int, turns: int, *, by_ids: bool
) -> ImageResults:
    """Take the turns of all conversations one way."""
    wire, results = Counting(), ImageResults()
    engine = (
        VLLM(base_url, route="generate", transport=wire)
        if engine_name == "vllm"
        else SGLang(base_url, transport=wire)
    )

    def renderer(rendering: Rendering) -> InThread:
        return InThread(family.tokenize_fn(tools=list(rendering.tools) or None, **rendering.template_args))

    media = image_placeholder(family) if by_ids else None
    client = TokenClient(engine, renderer=renderer, media=media)
    await client.turn([], [{"role": "user", "content": "Hi"}], sampling={"max_tokens": 1})
    client.counts.routes.clear()
    wire.sent = 0
    for conversation in range(conversations):
        await converse(client, results, conversation, turns, {"max_tokens": 16, "temperature": 1.0})
    results.routes.update({route.name: count for route, count in client.counts.routes.items()})
    results.refusals.update({reason.name: count for reason, count in client.counts.refusals.items()})
    results.notices.update({str(name): count for name, count in getattr(engine, "notices", {}).items()})
    results.sent = wire.sent
    await client.aclose()
    return results


def line(name: str, results: ImageResults) -> str:
    """Return the figures of one way as a line."""
    turns = max(results.turns, 1)
    return (
        f"{name}: {results.turns} turns ({results.image_turns} with images; {dict(results.routes)}); "
        f"prompts that keep the ids before: {results.kept}; images that moved: {results.moved}; "
        f"ids without a log-probability: {results.without_logprobs}; distinct images: {len(results.images)}; "
        f"{dict(results.notices)}; {results.sent / turns:,.0f} bytes and "
        f"{1000 * results.seconds / turns:,.0f} ms a turn; refused: {dict(results.refusals)}"
    )


@click.command(help="Measure conversations with images at a running engine, by ids and by messages.")
@click.option("--base-url", required=True, help="The server's address.")
@click.option("--family", required=True, type=click.Path(path_type=Path), help="The model's folder.")
@click.option(
    "--engine",
    type=click.Choice(["vllm", "sglang"]),
    default="vllm",
    show_default=True,
    help="Which engine it is.",
)
@click.option(
    "--conversations", type=WholeRange(1), default=10, show_default=True, help="How many conversations."
)
@click.option("--turns", type=WholeRange(1), default=6, show_default=True, help="Turns of each.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@interruptible
def main(
    base_url: str, family: Path, engine: str, conversations: int, turns: int, as_json: bool
) -> None:  # the options
    """Measure and print."""
    loaded, found = Family.load(family), {}
    for name, by_ids in (("ids", True), ("messages", False)):

        async def measure(by_ids: bool = by_ids) -> ImageResults:  # bound in a loop
            return await measured(engine, base_url, loaded, conversations, turns, by_ids=by_ids)

        found[name] = anyio.run(measure)
        if not as_json:
            click.echo(line(name, found[name]))
    if as_json:
        json.dump({name: one.data() for name, one in found.items()}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
