"""An engine whose every id is known, and that aborts turns where a test says.

Each id is a letter that follows from all ids before it, so that a turn has the same ids however often it is
interrupted. As real engines do, it looks for stop strings in the text of its own answer alone (vLLM's
`check_stop_strings`, SGLang's `_check_str_based_finish`), counts `max_tokens` and `min_tokens` of a request
from the end of its prompt, and answers an abort with the ids that it has sampled. As vLLM does, it refuses
more `min_tokens` than `max_tokens` (`sampling_params.py`, `_verify_args`), and none of the first `min_tokens`
ids completes a stop string (`v1/engine/detokenizer.py`, `update`).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import anyio
import attrs

from tito_core.samples import WeightVersion
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    Engine,
    EngineAnswer,
    ModelLimits,
    PromptMedium,
    Rendering,
    Reply,
    RequestError,
    SampleRequest,
    Sampling,
    ServerError,
    Usage,
)
from tito_io.engines.replies.output_parser import Hermes, OutputParser

END = 0
LETTERS = "abcd"


class Letters:
    """A tokenizer of letters; the end of a turn has no text."""

    async def encode(self, text: str) -> Sequence[int]:
        return [ord(letter) for letter in text]

    async def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(one) for one in ids if one != END)


def next_id(before: Sequence[int], draw: int = 0) -> int:
    """Return the id after those before it, of which the last five count; some turns end soon."""
    state = zlib.crc32(repr((draw, *before[-5:])).encode()) >> 8
    return END if state % 23 == 0 else ord(LETTERS[state % len(LETTERS)])


@attrs.define
class AbortingEngine(Engine):
    """Aborts its first requests after so many ids; `cuts` has a list for each, with a number for each turn.

    A cut of None does not abort. The string "503" refuses the request, as vLLM 0.33 does while it is paused.
    With `draws`, equal requests get other ids, as without a seed.
    With `late`, an abort comes with the id of its step, whatever that id ends, as in SGLang
    (`srt/managers/schedule_batch.py`, `check_finished`).
    With `raising`, an abort is an error with the reply in it, as SGLang's adapter has it; else a reply.
    """

    cuts: list[list[int | None] | str] = attrs.field(factory=list)
    raising: bool = False
    room: int | None = None
    versions: bool = True
    draws: bool = False
    late: bool = False
    name: str = "aborting"
    keeps_ids: bool = False
    seeds_by_position: bool = False
    family: Any = None
    asked: list[tuple[tuple[int, ...], Sampling]] = attrs.field(factory=list)
    media: list[Sequence[PromptMedium]] = attrs.field(factory=list)
    parser: OutputParser = attrs.field(factory=lambda: Hermes(Letters()))

    async def output_parser(self) -> OutputParser:
        return self.parser

    async def limits(self) -> ModelLimits:
        return ModelLimits(max_model_len=self.room)

    async def aclose(self) -> None:
        pass

    async def render(
        self, messages: Sequence[Any], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        del rendering
        text = "".join(f"<{m['role'][0]}>{m.get('content') or ''}" for m in messages)
        return [ord(letter) for letter in text + "<a>" * add_generation_prompt]

    async def sample(self, request: SampleRequest) -> Reply:
        sampling, ids = request.sampling, request.ids
        watch: Any = request.watch
        if ids is None:
            ids = await self.render(request.messages or (), request.rendered_with, add_generation_prompt=True)
        self.media += [request.media] if request.media else []
        room = (await self.limits()).room(len(ids), sampling.max_tokens)
        self.asked.append((tuple(ids), sampling))
        number = len(self.asked) if self.draws else 0
        cuts = self.cuts.pop(0) if self.cuts else [None] * sampling.n
        await anyio.lowlevel.checkpoint()
        if sampling.extra.get("min_tokens", 0) > (sampling.max_tokens or 200):
            raise RequestError("min_tokens must be less than or equal to max_tokens")
        if isinstance(cuts, str):
            raise ServerError("paused", EngineAnswer(int(cuts), None))
        turns = [self._turn(tuple(ids), sampling, room, draw + number, cut) for draw, cut in enumerate(cuts)]
        for place, turn in enumerate(turns):
            for one in turn.completion_ids if watch else ():
                text = "" if one == END else chr(one)
                await watch(Delta(ids=(one,), logprobs=(-one / 100,), text=text, index=place))
        reply = attrs.evolve(turns[0], siblings=tuple(turns[1:]))
        if self.raising and any(turn.finish_reason == "abort" for turn in turns):
            error = AbortedError("aborted")
            error.partial = reply if any(turn.completion_ids for turn in turns) else None
            raise error
        return reply

    def _turn(
        self, prompt: tuple[int, ...], sampling: Sampling, room: int | None, draw: int, cut: int | None
    ) -> Reply:
        ids: list[int] = []
        finish: str = ""
        stop: int | str | None = None
        for one, end, string in self._sampled(prompt, sampling, room, draw):
            aborted = cut is not None and len(ids) + (self.late and cut > 0) == cut
            finish, stop = ("abort", None) if aborted else (end, string)
            ids += [] if aborted and not (self.late and cut) else [one]
            if finish:
                break
        text = "".join(chr(one) for one in ids if one != END)
        text = text.removesuffix(stop) if isinstance(stop, str) else text
        runs = [WeightVersion(version=str(len(self.asked)), start=0, stop=len(ids))] * (
            self.versions and bool(ids)
        )
        return Reply(
            prompt_ids=prompt,
            completion_ids=tuple(ids),
            logprobs=tuple(-one / 100 for one in ids),
            message={"role": "assistant", "content": text},
            text=text,
            finish_reason=finish,
            stop_reason=stop,
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
            weight_versions=tuple(runs),
            raw={"request": len(self.asked)},
        )

    def _sampled(
        self, prompt: tuple[int, ...], sampling: Sampling, room: int | None, draw: int
    ) -> Iterator[tuple[int, str, int | str | None]]:
        """Yield each id, and why the turn ends with it."""
        least, text, ids = int(sampling.extra.get("min_tokens", 0)), "", list(prompt)
        for count in range(1, 200):
            one = next_id(ids, draw)
            if one == END and count <= least:
                one = ord("a")
            ids.append(one)
            text += "" if one == END else chr(one)
            counts = one != END and count > least  # the end has no text that could complete a string
            stop = next((stop for stop in sampling.stop if counts and text.endswith(stop)), None)
            if one == END or stop:
                yield one, "stop", stop or (END if END in sampling.stop_ids else None)
            else:
                yield one, "length" if count == room else "", None
