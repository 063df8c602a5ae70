"""Measure conversations with images at an engine: by ids with the images beside them, and by messages.

python -m benchmarks.images --base-url URL --family FOLDER [--engine vllm] [--conversations 10] [--turns 12]
python -m benchmarks.images --start qwen3-vl --logprobs

Every turn shows an image, two, none, or one that was shown before, in a user message or in a tool result. The
images are noise. Conversations have from two turns to `--turns`. Both ways sample the same number of ids. The
engine has to serve a model with images: vLLM with `--enable-scale-out`. `--start` starts one on the CPU.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import attrs
import click
import httpx2

from benchmarks import image_rows
from benchmarks.command import interruptible
from benchmarks.image_rows import compared, write_rows
from tito_core import Message, Rendered, Step, Trajectory
from tito_core.normalization.media import media_of
from tito_io.cli.options import WholeRange
from tito_io.client import InThread, TokenClient
from tito_io.engines.protocol import InvalidReplyError, Rendering, TimedOutError, UnsupportedError
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families import Family, image_placeholder

SIZES = ((56, 56), (84, 56), (112, 112), (224, 224))
"""Width and height of the images."""
CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
ENGINES = ("vllm", "sglang")
KINDS = ("qwen3-vl", "qwen2.5-vl", "smolvlm", "gemma3")
"""Models that `--start` can serve."""
SECONDS = 30.0
"""How long SGLang has to answer: it never answers some conversations whose texts spell a placeholder."""
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
        expanded_twice: Images with another number of ids than in their first prompt, or without a range.
        failed: Turns without a reply, or whose reply was to another prompt. They end their conversation.
        unsent: Turns that the engine would not answer, since a placeholder was sampled. They end it, too.
        tokenized: Ids that the tokenizer here returned, for each prompt that continues a turn.
        new: Ids that such prompts add, those of images left out.
        whole: All ids of such prompts.
        without_logprobs: Sampled ids without a log-probability.
        images: Distinct images in the prompts.
        notices: Images that were sent, left out or sent again, as the engine's adapter counts them.
        sent: Bytes of the requests that sampled.
        seconds: Seconds of the turns.
        conversations: The steps of each conversation.
    """

    turns: int = 0
    image_turns: int = 0
    routes: Counter[str] = attrs.field(factory=Counter)
    refusals: Counter[str] = attrs.field(factory=Counter)
    kept: int = 0
    moved: int = 0
    expanded_twice: int = 0
    failed: int = 0
    unsent: int = 0
    tokenized: list[int] = attrs.field(factory=list, repr=False)
    new: int = 0
    whole: int = 0
    without_logprobs: int = 0
    images: set[str] = attrs.field(factory=set)
    notices: Counter[str] = attrs.field(factory=Counter)
    sent: int = 0
    seconds: float = 0.0
    conversations: list[Sequence[Step]] = attrs.field(factory=list, repr=False)
    _lengths: dict[str, int] = attrs.field(factory=dict, init=False, repr=False)

    def data(self) -> dict[str, Any]:
        """Return the results as JSON data."""
        hidden = (attrs.fields(ImageResults).conversations, attrs.fields(ImageResults)._lengths)  # noqa: SLF001  # its own
        kept = attrs.asdict(self, recurse=False, filter=attrs.filters.exclude(*hidden))
        return {**kept, "images": len(self.images), "tokenized": sum(self.tokenized)}

    def same_first_prompts(self, other: ImageResults) -> int:
        """Return how many conversations begin with the same prompt ids as in other results."""
        pairs = zip(self.conversations, other.conversations, strict=False)
        return sum(bool(one and two) and one[0].prompt_ids == two[0].prompt_ids for one, two in pairs)

    def add(self, step: Step, before: Step | None, seconds: float, tokenized: int = 0) -> None:
        """Count a turn, for which the tokenizer here returned so many ids."""
        self.turns += 1
        self.image_turns += bool(step.prompt.multimodal)
        self.seconds += seconds
        self.images.update(medium.identity or "" for medium in media_of(step.prompt))
        self.without_logprobs += [*(step.logprobs or [None] * len(step.completion_ids))].count(None)
        self._add_media(step)
        if before is not None and step.prompt_ids.starts_with(before.ids):
            self.kept += 1
            self.moved += sum(one not in step.media for one in before.media)
            new = [one.length for one in step.media if one.offset >= len(before.ids)]
            self.tokenized.append(tokenized)
            self.new += len(step.prompt_ids) - len(before.ids) - sum(new)
            self.whole += len(step.prompt_ids)

    def _add_media(self, step: Step) -> None:
        """Count the images that were not expanded once, where the ranges are known."""
        if step.media:
            self.expanded_twice += abs(len(step.media) - len(media_of(step.prompt)))
        for one in step.media:
            self.expanded_twice += self._lengths.setdefault(one.identity, one.length) != one.length


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


@attrs.define
class CountedRenderer:
    """Renders messages, and counts the ids that the tokenizer returns.

    Attributes:
        render: What renders.
        ids: How many ids it returned.
    """

    render: InThread
    ids: int = 0

    async def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Sequence[int]:
        """Return the ids of messages."""
        found = await self.render(messages, add_generation_prompt=add_generation_prompt)
        self.ids += len(found)
        return found

    async def rendered(
        self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
    ) -> Rendered:
        """Return the text of messages, and the ids if they are asked for."""
        options = {"add_generation_prompt": add_generation_prompt, "ids": ids}
        found = await self.render.rendered(messages, since, **options)
        self.ids += len(found.ids)
        return found


async def converse(
    client: TokenClient,
    results: ImageResults,
    conversation: int,
    turns: int,
    sampling: dict[str, Any],
    renderer: CountedRenderer | None = None,
) -> Sequence[Step]:
    """Take one conversation's turns; `renderer` counts the ids that are tokenized here."""
    prompt, steps = [new_message(conversation, 0)], Trajectory([])
    for turn in range(turns):
        began, before = time.perf_counter(), 0 if renderer is None else renderer.ids
        try:
            done = await client.turn(steps, prompt, sampling={**sampling, "seed": 1000 * conversation + turn})
        except UnsupportedError:
            results.unsent += 1
            break
        except (InvalidReplyError, TimedOutError):
            results.failed += 1
            break
        seconds, tokenized = time.perf_counter() - began, 0 if renderer is None else renderer.ids - before
        results.add(done.step, steps[-1] if steps else None, seconds, tokenized)
        steps = steps.append(done.step)
        prompt = [*prompt, *answered(done.message, new_message(conversation, turn + 1))]
    results.conversations.append(steps)
    return steps


def turns_of(conversation: int, most: int) -> int:
    """Return how many turns a conversation has.

    >>> sorted(turns_of(number, 12) for number in range(11))
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
    """
    return 2 + conversation % (most - 1)


async def measured(
    engine_name: str, base_url: str, family: Family, conversations: int, turns: int, *, by_ids: bool
) -> ImageResults:
    """Take the turns of all conversations one way; the longest conversation has `turns` of them."""
    wire, results = Counting(), ImageResults()
    engine = (
        VLLM(base_url, route="generate", transport=wire)
        if engine_name == "vllm"
        else SGLang(base_url, transport=wire, timeout=SECONDS)
    )
    counted = CountedRenderer(InThread(family.tokenize_fn()))

    def renderer(rendering: Rendering) -> CountedRenderer:
        del rendering  # no conversation here has tools or arguments of the template
        return counted

    media = image_placeholder(family) if by_ids else None
    client = TokenClient(engine, renderer=renderer, media=media)
    await client.turn([], [{"role": "user", "content": "Hi"}], sampling={"max_tokens": 1})
    client.counts.routes.clear()
    wire.sent = 0
    sampling = {"max_tokens": 16, "temperature": 1.0}
    for conversation in range(conversations):
        await converse(client, results, conversation, turns_of(conversation, turns), sampling, counted)
    results.routes.update({route.name: count for route, count in client.counts.routes.items()})
    results.refusals.update({reason.name: count for reason, count in client.counts.refusals.items()})
    notices = getattr(engine, "notices", client.counts.notices)  # those of vLLM count images, not turns
    results.notices.update({str(name): count for name, count in notices.items()})
    results.sent = wire.sent
    await client.aclose()
    return results


def line(name: str, results: ImageResults) -> str:
    """Return the figures of one way as a line."""
    turns, later = max(results.turns, 1), max(results.kept, 1)
    return (
        f"{name}: {results.turns} turns ({results.image_turns} with images; {dict(results.routes)}); "
        f"prompts that keep the ids before: {results.kept}; images that moved: {results.moved}, that were "
        f"expanded twice: {results.expanded_twice}; failed turns: {results.failed}, not sent: "
        f"{results.unsent}; "
        f"ids without a log-probability: {results.without_logprobs}; distinct images: {len(results.images)}; "
        f"{dict(results.notices)}; {results.sent / turns:,.0f} bytes and "
        f"{1000 * results.seconds / turns:,.0f} ms a turn; refused: {dict(results.refusals)}; later prompts: "
        f"{results.whole / later:,.0f} ids, {results.new / later:,.1f} of them new texts', "
        f"{sum(results.tokenized) / later:,.1f} tokenized here, at the median "
        f"{median(results.tokenized or [0]):,.0f}: what is new to the profile is asked for once"
    )


@contextmanager
def engine_address(
    engine: str, start: str | None, base_url: str | None, family: Path | None
) -> Iterator[tuple[str, Path]]:
    """Lend the address of the engine of the command line, and its model's folder."""
    if start is None:
        if base_url is None or family is None:
            raise click.UsageError("give --base-url and --family, or --start for an engine that runs here")
        yield base_url, family
        return
    from tests.engines.vision import vision_server  # noqa: PLC0415  # the tests' engines, needed here only

    def say(text: str) -> None:
        click.echo(text, err=True)

    with TemporaryDirectory() as folder, vision_server(engine, start, say, Path(folder) / "log") as server:
        yield server.base_url, server.family


@click.command(help="Measure conversations with images at an engine, by ids and by messages.")
@click.option("--base-url", help="The server's address.")
@click.option("--family", type=click.Path(path_type=Path), help="The model's folder.")
@click.option(
    "--engine", type=click.Choice(ENGINES), default="vllm", show_default=True, help="Which engine it is."
)
@click.option(
    "--start",
    type=click.Choice(KINDS),
    help="Start the engine on this machine's CPU, with a tiny random model of this kind. The first time "
    "installs it, which takes minutes.",
)
@click.option(
    "--conversations", type=WholeRange(1), default=10, show_default=True, help="How many conversations."
)
@click.option("--turns", type=WholeRange(2), default=12, show_default=True, help="Turns of the longest one.")
@click.option(
    "--logprobs",
    is_flag=True,
    help="Compare log-probabilities with those of transformers, which get the images from the training rows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@interruptible
def main(*, as_json: bool, logprobs: bool, conversations: int, turns: int, engine: str, **where: Any) -> None:
    """Measure and print."""
    with engine_address(engine, **where) as (base_url, folder):
        loaded, found = Family.load(folder), dict[str, ImageResults]()
        for name in ("ids", "messages"):

            async def measure(name: str = name) -> ImageResults:  # bound in a loop
                by_ids = name == "ids"
                return await measured(engine, base_url, loaded, conversations, turns, by_ids=by_ids)

            found[name] = anyio.run(measure)
            click.echo(line(name, found[name]), err=as_json)
    same = found["ids"].same_first_prompts(found["messages"])
    click.echo(f"first prompts with the same ids both ways: {same} of {conversations}", err=as_json)
    difference = reference(folder, found["ids"]) if logprobs else None
    if as_json:
        more = {"same_first_prompts": same, "logprobs": difference}
        json.dump({**{name: one.data() for name, one in found.items()}, **more}, sys.stdout, indent=1)
    elif difference is not None:
        click.echo(image_rows.line(difference))


def reference(folder: Path, results: ImageResults) -> dict[str, Any]:
    """Compare the log-probabilities in training rows with those of transformers."""
    from tests.engines.vision import environment  # noqa: PLC0415  # where torch and transformers are

    with TemporaryDirectory() as place:
        rows = Path(place) / "rows.jsonl"
        write_rows(rows, results.conversations)
        python = environment(lambda text: click.echo(text, err=True)).python
        return compared(python, folder, rows)


if __name__ == "__main__":
    main()
