"""Images whose messages tell no identity: the ranges of a call say which image was seen at each position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from tests.core.drift.conversations import assistant, user
from tests.core.drift.test_media import (
    SEEING,
    SIZE,
    Seeing,
    audited,
    by_ids,
    by_messages,
    sent,
    showing,
    the_break,
    turn,
)
from tests.profiles import tries
from tito_core import Message
from tito_core.drift import Cause
from tito_core.samples import StoredCall


def unnamed(message: Message) -> dict[str, Any]:
    """Return a message without the keys of its images; each keeps its URL."""
    content = message["content"]
    if isinstance(content, str):
        return dict(message)
    parts = [{name: value for name, value in part.items() if name != "uuid"} for part in content]
    return {**message, "content": parts}


def without_keys(calls: Sequence[StoredCall]) -> list[StoredCall]:
    return [
        attrs.evolve(one, step=attrs.evolve(one.step, prompt=list(map(unnamed, one.step.prompt))))
        for one in calls
    ]


def at_one_url(calls: Sequence[StoredCall]) -> list[StoredCall]:
    """Return calls whose first messages show an image by one URL, whatever their ranges say."""
    first = unnamed(showing("live"))
    return [
        attrs.evolve(one, step=attrs.evolve(one.step, prompt=[first, *list(one.step.prompt)[1:]]))
        for one in calls
    ]


def test_an_image_without_identity_is_the_one_that_was_seen_at_its_position() -> None:
    assert audited(without_keys(by_ids())) == audited(by_ids())
    assert audited(without_keys(by_ids())).breaks == ()


def test_some_calls_may_tell_identities_and_others_not() -> None:
    first, second = by_ids()
    assert audited([first, *without_keys([second])]).breaks == ()
    assert audited([*without_keys([first]), second]).breaks == ()


def test_one_url_that_showed_two_images_is_named_and_is_no_edit() -> None:
    one = the_break(at_one_url(by_messages([showing("dog"), assistant(), user()])))
    assert (one.cause, one.also, one.happened) == (Cause.MEDIA, (), True)
    assert one.detail == "changed image: image cat is in use, the rendering has image dog"


def test_another_number_of_ids_is_named_without_identities_too() -> None:
    one = the_break(without_keys(by_messages([showing("cat"), assistant(), user()], size=SIZE - 20)))
    assert one.detail == "other number of placeholder ids: image cat has 300 in use, 280 in the rendering"


def test_another_url_that_showed_another_image_is_an_edit() -> None:
    one = the_break(without_keys(by_messages([showing("dog"), assistant(), user()])))
    assert (one.cause, one.also) == (Cause.MEDIA, (Cause.EDITED,))


def test_an_edit_before_an_image_does_not_give_it_the_range_of_another() -> None:
    first = turn(0, [showing("cat")], *sent([showing("cat")]))
    prompt = [user("what is it?"), assistant(), showing("dog")]
    one = the_break(without_keys([first, turn(1, prompt, *sent(prompt))]))
    assert (one.cause, one.also) == (Cause.MEDIA, (Cause.EDITED,))


def test_an_edit_of_older_messages_is_no_cause_of_a_new_image_that_is_moved() -> None:
    def opening(text: str) -> Message:
        return {"role": "user", "content": [{"type": "text", "text": text}, *showing("cat")["content"][:1]]}

    first = turn(0, [opening("what is it?")], *sent([opening("what is it?")], size=3))
    more, media = sent([showing("dog")], [*first.ids.tolist(), *SEEING.encode("\n")], size=3)
    prompt = [opening("who is it?"), assistant(), showing("dog")]
    second = turn(1, prompt, more, [*first.step.media, *media])
    found = audited(without_keys([first, second]), Seeing(order="last")).breaks
    causes = [(one.cause, one.also) for one in found]
    assert causes == [(Cause.EDITED, ()), (Cause.MEDIA, ())]


def test_an_image_without_identity_that_a_template_leaves_out_is_named() -> None:
    one = the_break(without_keys(by_ids()[:1]), Seeing(order="dropped"))
    assert one.detail == "image cat is missing in the rendering"


KEYS = st.lists(st.sampled_from(("cat", "dog", "cow")), max_size=2)
TURNS = st.lists(
    st.tuples(KEYS, st.booleans(), st.sampled_from((3, 3, 5)), st.none() | KEYS), min_size=1, max_size=4
)
FAMILIES = st.builds(Seeing, order=st.sampled_from(("kept", "kept", "last", "dropped", "twice")))


def calls_of(turns: Sequence[tuple[list[str], bool, int, list[str] | None]]) -> list[StoredCall]:
    """Return turns, by ids or by messages, of which some show other images in the first message."""
    calls: list[StoredCall] = []
    for order, (keys, goes_by_ids, size, edited) in enumerate(turns):
        last = calls[-1] if calls else None
        before = [] if last is None else [dict(message) for message in last.step.messages]
        new = [showing(*keys)]
        if last is None or not goes_by_ids:
            before[:1] = [showing(*edited)] if before and edited is not None else before[:1]
            calls.append(turn(order, [*before, *new], *sent([*before, *new], size=size)))
        else:
            ids, media = sent(new, [*last.ids.tolist(), *SEEING.encode("\n")], size=size)
            calls.append(turn(order, [*before, *new], ids, [*last.step.media, *media]))
    return calls


@given(TURNS, FAMILIES)
@tries(1)
def test_identities_in_messages_that_the_ranges_have_too_change_nothing(
    turns: list[tuple[list[str], bool, int, list[str] | None]], family: Seeing
) -> None:
    calls = calls_of(turns)
    assert audited(without_keys(calls), family) == audited(calls, family)
