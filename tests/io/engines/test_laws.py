"""What every route of every engine keeps to. A route is a row of `routes.py`."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.io.engines.routes import (
    CONTEXT,
    DONE,
    IDS,
    ROUTES,
    Change,
    Route,
    Served,
    events,
    parts,
    right_answer,
)
from tests.io.engines.scripted import CALL, END, MODEL, YES, Heard, Script, Streamed, spelled
from tito_core import InputError, Message, Trajectory
from tito_core.normalization.canonical import normalize
from tito_io import client
from tito_io.engines import wire
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort
from tito_io.engines.family_engine import FamilyEngine
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.names import ENGINES
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    Delta,
    EngineError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    ServerError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)
from tito_io.engines.registry import EngineOptions, make_engine

pytestmark = pytest.mark.anyio
NO = Script(ids=(*spelled("No"), END))
TOOLS = ({"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}},)
EACH = pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
STREAMS = {name: one for name, one in ROUTES.items() if "stream" not in one.lacks}
STREAMING = pytest.mark.parametrize("route", STREAMS.values(), ids=STREAMS)
STREAMED = pytest.mark.parametrize("streamed", [False, True])
BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


@pytest.fixture
def anyio_backend() -> str:
    """Answers are read the same under each event loop; only what leaves a stream is tried under both."""
    return "asyncio"


async def asked(
    served: Served, heard: Any = None, sampling: Sampling | None = None, rendering: Rendering | None = None
) -> Reply:
    """Return the reply to `IDS`."""
    async with served.engine() as engine:
        return await engine.from_ids(IDS, sampling or Sampling(), rendering, watch=heard)


async def sampled(served: Served, sampling: Sampling, heard: Heard | None, lack: str) -> Reply | None:
    """Return the reply; None where the route lacks this, and refuses it before it asks for a turn."""
    if lack not in served.route.lacks:
        return await asked(served, heard, sampling)
    with pytest.raises((UnsupportedError, InputError), match=r"Sampling\."):
        await asked(served, heard, sampling)
    assert not served.prompts
    return None


def numbers(reply: Reply) -> Any:
    """Return what training needs of a reply."""
    return reply.completion_ids, reply.logprobs, reply.finish_reason


# What was sampled is what comes back.

TURNS = {
    "a turn": YES,
    "only its end": Script(ids=(END,)),
    "a stop id": Script(ids=tuple(spelled("Yes")), stop=spelled("s")[0]),
    "a stop string": Script(ids=tuple(spelled("so END")), stop="END"),
}
WANTED = {
    "a stop id": Sampling(stop_ids=tuple(spelled("s"))),
    "a stop string": Sampling(stop=("END",)),
}


@EACH
@pytest.mark.parametrize("name", TURNS)
async def test_a_turn_is_what_was_sampled_and_streamed_is_the_same(route: Route, name: str) -> None:
    turn, sampling = TURNS[name], WANTED.get(name, Sampling())
    lack = "stop" if sampling.stop else ""
    whole = await sampled(served := Served(route, [[turn]]), sampling, None, lack)
    heard = Heard()
    streamed = await sampled(Served(route, [[turn]]), sampling, heard, lack)
    if whole is None or streamed is None:
        assert whole is streamed
        return
    assert served.prompts == [list(IDS)]
    for reply in (whole, streamed):
        assert tuple(reply.prompt_ids) == tuple(IDS)
        assert numbers(reply) == (turn.ids, turn.logprobs, "stop")
        assert (reply.text, reply.truncated) == (turn.text, False)
        assert reply.stop_reason in (turn.stop, turn.stop or END)
        assert reply.message is not None
        assert reply.message["content"] == turn.text
        assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (len(IDS), len(turn.ids))
    bare: dict[str, Any] = {"raw": {}, "message": None, "worker": None}
    assert attrs.evolve(whole, **bare) == attrs.evolve(streamed, **bare)
    assert normalize(whole.message or {}) == normalize(streamed.message or {})
    shown = len(turn.text) if sampling.stop else None  # a stop string may have been shown before it was found
    assert (heard.ids, heard.text[:shown]) == (turn.ids, turn.text)
    assert heard.logprobs in (turn.logprobs, ())


@EACH
@STREAMED
async def test_a_cut_turn_has_no_stop_token(route: Route, *, streamed: bool) -> None:
    heard = Heard() if streamed else None
    reply = await asked(Served(route), heard, Sampling(max_tokens=2))
    assert numbers(reply) == (YES.ids[:2], YES.logprobs[:2], "length")
    assert (reply.truncated, reply.stop_reason, reply.text) == (True, None, "Ye")
    assert heard is None or heard.text == "Ye"


@EACH
@STREAMED
async def test_several_turns_after_one_prompt_are_told_by_their_index(
    route: Route, *, streamed: bool
) -> None:
    heard = Heard() if streamed else None
    lack = "streamed n" if streamed else "n"
    reply = await sampled(Served(route, [[YES, NO]]), Sampling(n=2), heard, lack)
    if reply is None:
        return
    (other,) = reply.siblings
    assert [numbers(one) for one in (reply, other)] == [(one.ids, one.logprobs, "stop") for one in (YES, NO)]
    assert [tuple(one.prompt_ids) for one in (reply, other)] == [tuple(IDS)] * 2
    assert reply.usage.completion_tokens == len(YES.ids) + len(NO.ids)
    if heard is not None:
        assert [heard.of(place).ids for place in (0, 1)] == [YES.ids, NO.ids]


def turns_of(value: Any) -> list[Any]:
    """Return the turns of an answer in one piece."""
    found: list[Any] = value if isinstance(value, list) else value["choices"]
    return found


@EACH
async def test_turns_that_have_indexes_may_come_in_any_order(route: Route) -> None:
    def reverse(found: list[Any]) -> list[Any]:
        if "index" in turns_of(found[0])[0]:
            turns_of(found[0]).reverse()
        return found

    if "n" not in route.lacks:
        reply = await asked(Served(route, [[YES, NO]], reverse), sampling=Sampling(n=2))
        assert [one.completion_ids for one in (reply, *reply.siblings)] == [YES.ids, NO.ids]


@EACH
async def test_a_number_of_turns_or_indexes_that_were_not_asked_for_are_refused(route: Route) -> None:
    if "n" in route.lacks:
        return

    def dropped(found: list[Any]) -> list[Any]:
        turns_of(found[0]).pop()
        return found

    def twice(found: list[Any]) -> list[Any]:
        turns = turns_of(found[0])
        turns[1]["index"] = turns[0].get("index", 0)
        return found if "index" in turns[0] else dropped(found)

    for change in (dropped, twice):
        with pytest.raises(InvalidReplyError):
            await asked(Served(route, [[YES, NO]], change), sampling=Sampling(n=2))


@EACH
@STREAMED
async def test_calls_are_read_from_the_ids_where_the_message_is_made_of_them(
    route: Route, *, streamed: bool
) -> None:
    if not route.parses:
        return
    watch = Heard() if streamed else None
    reply = await asked(Served(route, [[CALL]]), watch, rendering=Rendering(tools=TOOLS))
    assert reply.message is not None
    (call,) = reply.message["tool_calls"]
    assert (call["function"]["name"], reply.finish_reason) == ("look", "tool_calls")
    assert reply.completion_ids == CALL.ids


@EACH
async def test_turns_of_a_conversation_that_is_rendered_here_keep_their_ids(route: Route) -> None:
    if not issubclass(route.adapter, FamilyEngine):
        return
    served, steps, messages = Served(route, context=4000), Trajectory(), list[Message]()
    async with served.engine() as engine:
        talk = client.TokenClient(engine)
        for question in ("One?", "Two?", "Three?"):
            messages.append({"role": "user", "content": question})
            done = await talk.turn(steps, messages, sampling={"max_tokens": 20})
            steps = steps.append(done.step)
            messages.append(done.message)
    assert talk.counts.routes == {client.Route.MITO: 1, client.Route.TITO: 2}
    first, second, _ = served.prompts
    assert second[: len(first) + len(YES.ids)] == [*first, *YES.ids]


# An answer that does not hold together is refused.

Place = tuple[Any, ...]


def places(value: Any, unread: Collection[str], path: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every value of an answer with its place, but those under a name that is not read."""
    yield path, value
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        if name not in unread:
            yield from places(one, unread, (*path, name))


def put(values: Sequence[Any], path: Place, new: Any) -> list[Any]:
    """Return values with another one at a place."""
    holder = changed = copy.deepcopy(list(values))
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = new
    return changed


def nothing_is_wrong(reply: Reply, turn: Script) -> None:
    """Demand of the reply to a changed answer what training needs; a log-probability may be missing."""
    seen = (tuple(reply.prompt_ids), reply.completion_ids, reply.finish_reason)
    assert seen == (tuple(IDS), turn.ids, turn.finish)
    assert reply.logprobs is not None
    assert all(one in (None, right) for one, right in zip(reply.logprobs, turn.logprobs, strict=True))


def instead(new: Sequence[Any]) -> Change:
    """Return what answers with these values."""
    return lambda _: list(new)


def everywhere(answer: Sequence[Any], path: Place, new: Any) -> list[Any]:
    """Return an answer with another value at a place, of all events that have the same one there."""
    old = next(value for place, value in places(answer, ()) if place == path)
    changed = list(answer)
    for place, value in places(answer, ()):
        if place[1:] == path[1:] and value == old:
            changed = put(changed, place, new)
    return changed


@EACH
@STREAMED
async def test_a_server_that_saw_another_prompt_is_refused(route: Route, *, streamed: bool) -> None:
    """By each list of the prompt's ids in its answer, and by each count of them."""
    answer = await right_answer(route, streamed=streamed)
    last, first = [*IDS[:-1], IDS[-1] + 1], [IDS[0] + 1, *IDS[1:]]
    found = list(places(answer, route.unread))
    echoes = [path for path, value in found if value == list(IDS)]
    counts = [(path, len(IDS) + by) for path, value in found if value == len(IDS) for by in (1, -1)]
    assert counts, "what does the answer show of the prompt?"
    others = [last, first, IDS[:-1], [*IDS, 7], IDS[1:], []]
    changed = [everywhere(answer, path, list(new)) for path in echoes for new in others]
    changed += [everywhere(answer, path, new) for path, new in counts]
    if echoes:
        changed.append(reduce(lambda values, path: put(values, path, last), echoes, answer))
    for values in changed:
        with pytest.raises(InvalidReplyError):
            await asked(Served(route, change=instead(values)), Heard() if streamed else None)


TRUSTED = {name: one for name, one in ROUTES.items() if one.echoes is not None}
TRUSTING = pytest.mark.parametrize("route", TRUSTED.values(), ids=TRUSTED)


async def several(served: Served, count: int, *, streamed: bool) -> list[Reply | InvalidReplyError]:
    """Return what comes of some turns of one engine."""
    found: list[Reply | InvalidReplyError] = []
    async with served.engine() as engine:
        for _ in range(count):
            try:
                found.append(await engine.from_ids(IDS, Sampling(), watch=Heard() if streamed else None))
            except InvalidReplyError as error:
                found.append(error)
    return found


def second(change: Change) -> Change:
    """Return what changes the second answer alone."""
    seen: list[int] = []

    def changed(found: list[Any]) -> list[Any] | httpx2.Response:
        seen.append(1)
        return change(found) if len(seen) == 2 else found

    return changed


@TRUSTING
@STREAMED
async def test_a_route_that_repeated_a_prompt_need_not_do_so_again(route: Route, *, streamed: bool) -> None:
    served = Served(route)
    for reply in await several(served, 3, streamed=streamed):
        assert isinstance(reply, Reply)
        assert tuple(reply.prompt_ids) == tuple(IDS)
        assert numbers(reply) == (YES.ids, YES.logprobs, "stop")
    assert served.echoes == [True, False, False]


@TRUSTING
@STREAMED
async def test_a_refused_reply_ends_that_trust(route: Route, *, streamed: bool) -> None:
    def miscounted(found: list[Any]) -> list[Any]:
        for path, value in list(places(found, route.unread)):
            found = put(found, path, len(IDS) - 1) if value == len(IDS) else found
        return found

    served = Served(route, change=second(miscounted))
    replies = await several(served, 4, streamed=streamed)
    assert [isinstance(one, Reply) for one in replies] == [True, False, True, True]
    assert "22 counted prompt ids for 23 prompt ids" in str(replies[1])
    assert served.echoes == [True, False, True, False]


@TRUSTING
@STREAMED
async def test_another_prompt_that_comes_back_unasked_is_refused(route: Route, *, streamed: bool) -> None:
    other = await right_answer(route, streamed=streamed)
    for path in [path for path, value in places(other, ()) if value == list(IDS)]:
        other = put(other, path, [*IDS[:-1], IDS[-1] + 1])
    served = Served(route, change=second(instead(other)))
    _, refused = await several(served, 2, streamed=streamed)
    assert f"equal up to position {len(IDS) - 1}" in str(refused)
    assert served.echoes == [True, False]


@EACH
@STREAMED
async def test_counts_of_sampled_ids_that_do_not_agree_are_refused(route: Route, *, streamed: bool) -> None:
    answer = await right_answer(route, streamed=streamed)
    counts = [path for path, value in places(answer, route.unread) if value == len(YES.ids)]
    assert counts
    for path in counts:
        for by in (1, -1):
            changed = instead(put(answer, path, len(YES.ids) + by))
            with pytest.raises(EngineError):
                await asked(Served(route, change=changed), Heard() if streamed else None)


@pytest.mark.whole
@EACH
@STREAMED
async def test_no_id_and_no_log_probability_is_lost_moved_or_made_up(route: Route, *, streamed: bool) -> None:
    """Each list of an answer gets longer or shorter: it is refused, or nothing is wrong in the reply."""
    answer = await right_answer(route, streamed=streamed)
    lists = [
        (path, value)
        for path, value in places(answer, route.unread)
        if path and isinstance(value, list) and value
    ]
    refused = 0
    for path, value in lists:
        for new in (value[:-1], value[1:], [*value, value[0]], [value[-1], *value]):
            served = Served(route, change=instead(put(answer, path, new)))
            try:
                reply = await asked(served, Heard() if streamed else None)
            except EngineError:
                refused += 1
                continue
            nothing_is_wrong(reply, YES)
    assert refused > 4


@EACH
@pytest.mark.parametrize(
    ("value", "read"),
    [
        *((nothing, None) for nothing in (-9999.0, -1e30, -1.0000000150474662e30, None)),
        (1e-7, 0.0),
        *((wrong, ...) for wrong in (2e-3, 3.5, "x", True)),
    ],
)
async def test_a_log_probability_that_is_none_is_none_and_never_a_number(
    route: Route, value: Any, read: Any
) -> None:
    answer = await right_answer(route, streamed=False)
    first = [path for path, one in places(answer, ()) if one == YES.logprobs[0]]
    assert first
    for path in first:
        answer = put(answer, path, value)
    served = Served(route, change=instead(answer))
    if read is ...:
        with pytest.raises(InvalidReplyError):
            await asked(served)
        return
    reply = await asked(served)
    assert reply.logprobs == (read, *YES.logprobs[1:])
    assert ("logprobs-rounded" in reply.notices) == (read == 0.0)


@EACH
@pytest.mark.parametrize("index", [MODEL.vocab_size, -1, 1.5, "7", True])
async def test_what_is_no_id_of_the_model_is_no_sampled_id(route: Route, index: Any) -> None:
    answer = await right_answer(route, streamed=False)
    for path in [path for path, one in places(answer, ()) if type(one) is int and one == YES.ids[0]]:
        answer = put(answer, path, index)
    with pytest.raises(InvalidReplyError):
        await asked(Served(route, change=instead(answer)))


@EACH
async def test_ends_of_a_turn_that_are_unknown_are_refused(route: Route) -> None:
    answer = await right_answer(route, streamed=False)
    ends = [path for path, one in places(answer, ()) if one in ("stop", "eos")]
    assert ends
    for path in ends:
        answer = put(answer, path, "bored")
    with pytest.raises(InvalidReplyError, match="unknown reason"):
        await asked(Served(route, change=instead(answer)))


WRONG: tuple[Any, ...] = (None, 5, "no", [5], {"a": 1}, [[]])


@pytest.mark.whole
@EACH
@STREAMED
async def test_no_malformed_answer_gives_a_wrong_reply_or_an_error_of_python_s_own(
    route: Route, *, streamed: bool
) -> None:
    turn = Script(ids=YES.ids[-2:])
    answer = await right_answer(route, turn, streamed=streamed)
    for path, value in places(answer, ()):
        for wrong in WRONG if path and not _repeats(path) else ():
            served = Served(route, change=instead(put(answer, path, wrong)))
            with suppress(EngineError):
                reply = await asked(served, Heard() if streamed else None)
                if type(wrong) is not type(value):  # else it may be right
                    nothing_is_wrong(reply, turn)


def _repeats(path: Place) -> bool:
    """Whether a place is a further one of a list, whose first was looked at."""
    return any(type(name) is int and name > 0 for name in path[1:])


# Turns that do not come to their end.


@EACH
@STREAMED
@pytest.mark.parametrize("kept", [0, 2])
async def test_an_aborted_turn_keeps_what_was_sampled(route: Route, kept: int, *, streamed: bool) -> None:
    if "abort" in route.lacks:
        return
    served = Served(route, [[Script(ids=YES.ids[:kept], finish="abort")]])
    reply: Reply | None = None
    kind = AbortedError if kept else EngineError  # without ids the answer may be called empty
    try:
        reply = await asked(served, Heard() if streamed else None)
    except kind as error:
        reply = error.partial
    if reply is None:
        assert not kept
        return
    assert numbers(reply) == (YES.ids[:kept], YES.logprobs[:kept], "abort")
    assert (reply.truncated, reply.text) == (True, "Ye"[:kept])


@EACH
@STREAMED
async def test_an_aborted_turn_goes_on_after_exactly_its_ids(route: Route, *, streamed: bool) -> None:
    if "abort" in route.lacks:
        return
    rest = Script(ids=YES.ids[2:])
    served = Served(route, [[Script(ids=YES.ids[:2], finish="abort")], [rest]])
    heard = Heard()
    async with served.engine() as engine:
        resumed = AbortedTurns(engine, OnAbort.RESUME)
        reply = await resumed.from_ids(IDS, Sampling(), watch=heard if streamed else None)
    assert served.prompts == [list(IDS), [*IDS, *YES.ids[:2]]]
    assert (reply.completion_ids, reply.logprobs) == (YES.ids, (*YES.logprobs[:2], *rest.logprobs))
    assert reply.message is not None
    assert reply.message["content"] == "Yes."
    assert heard.ids == (YES.ids if streamed else ())


ERROR = {"error": {"message": "boom", "type": "server_error", "param": None, "code": 500}}


@STREAMING
async def test_an_event_that_got_lost_is_missed(route: Route) -> None:
    answer = await right_answer(route, streamed=True)
    refused = 0
    for place in range(len(answer)):
        served = Served(route, change=instead([*answer[:place], *answer[place + 1 :]]))
        try:
            nothing_is_wrong(await asked(served, Heard()), YES)
        except EngineError:
            refused += 1
    assert refused


@STREAMING
@pytest.mark.parametrize("ends", [[], [DONE], [ERROR, DONE]], ids=["broken", "unfinished", "error"])
async def test_a_stream_that_breaks_keeps_the_ids_that_came(route: Route, ends: list[Any]) -> None:
    answer = await right_answer(route, streamed=True)
    kinds: Any = {0: UnreachableError, 1: EngineError, 2: ServerError}[len(ends)]
    for kept in range(len(answer) - 1):
        heard = Heard()
        with pytest.raises(kinds) as caught:
            await asked(Served(route, change=instead([*answer[:kept], *ends])), heard)
        partial = caught.value.partial
        assert (partial.completion_ids if partial else ()) == heard.ids == YES.ids[: len(heard.ids)]
        if partial is not None:
            assert tuple(partial.prompt_ids) == tuple(IDS)
            assert partial.logprobs in (None, YES.logprobs[: len(heard.ids)])
            assert partial.truncated or heard.ids == YES.ids
            assert partial.usage.completion_tokens == len(heard.ids)


@BOTH
@STREAMING
@pytest.mark.parametrize("leaving", ["cancelled", "failing"])
async def test_leaving_a_stream_closes_its_connection(route: Route, leaving: str) -> None:
    """That is what engines stop for."""
    answer = await right_answer(route, streamed=True)
    body = Streamed(parts(answer[:-1]), hangs=True)
    response = httpx2.Response(200, stream=body, headers={"content-type": "text/event-stream"})

    async def watch(_: Delta) -> None:
        scope.cancel()
        if leaving == "failing":
            raise LookupError

    with anyio.CancelScope() as scope, suppress(LookupError):
        await asked(Served(route, change=lambda _: response), watch)
    assert body.closed


# Failures.

OVERLONG = "This model's maximum context length is 50 tokens. However, you requested 60 tokens."


def failing(status: int, body: Any = None) -> Change:
    """Return what answers with an error."""
    return lambda _: httpx2.Response(status, json=body or {"message": "no", "code": status})


@EACH
@STREAMED
@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (failing(400), RequestError),
        (failing(400, {"error": {"message": OVERLONG}}), OverlongError),
        (failing(401), AuthenticationError),
        (failing(403, {"error": {"message": "no", "type": "x"}}), AuthenticationError),
        (failing(408), RequestError),
        (failing(422), RequestError),
        (failing(429), RequestError),
        (failing(500), ServerError),
        (failing(503), ServerError),
        (failing(200, ERROR), ServerError),
        (lambda _: httpx2.Response(200, content=b"<html>"), InvalidReplyError),
        (lambda _: events([]), EngineError),
    ],
)
async def test_a_failure_is_the_error_that_it_amounts_to_and_nothing_is_sampled_twice(
    route: Route, change: Change, kind: type[EngineError], *, streamed: bool
) -> None:
    served = Served(route, change=change)
    with pytest.raises(EngineError) as caught:
        await asked(served, Heard() if streamed else None)
    assert type(caught.value) is kind or kind is EngineError
    assert caught.value.partial is None
    assert len(served.prompts) == 1


@EACH
@pytest.mark.parametrize(
    ("failure", "kind"), [(httpx2.ReadError, UnreachableError), (httpx2.ReadTimeout, TimedOutError)]
)
async def test_a_connection_that_breaks_is_told_from_an_answer(
    route: Route, failure: Callable[[str], Exception], kind: type[EngineError]
) -> None:
    def fail(_: list[Any]) -> list[Any]:
        raise failure("no")

    served = Served(route, change=fail)
    with pytest.raises(EngineError, match=f"POST http://mock{route.path}") as caught:
        await asked(served)
    assert (type(caught.value), len(served.prompts)) == (kind, 1)


# What is refused before anything is sent.


@EACH
@pytest.mark.parametrize("ids", [[], [-1], [1.5], ["1"], [True], [2**40], [MODEL.vocab_size], None])
async def test_what_is_no_prompt_of_the_model_is_not_sent(route: Route, ids: Any) -> None:
    served = Served(route)
    async with served.engine() as engine:
        with pytest.raises(InputError, match=r"\bids\b|vocabulary"):
            await engine.from_ids(ids and [*IDS, *ids], Sampling())
    assert not served.prompts


@EACH
async def test_a_prompt_that_does_not_fit_is_overlong(route: Route) -> None:
    served = Served(route)
    async with served.engine() as engine:
        for length in (CONTEXT, CONTEXT + 9):
            with pytest.raises(OverlongError):
                await engine.from_ids([IDS[0]] * length, Sampling(max_tokens=1))


@EACH
@pytest.mark.parametrize(
    "sampling",
    [
        *(Sampling(max_tokens=most) for most in (0, -4)),
        *(Sampling(n=count) for count in (0, -1, True, 1.5)),  # type: ignore[arg-type]  # the mistakes
        *(
            Sampling(extra={name: 1})
            for name in ("max_tokens", "n", "prompt", "stop", "stream", "temperature")
        ),
    ],
    ids=str,
)
async def test_what_has_a_field_of_its_own_or_is_no_number_of_turns_or_ids_is_not_sent(
    route: Route, sampling: Sampling
) -> None:
    served = Served(route)
    with pytest.raises((InputError, UnsupportedError)):
        await asked(served, sampling=sampling)
    assert not served.prompts


@EACH
async def test_a_watch_that_cannot_be_awaited_is_found_before_anything_is_sent(route: Route) -> None:
    served = Served(route)
    with pytest.raises(InputError, match="nothing was sent"):
        await asked(served, print)
    assert not served.prompts


@EACH
async def test_what_a_caller_asks_for_is_sent_or_refused_by_name(route: Route) -> None:
    """A sampling parameter is never dropped silently."""
    sampling: dict[str, Any] = {"temperature": 0.375, "seed": 12345, "max_tokens": 7}
    for name, value in sampling.items():
        asked: list[httpx2.Request] = []
        served = Served(route)

        async def keep(
            request: httpx2.Request, served: Served = served, asked: list[httpx2.Request] = asked
        ) -> httpx2.Response:
            asked.append(request)
            return await served(request)

        async with served.engine(transport=httpx2.MockTransport(keep), api_key="k") as engine:
            if name in route.lacks:
                with pytest.raises(UnsupportedError, match=rf"Sampling\.{name}"):
                    await engine.from_ids(IDS, Sampling(**{name: value}))
            else:
                await engine.from_ids(IDS, Sampling(**{name: value}))
                assert any(re.search(rb":%s\b" % str(value).encode(), one.content) for one in asked), name
        assert {one.headers["authorization"] for one in asked} <= {"Bearer k"}


# The registry.


def named(engine: str) -> list[Route]:
    """Return the routes of an engine."""
    return [route for name, route in ROUTES.items() if name.split()[0] == engine]


def test_every_engine_that_takes_ids_keeps_to_these_laws() -> None:
    """The embedded one is vLLM's adapter; Miles takes messages alone."""
    assert {name.split()[0] for name in ROUTES} == ENGINES.keys() - {"embedded", "miles"}


def test_no_adapter_imports_another() -> None:
    folder = Path(wire.__file__).parent
    adapters = {one.parent.name for one in folder.glob("*/engine.py")} | {"in_process"}
    assert len(adapters) > 7
    imports = re.compile(r"^\s*(?:from|import) (?:tito_io\.engines\.|\.\.)(\w+)", re.MULTILINE)
    for name in adapters:
        for file in (folder / name).rglob("*.py"):
            assert not set(imports.findall(file.read_text(encoding="utf-8"))) & (adapters - {name}), file


@pytest.mark.parametrize("name", sorted({name.split()[0] for name in ROUTES}))
def test_an_engine_is_made_by_its_name(name: str) -> None:
    address = EngineOptions(base_url="http://127.0.0.1:1", family=MODEL)
    engine = make_engine(name, address)
    assert {type(engine)} == {route.adapter for route in named(name)}
    assert engine.name == name
    if any("family" in route.options for route in named(name)):
        with pytest.raises(InputError, match=f"--engine {name} needs --family"):
            make_engine(name, attrs.evolve(address, family=None))
    with pytest.raises(InputError, match=f"--engine {name} needs --base-url"):
        make_engine(name, attrs.evolve(address, base_url=None))


@EACH
async def test_an_image_is_refused_by_name_where_messages_are_rendered_here(route: Route) -> None:
    if not issubclass(route.adapter, FamilyEngine):
        return
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    served = Served(route)
    async with served.engine() as engine:
        with pytest.raises(MediaUnsupportedError, match=f"{route.adapter.title} takes no media"):
            await engine.from_messages([{"role": "user", "content": [image]}], Rendering(), Sampling())
    assert not served.prompts
