"""Conversations with images through the client: ids over all turns, with engines that take images beside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import attrs
import pytest

from tests.core.pictures import PAD, PLACEHOLDERS, START, tokenize
from tests.io.client.seeing import CAT, MERGED, Seeing, asking, shown, url
from tito_core import InputError, Origin, Reason, Trajectory
from tito_core.media.ranges import Placeholders
from tito_core.message import is_multimodal
from tito_io.client import Conversation, Route, TokenClient
from tito_io.client.media import DETAIL_IGNORED, KnownMedia
from tito_io.engines.protocol import (
    InvalidReplyError,
    Rendering,
    UnsupportedError,
)
from tito_io.engines.wrapper import EngineWrapper

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("options", "first", "refusals"),
    [
        # Who gave placeholders wants ids, and learns at the first turn that nothing renders them.
        ({"media": None}, CAT, {Reason.MULTIMODAL: 1}),
        ({"renderer": None}, CAT, {Reason.MULTIMODAL: 2}),
        ({}, asking("What is <pad>?", shown("cat")), {Reason.PLACEHOLDERS: 1, Reason.MULTIMODAL: 1}),
        ({}, asking("What?", shown("cat", min_pixels=5)), {Reason.MULTIMODAL: 2}),
    ],
)
async def test_images_that_cannot_be_placed_go_by_messages(
    options: dict[str, Any], first: Any, refusals: dict[Reason, int]
) -> None:
    client = client_of(engine := Seeing(), **options)
    await two_turns(client, first)
    assert [kind for kind, _ in engine.asked] == ["messages", "messages"]
    assert client.counts.refusals == refusals


def renderer(_: Rendering) -> Any:
    async def render(messages: Any, *, add_generation_prompt: bool) -> list[int]:
        await anyio.lowlevel.checkpoint()
        return tokenize(messages, add_generation_prompt=add_generation_prompt)

    return render


def client_of(engine: Any, **options: Any) -> TokenClient:
    return TokenClient(engine, **{"renderer": renderer, "media": PLACEHOLDERS, **options})


async def two_turns(client: TokenClient, first: Any = CAT, then: Any = None) -> list[Any]:
    """Take a turn after `first`, and one after `then`."""
    begun = await client.turn([], [first])
    prompt = [first, begun.message, then or asking("And this?", shown("dog"))]
    return [begun, await client.turn([begun.step], prompt)]


@pytest.mark.parametrize("says_ranges", [True, False])
async def test_images_go_by_ids_from_the_first_turn_on(says_ranges: bool) -> None:  # a parameter of the test
    engine = Seeing(says_ranges=says_ranges)
    first, second = await two_turns(client := client_of(engine))
    assert [kind for kind, _ in engine.asked] == ["media", "media"]
    assert [done.turn.route for done in (first, second)] == [Route.RENDERED, Route.TITO]
    assert second.step.prompt_ids.starts_with(first.step.ids)
    assert [one.length for one in second.step.media] == [len(url("cat")), len(url("dog"))]
    assert first.step.media == second.step.media[:1]
    assert [run for run in second.step.ledger.spans if run.origin is Origin.MEDIA]
    assert sum(second.step.ledger.mask()) == len(second.step.completion_ids) + len(first.step.completion_ids)
    assert client.counts.routes == {Route.RENDERED: 1, Route.TITO: 1}
    assert not client.counts.refusals


async def test_a_turn_after_images_keeps_to_its_constraint_too() -> None:
    client, sampling = client_of(Seeing()), {"response_format": {"type": "json_object"}}
    first = await client.turn([], [CAT])
    for steps, prompt in (([], [CAT]), ([first.step], [CAT, first.message, asking("And?", shown("dog"))])):
        with pytest.raises(InvalidReplyError, match="did not keep to the constraint") as caught:
            await client.turn(steps, prompt, sampling=sampling)
        assert caught.value.partial is not None


async def test_a_turn_after_images_is_asked_for_with_its_sampling_masks() -> None:
    """This engine does not know them, so that the turn is refused."""
    client = attrs.evolve(client_of(Seeing()), sampling_masks=True)
    with pytest.raises(InvalidReplyError, match="sampling masks were requested") as caught:
        await client.turn([], [CAT])
    assert caught.value.partial is not None


async def test_a_turn_of_text_after_an_image_has_the_image_beside_it() -> None:
    engine = Seeing()
    await two_turns(client_of(engine), then={"role": "user", "content": "Sure?"})
    assert engine.asked[1] == ("media", [url("cat")])


async def test_an_image_in_a_tool_result_and_several_in_one_turn() -> None:
    engine = Seeing()
    client = client_of(engine)
    first, second = await two_turns(client, then=asking("Both", shown("dog"), shown("cow"), shown("dog")))
    prompt = [*second.step.messages, asking("7", shown("map"), role="tool")]
    third = await client.turn(Trajectory([first.step, second.step]), prompt)
    assert third.turn.route is Route.TITO
    assert engine.asked[2] == ("media", [url(name) for name in ("cat", "dog", "cow", "dog", "map")])


async def test_a_bridge_with_an_image_is_compared_with_a_render_of_all() -> None:
    conversation = Conversation(Seeing(), renderer=renderer, media=PLACEHOLDERS, check_every=1)
    turn = await conversation.turn([CAT])
    later = await conversation.turn([*turn.step.messages, asking("And this?", shown("dog"))])
    assert later.route is Route.TITO
    assert (conversation.checked_turns, conversation.differing_turns) == (1, 0)


async def test_an_id_that_became_one_with_an_image_belongs_to_it() -> None:
    """So does Gemma 3's engine with line ends around an image."""
    conversation = Conversation(Seeing(merges=True), renderer=renderer, media=PLACEHOLDERS, check_every=1)
    first = await conversation.turn([CAT])
    second = await conversation.turn([*first.step.messages, asking("And?", shown("dog"), shown("cow"))])
    third = await conversation.turn([*second.step.messages, asking("Sure?")])
    steps = (first.step, second.step, third.step)
    assert [one.route for one in (first, second, third)] == [Route.RENDERED, Route.TITO, Route.TITO]
    assert [len(step.media) for step in steps] == [1, 3, 3]
    assert {one.collapsed for step in steps for one in step.media} == {(START, PAD)}
    assert {step.prompt_ids[one.offset] for step in steps for one in step.media} == {MERGED}
    assert START not in third.step.prompt_ids
    assert steps[2].prompt_ids.starts_with(steps[1].ids)
    assert steps[1].prompt_ids.starts_with(steps[0].ids)
    assert sum(third.step.ledger.mask()) == sum(len(step.completion_ids) for step in steps)
    assert (conversation.checked_turns, conversation.differing_turns) == (2, 0)


async def test_a_text_conversation_is_as_before() -> None:
    engine = Seeing()
    first, second = await two_turns(
        client_of(engine), {"role": "user", "content": "Hi"}, {"role": "user", "content": "More"}
    )
    assert [kind for kind, _ in engine.asked] == ["messages", "ids"]
    assert [done.turn.route for done in (first, second)] == [Route.MITO, Route.TITO]
    assert second.step.media == []


async def test_other_engines_get_messages() -> None:
    refusing = Seeing(refuses=True)
    for engine in (refusing, EngineWrapper(refusing), Seeing(takes_media=False)):
        client = client_of(engine)
        first, second = await two_turns(client)
        assert [done.turn.route for done in (first, second)] == [Route.MITO, Route.MITO]
        assert client.counts.refusals == {Reason.MULTIMODAL: 2}
        assert "seeing takes no media beside ids" in first.turn.refusal.detail


BROKEN = "data:image/png;base64,iVBOR!w0KGgo"


ADDRESS = "https://example.org/cat.png"


async def test_a_conversation_without_a_renderer_says_so() -> None:
    turn = await Conversation(Seeing(), media=PLACEHOLDERS).turn([CAT])
    assert turn.refusal is not None
    assert "give a function that renders messages here" in turn.refusal.detail


class SeeingRenderer(Seeing):
    """An engine that renders images as the template writes them."""

    async def render(self, messages: Sequence[Any], rendering: Rendering, **options: bool) -> list[int]:
        assert not is_multimodal(messages)
        assert not rendering.tools
        return tokenize(messages, **options)

    async def render_placeholders(
        self, messages: Sequence[Any], rendering: Rendering, media: Placeholders, **options: bool
    ) -> list[int]:
        assert media.ids("image") == (PAD,)
        assert not rendering.tools
        return tokenize(messages, **options)


async def test_an_engine_may_render_placeholders_itself() -> None:
    first, second = await two_turns(client_of(SeeingRenderer(), renderer=None))
    assert [done.turn.route for done in (first, second)] == [Route.RENDERED, Route.TITO]
    conversation = Conversation(SeeingRenderer(), media=PLACEHOLDERS)
    turn = await conversation.turn([CAT])
    later = await conversation.turn([*turn.step.messages, {"role": "user", "content": "Sure?"}])
    assert (turn.route, later.route) == (Route.RENDERED, Route.TITO)


@pytest.mark.parametrize("wrap", [lambda engine: engine, EngineWrapper])
async def test_a_text_that_spells_a_placeholder_is_not_sent_to_an_engine_that_would_not_answer(
    wrap: Any,
) -> None:
    engine = Seeing()
    engine.answers_stray_placeholders = False
    with pytest.raises(UnsupportedError, match="a text spells an image's placeholder"):
        await client_of(wrap(engine)).turn([], [asking("What is <pad>?", shown("cat"))])
    assert not engine.asked


async def test_what_an_engine_saw_otherwise_is_an_error_with_the_reply() -> None:
    client = client_of(Seeing(spoils=True))
    with pytest.raises(InvalidReplyError, match="the engine saw another prompt") as error:
        await client.turn([], [CAT])
    assert error.value.partial is not None
    assert error.value.partial.completion_ids
    assert client.counts.errors == {"InvalidReplyError": 1}


async def test_an_older_image_that_changed_its_size_is_an_error() -> None:
    """What the engine made of it in this turn is not what the ids of the turns before say."""
    client, engine = client_of(Seeing()), Seeing()
    done = await client.turn([], [asking("What?", {**shown("cat"), "uuid": "k"})])
    other = asking("What?", {**shown("another cat"), "uuid": "k"})
    fresh = client_of(engine)
    with pytest.raises(InvalidReplyError, match="another prompt"):
        await fresh.turn([done.step], [other, done.message, {"role": "user", "content": "Sure?"}])


async def test_a_prompt_that_continues_no_step_is_rendered_whole() -> None:
    client = client_of(Seeing())
    (first, _) = await two_turns(client)
    edited = [asking("Which?", shown("cat")), first.message, {"role": "user", "content": "Sure?"}]
    done = await client.turn([first.step], edited)
    assert done.turn.route is Route.RENDERED
    assert done.turn.refusal is not None
    assert done.turn.refusal.reason is Reason.NO_PREFIX
    assert [one.identity for one in done.step.media] == [first.step.media[0].identity]


# Bytes and keys.


async def test_a_key_alone_has_the_bytes_of_an_earlier_turn() -> None:
    engine = Seeing()
    named = {"type": "image_url", "image_url": None, "uuid": "k"}
    await two_turns(
        client_of(engine), asking("What?", {**shown("cat"), "uuid": "k"}), asking("Again?", named)
    )
    assert engine.asked[1] == ("media", [url("cat")] * 2)


async def test_a_client_of_another_engine_object_knows_the_same_bytes() -> None:
    client = client_of(Seeing())
    await client.turn([], [asking("What?", {**shown("cat"), "uuid": "k"})])
    other = attrs.evolve(client, engine=(engine := Seeing()))
    await other.turn([], [asking("What?", {"type": "image", "uuid": "k"})])
    assert engine.asked == [("media", [url("cat")])]


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ({"type": "image", "uuid": "k"}, "image 1 of the prompt has a `uuid` and no bytes"),
        (
            {"type": "image_url", "image_url": {"url": ADDRESS}, "uuid": "k"},
            "named by an address, which is not fetched here.*give its data URL",
        ),
        *(
            ({"type": "image_url", "image_url": {"url": BROKEN}, **key}, "no valid base64: encode all bytes")
            for key in ({}, {"uuid": "k"})
        ),
    ],
)
async def test_a_key_without_bytes_is_an_error_before_anything_is_sent(
    image: dict[str, Any], said: str
) -> None:
    client = client_of(engine := Seeing())
    with pytest.raises(InputError, match=said):
        await client.turn([], [asking("What?", image)])
    assert not engine.asked


async def test_trap_08_a_key_for_other_bytes_is_an_error() -> None:
    """A server believes the key, and shows the first image."""
    client = client_of(engine := Seeing())
    await client.turn([], [asking("What?", {**shown("cat"), "uuid": "k"})])
    with pytest.raises(InputError, match="the `uuid` of another one"):
        await client.turn([], [asking("What?", {**shown("dog"), "uuid": "k"})])
    assert len(engine.asked) == 1
    await client.turn(
        [], [asking("What?", {"type": "image", "url": url("cat").replace("png", "x"), "uuid": "k"})]
    )


async def test_bytes_that_were_forgotten_are_read_again_from_the_messages() -> None:
    engine = Seeing()
    client = client_of(engine)
    client.known_media.most = 1  # as if other conversations had many images
    await two_turns(client)
    assert engine.asked[1] == ("media", [url("cat"), url("dog")])


def test_the_oldest_bytes_are_forgotten_first() -> None:
    known = KnownMedia(most=2 * len(url("cat")))
    known.learn([asking("", *({**shown(name), "uuid": name} for name in ("cat", "dog", "cat", "cow")))])
    assert [known.url(name) is not None for name in ("cat", "dog", "cow")] == [True, False, True]


# Settings of an image.


async def test_detail_is_counted_since_it_goes_nowhere() -> None:
    client = client_of(Seeing())
    first, second = await two_turns(client, asking("What?", shown("cat", detail="low")))
    assert first.turn.reply.notices == (DETAIL_IGNORED,)
    assert second.turn.reply.notices == ()
    assert client.counts.notices == {DETAIL_IGNORED: 1}
