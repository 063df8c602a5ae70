"""What every route of every engine keeps to about sampling masks. A route is a row of `routes.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest

from tests.io.engines.routes import IDS, ROUTES, Route, Served
from tests.io.engines.scripted import YES, Heard, Script, spelled
from tests.io.engines.test_laws import (
    NO,
    TURNS,
    WANTED,
    asked,
    numbers,
    places,
    put,
)
from tito_core import SamplingMask
from tito_io.client import TokenClient
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort
from tito_io.engines.protocol import InvalidReplyError, Sampling
from tito_io.engines.sampling_masks import MasksUnsupportedError
from tito_io.engines.scores import LogprobsFrom, ScoredTurns

pytestmark = pytest.mark.anyio
MASKED = {name: one for name, one in ROUTES.items() if one.masks}
BARE = {name: one for name, one in ROUTES.items() if not one.masks}
EACH = pytest.mark.parametrize("route", MASKED.values(), ids=MASKED)
STREAMED = pytest.mark.parametrize("streamed", [False, True])
WITH_MASKS = Sampling(sampling_masks=True, extra={"top_k": 5})


@pytest.fixture
def anyio_backend() -> str:
    """Masks are read the same under each event loop."""
    return "asyncio"


def masks(*turns: Script) -> SamplingMask:
    """Return the masks of turns, one after the other."""
    return SamplingMask.of([kept for turn in turns for kept in turn.kept])


def heard_mask(heard: Heard) -> SamplingMask:
    """Return the masks of all deltas, one after the other."""
    return SamplingMask.of([kept for one in heard.deltas for kept in one.sampling_mask or ()])


@EACH
@STREAMED
@pytest.mark.parametrize("name", TURNS)
async def test_each_sampled_id_comes_with_its_mask(route: Route, name: str, *, streamed: bool) -> None:
    """Also the ids of what ended the turn, which its text lacks; values are those over the masks."""
    turn, heard = TURNS[name], Heard()
    wanted = attrs.evolve(WANTED.get(name, Sampling()), sampling_masks=True, extra={"top_k": 5})
    reply = await asked(Served(route, [[turn]]), heard if streamed else None, wanted)
    assert numbers(reply) == (turn.ids, turn.logprobs, "stop")
    assert reply.sampling_mask == masks(turn)
    if streamed:
        assert (heard_mask(heard), heard.logprobs) == (masks(turn), turn.logprobs)


@EACH
async def test_a_cut_turn_has_the_masks_of_its_ids(route: Route) -> None:
    reply = await asked(Served(route), sampling=attrs.evolve(WITH_MASKS, max_tokens=2))
    assert (reply.completion_ids, reply.sampling_mask) == (YES.ids[:2], masks(YES).first(2))


@EACH
@STREAMED
async def test_each_of_several_turns_has_its_own_masks(route: Route, *, streamed: bool) -> None:
    other, heard = Script(ids=(*spelled("a"), *NO.ids)), Heard()
    served = Served(route, [[YES, other]])
    reply = await asked(served, heard if streamed else None, attrs.evolve(WITH_MASKS, n=2))
    assert [one.sampling_mask for one in (reply, *reply.siblings)] == [masks(YES), masks(other)]
    if streamed:
        assert [heard_mask(heard.of(place)) for place in (0, 1)] == [masks(YES), masks(other)]


@EACH
@STREAMED
async def test_no_reply_has_masks_that_were_not_asked_for(route: Route, *, streamed: bool) -> None:
    heard = Heard()
    reply = await asked(Served(route), heard if streamed else None)
    assert (reply.sampling_mask, reply.logprobs) == (None, YES.logprobs)
    assert {one.sampling_mask for one in heard.deltas} <= {None}


@EACH
@STREAMED
async def test_a_turn_that_goes_on_after_an_abort_keeps_the_masks_of_all_parts(
    route: Route, *, streamed: bool
) -> None:
    begun, rest, heard = Script(ids=YES.ids[:2], finish="abort"), Script(ids=YES.ids[2:]), Heard()
    async with Served(route, [[begun], [rest]]).engine() as engine:
        resumed = AbortedTurns(engine, OnAbort.RESUME)
        reply = await resumed.from_ids(IDS, WITH_MASKS, watch=heard if streamed else None)
    assert (reply.completion_ids, reply.sampling_mask) == (YES.ids, masks(begun, rest))
    assert not streamed or heard_mask(heard) == masks(begun, rest)


@EACH
async def test_text_that_was_held_back_brings_no_masks_again(route: Route) -> None:
    """It may begin a stop string; its ids come at once."""
    heard = Heard()
    async with Served(route).engine() as engine:
        resumed = AbortedTurns(engine, OnAbort.RESUME)
        await resumed.from_ids(IDS, attrs.evolve(WITH_MASKS, stop=("zz",)), watch=heard)
    assert (heard.text, heard.ids, heard_mask(heard)) == ("Yes.", YES.ids, masks(YES))


WRONG: dict[str, Callable[[list[list[int]]], Any]] = {
    "none at all": lambda _: None,
    "one less": lambda kept: kept[:-1],
    "one more": lambda kept: [*kept, kept[0]],
    "moved by one": lambda kept: [*kept[1:], kept[0]],
    "an empty one": lambda kept: [[], *kept[1:]],
    "one without its id": lambda kept: [[7, 8], *kept[1:]],
    "one with an id twice": lambda kept: [[kept[0][0]] * 2, *kept[1:]],
    "one that is no list": lambda kept: [kept[0][0], *kept[1:]],
    "one with a text": lambda kept: [[*kept[0], "x"], *kept[1:]],
}


def found_masks(values: Sequence[Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the place of each turn's masks in an answer, and the masks."""
    for path, value in places(values, ()):
        if path and path[-1] in ("sampling_mask", "output_token_sampling_mask"):
            yield path, value


@EACH
@pytest.mark.parametrize("wrong", WRONG)
async def test_masks_that_do_not_line_up_are_refused_and_nothing_is_sampled_again(
    route: Route, wrong: str
) -> None:
    """The turn is in the error."""

    def change(values: list[Any]) -> list[Any]:
        for path, kept in [*found_masks(values)]:
            values = put(values, path, WRONG[wrong](kept))
        return values

    served = Served(route, change=change)
    with pytest.raises(InvalidReplyError, match="mask") as caught:
        await asked(served, sampling=WITH_MASKS)
    assert len(served.prompts) == 1
    assert caught.value.partial is not None
    assert (caught.value.partial.completion_ids, caught.value.partial.sampling_mask) == (YES.ids, None)


@EACH
@pytest.mark.parametrize("wrong", WRONG)
async def test_streamed_masks_that_do_not_line_up_are_refused(route: Route, wrong: str) -> None:
    kept: list[Any] = []

    def change(values: list[Any]) -> list[Any]:
        for path, found in [*found_masks(values)]:
            kept.append(found)
            values = put(values, path, WRONG[wrong](found) if len(found) > 1 or "one" not in wrong else None)
        return values

    with pytest.raises(InvalidReplyError, match="mask"):
        await asked(Served(route, change=change), Heard(), WITH_MASKS)
    assert kept


@pytest.mark.parametrize("route", BARE.values(), ids=BARE)
@STREAMED
async def test_a_route_without_masks_is_refused_by_name_before_anything_is_sampled(
    route: Route, *, streamed: bool
) -> None:
    served = Served(route)
    with pytest.raises(MasksUnsupportedError, match="sampling_masks: ") as caught:
        await asked(served, Heard() if streamed else None, WITH_MASKS)
    assert not served.prompts
    assert caught.value.parameter == "sampling_masks"
    async with served.engine() as engine:
        with pytest.raises(MasksUnsupportedError):
            await engine.check_masks(WITH_MASKS)
        with pytest.raises(MasksUnsupportedError):
            await TokenClient(engine, sampling_masks=True).turn([], [{"role": "user", "content": "x"}])
    assert not served.prompts


@EACH
async def test_a_pass_over_the_ids_has_no_masks(route: Route) -> None:
    served = Served(route)
    async with served.engine() as engine:
        with pytest.raises(MasksUnsupportedError, match="whole vocabulary"):
            await ScoredTurns(engine, LogprobsFrom.SCORING).from_ids(IDS, WITH_MASKS)
        assert not served.prompts
        quiet = (
            await ScoredTurns(engine, LogprobsFrom.NOWHERE).from_ids(IDS, WITH_MASKS)
            if (route.parses)
            else None
        )
    assert quiet is None or (quiet.logprobs, quiet.sampling_mask) == (None, masks(YES))
