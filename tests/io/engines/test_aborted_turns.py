"""Aborted turns: resumed from their exact ids, returned, or an error that says so."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.engines.aborting_engine import END, AbortingEngine
from tito_core import Ids, InputError
from tito_core.media.ranges import MediaRange
from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.client.conversation import Conversation
from tito_io.client.token_client import TokenClient
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort, Patience, later_seed
from tito_io.engines.constraint import Constraint
from tito_io.engines.media import check_places
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    InvalidReplyError,
    PromptMedium,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    ServerError,
    Usage,
)
from tito_io.engines.turn_parts import joined_ids
from tito_io.engines.wrapper import EngineWrapper

pytestmark = pytest.mark.anyio
PROMPT = tuple(map(ord, "hello"))
LONG = tuple(map(ord, "be"))
"""A prompt after which the turn has 40 ids and more."""


def quick() -> Patience:
    return Patience(seconds=0.01, pause=0.001)


def patient() -> Patience:
    return Patience(seconds=5.0, pause=1e-5)


def resuming(engine: Any, **options: Any) -> AbortedTurns:
    return AbortedTurns(engine, OnAbort.RESUME, patience=options.pop("patience", quick))


def told(reply: Reply) -> dict[str, Any]:
    """Return what a trainer reads of a turn, however many parts it had."""
    return {
        "prompt": tuple(reply.prompt_ids),
        "ids": reply.completion_ids,
        "logprobs": reply.logprobs,
        "message": reply.message,
        "text": reply.text,
        "finish": reply.finish_reason,
        "stop": reply.stop_reason,
        "usage": reply.usage,
    }


def sample(engine: Any, sampling: Sampling, prompt: tuple[int, ...] = PROMPT, watch: Any = None) -> Reply:
    async def run() -> Reply:
        reply: Reply = await engine.from_ids(prompt, sampling, Rendering(), watch=watch)
        return reply

    return anyio.run(run)


@given(
    prompt=st.text("xyz", min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 9), max_size=4),
    stops=st.lists(st.text("abcd", min_size=1, max_size=4), max_size=2),
    most=st.none() | st.integers(1, 20),
    least=st.integers(0, 12),
    room=st.integers(8, 40),
    way=st.fixed_dictionaries({"raising": st.booleans(), "late": st.booleans()}),
)
def test_a_turn_that_was_aborted_is_the_turn_that_was_not(
    prompt: str,
    cuts: list[int],
    stops: list[str],
    most: int | None,
    least: int,
    room: int,
    way: dict[str, Any],
) -> None:
    """Wherever it is aborted, a turn has the same ids, log-probabilities, end and message.

    Each id has the version of the request that sampled it, and no request asks for an id that there is.
    """
    sent = tuple(map(ord, prompt))
    least = least if most is None else min(least, most)
    extra = {"min_tokens": least} if least else {}
    sampling = Sampling(max_tokens=most, stop=tuple(stops), stop_ids=(END,), extra=extra)
    whole = sample(AbortingEngine(room=room), sampling, sent)
    engine = AbortingEngine([[cut] for cut in cuts], room=room, **way)
    resumed = sample(resuming(engine, patience=patient), sampling, sent)
    one_text = attrs.evolve(whole, message=None), attrs.evolve(resumed, message=None)
    assert told(one_text[0]) == told(one_text[1])
    assert (whole.message or {})["content"] == (resumed.message or {})["content"]
    versions = [run.version for run in resumed.weight_versions for _ in range(run.start, run.stop)]
    asked = [(len(ids) - len(sent), int(number)) for number, (ids, _) in enumerate(engine.asked, 1)]
    begun = dict(asked)  # of two with one start the later one sampled
    expected = [str(begun[max(start for start in begun if start <= place)]) for place in range(len(versions))]
    assert versions == expected
    assert len(versions) == len(resumed.completion_ids)


def test_parts_are_requested_after_the_exact_ids_with_what_is_left() -> None:
    engine = AbortingEngine([[3], [2]])
    sampling = Sampling(max_tokens=10, seed=5, temperature=0.7, extra={"min_tokens": 4, "top_p": 0.9})
    reply = sample(resuming(engine), sampling, LONG)
    starts = [len(ids) - len(LONG) for ids, _ in engine.asked]
    assert starts == [0, 3, 5]
    assert all(ids == (*LONG, *reply.completion_ids[: len(ids) - len(LONG)]) for ids, _ in engine.asked)
    rest = [(one.max_tokens, one.extra, one.temperature) for _, one in engine.asked]
    assert rest == [
        (10, {"min_tokens": 4, "top_p": 0.9}, 0.7),
        (7, {"min_tokens": 1, "top_p": 0.9}, 0.7),
        (5, {"min_tokens": 0, "top_p": 0.9}, 0.7),
    ]
    seeds = [one.seed for _, one in engine.asked]
    assert seeds == [5, later_seed(5, 3), later_seed(5, 5)]
    assert len(set(seeds)) == 3
    assert reply.notices == ("turn-resumed", "turn-resumed")
    assert reply.raw == {"parts": [{"request": 1}, {"request": 2}, {"request": 3}]}


def test_seeds_that_belong_to_positions_stay() -> None:
    engine = AbortingEngine([[3]], seeds_by_position=True)
    sample(resuming(engine), Sampling(max_tokens=10, seed=5), LONG)
    assert [one.seed for _, one in engine.asked] == [5, 5]


def test_a_stop_string_over_the_join_ends_the_turn_where_it_would_have() -> None:
    text = (sample(AbortingEngine(), Sampling(max_tokens=30), LONG)).text
    stop = text[4:8]
    assert text.find(stop) == 4
    engine = AbortingEngine([[6]])
    reply = sample(resuming(engine), Sampling(max_tokens=30, stop=(stop,)), LONG)
    assert (reply.text, reply.finish_reason, reply.stop_reason) == (text[:4], "stop", stop)
    assert len(reply.completion_ids) == 8
    assert [one.max_tokens for _, one in engine.asked] == [30, 1, 1]
    assert len(reply.notices) == 1


def test_a_stop_string_over_the_join_counts_after_the_least_number_of_ids_alone() -> None:
    """In vLLM none of the first `min_tokens` ids completes a stop string."""
    text = sample(AbortingEngine(), Sampling(max_tokens=30), LONG).text
    for least in (0, 3, 4, 5, 9):
        sampling = Sampling(max_tokens=30, stop=(text[2:5],), extra={"min_tokens": least})
        whole = sample(AbortingEngine(), sampling, LONG)
        for cut in (3, 4):
            engine = AbortingEngine([[cut]])
            resumed = sample(resuming(engine), sampling, LONG)
            assert told(resumed) == told(whole) | {"message": resumed.message}
            assert any(one.max_tokens == 1 for _, one in engine.asked)


@pytest.mark.parametrize("on_abort", ["resume", "return"])
def test_a_turn_that_is_aborted_as_it_ends_has_ended(on_abort: str) -> None:
    """SGLang calls it aborted; sampled further, it would have ids past its stop."""
    text = sample(AbortingEngine(), Sampling(max_tokens=30), LONG).text
    named = Sampling(stop_ids=(ord(text[5]),))
    for sampling in (named, Sampling(max_tokens=30, stop=(text[2:6],))):
        whole = sample(AbortingEngine(), Sampling(max_tokens=30, stop=(text[2:6],)), LONG)
        engine = AbortingEngine([[6]], late=True)
        reply = sample(AbortedTurns(engine, on_abort), sampling, LONG)
        assert (reply.completion_ids, reply.finish_reason) == (whole.completion_ids, "stop")
        assert reply.stop_reason in (*sampling.stop, *sampling.stop_ids)
        assert reply.text == (whole.text if sampling.stop else text[:5])
        assert reply.message == {"role": "assistant", "content": reply.text}
        assert len(engine.asked) == 1


def test_the_end_of_a_turn_is_known_from_the_folder_of_a_wrapped_engine() -> None:
    text = sample(AbortingEngine(), Sampling(max_tokens=30), LONG).text
    folder = SimpleNamespace(stop_ids=(ord(text[5]),))
    engine = EngineWrapper(AbortingEngine([[6]], late=True, family=folder))
    reply = sample(resuming(engine), Sampling(max_tokens=30), LONG)
    assert (reply.finish_reason, reply.stop_reason) == ("stop", ord(text[5]))
    assert [chr(index) for index in reply.completion_ids] == [*text[:6]]


def test_an_abort_before_the_first_id_is_a_plain_retry() -> None:
    for raising in (False, True):
        engine = AbortingEngine([[0], [0]], raising=raising)
        reply = sample(resuming(engine), Sampling(max_tokens=5), LONG)
        assert [ids for ids, _ in engine.asked] == [LONG] * 3
        assert reply.notices == ("turn-retried", "turn-retried")
        assert told(reply) == told(sample(AbortingEngine(), Sampling(max_tokens=5), LONG))


def test_a_paused_engine_is_waited_for_and_not_for_ever() -> None:
    engine = AbortingEngine([[3], "503", [0]])
    reply = sample(resuming(engine), Sampling(max_tokens=5), LONG)
    assert len(engine.asked) == 4
    assert len(reply.completion_ids) == 5
    engine = AbortingEngine([[3], *["503"] * 100])
    with pytest.raises(ServerError) as raised:
        sample(resuming(engine), Sampling(max_tokens=5), LONG)
    partial = raised.value.partial
    assert partial is not None
    assert partial.completion_ids == reply.completion_ids[:3]
    with pytest.raises(AbortedError):
        sample(resuming(AbortingEngine([[0]] * 100)), Sampling(max_tokens=5), LONG)


def test_another_error_on_the_way_holds_what_was_sampled() -> None:
    engine = AbortingEngine([[3], [2], "500"])
    with pytest.raises(ServerError) as raised:
        sample(resuming(engine), Sampling(max_tokens=9), LONG)
    partial = raised.value.partial
    assert partial is not None
    assert partial.finish_reason == "abort"
    assert partial.completion_ids == sample(AbortingEngine(), Sampling(max_tokens=5), LONG).completion_ids
    assert len(engine.asked) == 3


def test_of_a_group_only_the_aborted_turns_go_on() -> None:
    least = {"min_tokens": 8}
    whole = sample(AbortingEngine(), Sampling(max_tokens=8, n=3, extra=least), LONG)
    for raising in (False, True):
        engine = AbortingEngine([[2, None, 5]], raising=raising)
        reply = sample(resuming(engine), Sampling(max_tokens=8, n=3, seed=1, extra=least), LONG)
        turns, expected = (reply, *reply.siblings), (whole, *whole.siblings)
        assert [len(one.completion_ids) for one in turns] == [8, 8, 8]
        assert turns[0].completion_ids == expected[0].completion_ids
        assert turns[1].completion_ids == expected[1].completion_ids
        assert turns[2].completion_ids[:5] == expected[2].completion_ids[:5]
        assert [one.n for _, one in engine.asked] == [3, 1, 1]
        assert [one.notices for one in turns] == [("turn-resumed",), (), ("turn-resumed",)]
        assert {one.seed for _, one in engine.asked[1:]} == {later_seed(1, 2), later_seed(3, 5)}
        assert reply.usage == Usage(prompt_tokens=2, completion_tokens=24)


@pytest.mark.parametrize(
    ("sampling", "why"),
    [
        (Sampling(constraint=Constraint(one_call=True)), "a grammar would begin anew"),
        (Sampling(extra={"presence_penalty": 0.5}), "presence_penalty depends on all sampled ids"),
        (Sampling(extra={"bad_words": ["a b"]}), "bad_words depends on all sampled ids"),
        (Sampling(extra={"structured_outputs": {"regex": "a"}}), "structured_outputs depends"),
    ],
)
def test_what_would_be_sampled_otherwise_is_not_resumed(sampling: Sampling, why: str) -> None:
    engine = AbortingEngine([[3]])
    with pytest.raises(AbortedError, match=why) as raised:
        sample(resuming(engine), sampling, LONG)
    assert raised.value.partial is not None
    assert len(raised.value.partial.completion_ids) == 3
    assert len(engine.asked) == 1


def test_without_the_prompts_ids_there_is_an_error() -> None:
    @attrs.define
    class Mute(AbortingEngine):
        async def sample(self, request: SampleRequest) -> Reply:
            return attrs.evolve(await AbortingEngine.sample(self, request), prompt_ids=())

    with pytest.raises(AbortedError, match="the ids of its prompt did not come"):
        sample(resuming(Mute([[3]])), Sampling(), LONG)
    with pytest.raises(AbortedError, match="keeps the ids itself"):
        sample(resuming(AbortingEngine([[3]], keeps_ids=True)), Sampling(), LONG)


def test_a_prompt_whose_media_went_by_messages_is_not_continued_by_ids() -> None:
    """Its ids say where the images are expanded, and go without them."""
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    for raising in (False, True):
        engine = AbortingEngine([[3]], raising=raising)
        client = TokenClient(engine, on_abort="resume")
        with pytest.raises(AbortedError, match="its media went by messages") as raised:
            anyio.run(client.turn, [], [{"role": "user", "content": [part]}])
        assert raised.value.partial is not None
        assert len(engine.asked) == 1


@attrs.define
class Partial(AbortingEngine):
    """Says what it sampled in an error, as adapters do: turns that ended, without messages."""

    turns: int = 2

    async def sample(self, request: SampleRequest) -> Reply:
        try:
            return await AbortingEngine.sample(self, request)
        except AbortedError as error:
            found: Any = error.partial
            turns = [attrs.evolve(found, siblings=()), *found.siblings][: self.turns]
            first, *others = (attrs.evolve(one, message=None, text="") for one in turns)
            error.partial = attrs.evolve(first, siblings=tuple(others))
            raise


def test_of_a_group_that_broke_the_turns_that_had_ended_have_their_messages() -> None:
    sampling = Sampling(max_tokens=4, n=2)
    whole = sample(AbortingEngine(), sampling, LONG)
    resumed = sample(resuming(Partial([[None, 2]], raising=True)), sampling, LONG)
    assert told(resumed) | {"usage": None} == told(whole) | {"usage": None}
    (sibling,) = resumed.siblings
    assert (sibling.message, len(sibling.text)) == ({"role": "assistant", "content": sibling.text}, 4)


def test_a_group_of_which_a_turn_did_not_come_is_not_resumed() -> None:
    engine = Partial([[2, 2, 2]], raising=True)
    with pytest.raises(AbortedError, match="of 3 turns only 2 began"):
        sample(resuming(engine), Sampling(max_tokens=4, n=3), LONG)
    assert len(engine.asked) == 1


def test_an_aborted_turn_is_returned_or_raised() -> None:
    for raising in (False, True):
        engine = AbortedTurns(AbortingEngine([[3]], raising=raising), OnAbort.RETURN)
        reply = sample(engine, Sampling(max_tokens=9), LONG)
        assert (reply.finish_reason, len(reply.completion_ids), reply.truncated) == ("abort", 3, True)
        assert reply.message == {"role": "assistant", "content": reply.text}
        assert len(reply.text) == 3
        with pytest.raises(AbortedError) as raised:
            sample(AbortedTurns(AbortingEngine([[3]], raising=raising)), Sampling(max_tokens=9), LONG)
        assert raised.value.partial is not None
        with pytest.raises(AbortedError):  # there is nothing to return
            sample(AbortedTurns(AbortingEngine([[0]], raising=raising), OnAbort.RETURN), Sampling(), LONG)


def test_a_stream_has_every_id_once_and_never_text_that_the_turn_lacks() -> None:
    text = sample(AbortingEngine(), Sampling(max_tokens=30), LONG).text
    for stop, cut in ((text[4:8], 6), (text[4:8], None), ("nowhere", 6), ("nowhere", None)):
        deltas: list[Delta] = []

        async def watch(delta: Delta) -> None:
            deltas.append(delta)  # noqa: B023  # the list of this round

        sampling = Sampling(max_tokens=30, stop=(stop,))
        reply = sample(resuming(AbortingEngine([[cut]])), sampling, LONG, watch)
        assert tuple(one for delta in deltas for one in delta.ids) == reply.completion_ids
        streamed = "".join(delta.text for delta in deltas)
        assert reply.text.startswith(streamed) or (cut is None and streamed.startswith(reply.text))
        if cut is None and stop == "nowhere":
            assert streamed == reply.text


def test_of_a_group_the_turns_that_had_ended_have_all_of_their_text() -> None:
    """Text that may begin a stop string waits only where a further part may complete it."""
    texts: dict[int, str] = {0: "", 1: ""}

    async def watch(delta: Delta) -> None:
        texts[delta.index] += delta.text

    sampling = Sampling(max_tokens=6, n=2, stop=("nowhere",))
    reply = sample(resuming(AbortingEngine([[None, 2]])), sampling, LONG, watch)
    assert texts[0] == reply.text
    assert reply.siblings[0].text.startswith(texts[1])


def test_text_that_came_without_its_ids_is_not_sampled_again() -> None:
    """Some routes send a turn's ids at its end alone."""

    @attrs.define
    class Late(AbortingEngine):
        async def sample(self, request: SampleRequest) -> Reply:
            if self.asked:
                return await AbortingEngine.sample(self, request)
            assert request.watch is not None
            self.asked.append((tuple(request.ids or ()), request.sampling))
            await request.watch(Delta(text="be"))
            raise AbortedError("aborted")

    deltas: list[Delta] = []

    async def keep(delta: Delta) -> None:
        deltas.append(delta)

    engine = Late()
    with pytest.raises(AbortedError):
        sample(resuming(engine), Sampling(max_tokens=6), LONG, keep)
    assert (len(engine.asked), "".join(delta.text for delta in deltas)) == (1, "be")


def test_later_parts_have_the_same_media_and_the_collapsed_prompt() -> None:
    engine = AbortingEngine([[3]])
    place = MediaRange(offset=1, length=1, modality="image", identity="a", collapsed=(101,))
    media = [PromptMedium(place=place, url="data:image/png;base64,AA==")]

    async def run() -> Reply:
        return await resuming(engine).from_ids_with_media(LONG, media, Sampling(max_tokens=5), Rendering())

    reply = anyio.run(run)
    assert engine.media == [media, media]
    assert [ids for ids, _ in engine.asked] == [LONG, (*LONG, *reply.completion_ids[:3])]


def test_a_part_that_was_sampled_after_other_ids_is_an_error() -> None:
    """An engine may cut a prompt, or expand an image to another size."""

    @attrs.define
    class Cutting(AbortingEngine):
        async def sample(self, request: SampleRequest) -> Reply:
            return await AbortingEngine.sample(self, request.after((request.ids or ())[:3]))

    with pytest.raises(InvalidReplyError, match="went on after 3 other ids than the 4 so far") as raised:
        sample(resuming(Cutting([[2]])), Sampling(max_tokens=9), LONG)
    partial = raised.value.partial
    assert partial is not None
    assert partial.completion_ids == sample(AbortingEngine(), Sampling(max_tokens=2), LONG).completion_ids


def test_ids_that_cannot_be_sent_again_are_in_the_error() -> None:
    """Beside images, a placeholder that was sampled would get an image."""

    @attrs.define
    class Picky(AbortingEngine):
        async def sample(self, request: SampleRequest) -> Reply:
            check_places(Ids.of(request.ids or ()), request.media)
            return await AbortingEngine.sample(self, request)

    prompt = tuple(map(ord, "xc"))
    place = MediaRange(offset=1, length=1, modality="image", identity="a", collapsed=prompt[1:])
    media = [PromptMedium(place=place, url="data:image/png;base64,AA==")]

    async def run() -> Reply:
        return await resuming(Picky([[9]])).from_ids_with_media(prompt, media, Sampling(), Rendering())

    with pytest.raises(AbortedError, match="stands for none of the 1 media") as raised:
        anyio.run(run)
    assert raised.value.partial is not None
    sampled = raised.value.partial.completion_ids
    assert (len(sampled), prompt[1] in sampled) == (9, True)


def test_rows_of_experts_are_those_of_the_part_that_sampled() -> None:
    def part(before: tuple[int, ...], ids: tuple[int, ...], data: bytes | None) -> Reply:
        experts = None if data is None else RoutedExperts(data=data, dtype="uint8", shape=(len(data), 1))
        one = sample(AbortingEngine(), Sampling(max_tokens=1), LONG)
        return attrs.evolve(one, prompt_ids=(*LONG, *before), completion_ids=ids, routed_experts=experts)

    parts = [part((), (1, 2), b"\1\2\3"), part((1, 2), (3,), b"\7\7\7\4")]
    whole = RoutedExperts(data=b"\1\2\3\4", dtype="uint8", shape=(4, 1))
    assert joined_ids(parts).routed_experts == whole
    first = RoutedExperts(data=b"\1\2\3", dtype="uint8", shape=(3, 1))
    assert joined_ids([parts[0], part((1, 2), (3,), None)]).routed_experts == first
    assert joined_ids([part((), (1,), None), part((1,), (2,), None)]).routed_experts is None


def test_a_resumed_part_has_the_rows_that_an_earlier_one_lost() -> None:
    def part(data: tuple[int, ...], start: int, axes: tuple[int, ...] = (2,)) -> Reply:
        shape = (len(data) // math.prod(axes), *axes)
        experts = RoutedExperts(data=bytes(data), dtype="uint8", shape=shape, start=start)
        one = sample(AbortingEngine(), Sampling(max_tokens=9), LONG)
        return attrs.evolve(one, routed_experts=experts)

    def rows(*parts: Reply) -> tuple[int, list[int]] | None:
        whole = joined_ids(parts).routed_experts
        return None if whole is None else (whole.start, list(whole.data))

    assert rows(part((0, 0, 3, 4), 1), part((5, 6, 7, 8), 1)) == (1, [5, 6, 3, 4])
    assert rows(part((0, 0, 3, 4, 0, 0), 1), part((7, 8), 4)) == (2, [3, 4, 0, 0, 7, 8])
    assert rows(part((3,), 1, (1,)), part((7,), 4, (1,))) is None
    assert rows(part((3, 4), 1), part((7,), 4, (1,))) is None
    assert rows(part((0, 0), 1)) is None


def test_versions_of_parts_that_name_none_are_left_open() -> None:
    one = sample(AbortingEngine(), Sampling(max_tokens=2), LONG)
    none = attrs.evolve(one, weight_versions=(), logprobs=None)
    joined = joined_ids([none, one])
    assert joined.weight_versions == (WeightVersion(version="1", start=2, stop=4),)
    assert joined.logprobs == (None, None, *(one.logprobs or ()))
    assert joined_ids([none, none]).logprobs is None


async def test_a_client_resumes_a_first_turn_by_ids_and_counts_it() -> None:
    engine = AbortingEngine([[2], [1]])
    client = TokenClient(engine, on_abort="resume")
    prompt = [{"role": "user", "content": "x"}]
    first = await client.turn([], prompt, sampling={"max_tokens": 9})
    assert client.counts.notices == {"turn-resumed": 2}
    assert [run.stop - run.start for run in first.turn.reply.weight_versions][:2] == [2, 1]
    assert first.step.completion_ids.tolist() == list(first.turn.reply.completion_ids)
    assert first.step.stop == END or first.step.truncated
    with pytest.raises(AbortedError):
        await TokenClient(AbortingEngine([[2]])).turn([], prompt)
    with pytest.raises(InputError, match="on_abort is 'again'"):
        TokenClient(engine, on_abort="again")
    turn = await Conversation(AbortingEngine([[2]]), on_abort=OnAbort.RETURN).turn(prompt)
    assert turn.step.truncated
    assert turn.reply.finish_reason == "abort"
