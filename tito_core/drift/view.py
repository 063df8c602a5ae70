"""A prompt rendered from messages, and what it would be had one thing not changed.

A cause is shown by undoing it: with the earlier turn's tools and arguments, with the messages that it had,
with a turn's text as it was sampled. Each rendering is made when a break asks for it, and once a prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any, Protocol

import attrs

from ..errors import TemplateRefused
from ..message import Message
from ..samples.call import StoredCall
from ..samples.forest import Forest
from ..samples.predecessor import By, Follow
from .breaks import Cause
from .diff import Hunk, Packed, hunks, packed, split
from .text import Differing, Text, differing, peeled, respelled


class Renderer(Protocol):
    """Renders messages through a family's template, and reads ids back."""

    @property
    def markers(self) -> Collection[int]:
        """The ids that templates write at the borders of turns."""

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return ids, rendered with the tools and arguments of a `render_key`, or its own where that is None.

        Raises `TemplateRefused` where the template rejects the messages.
        """

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens too."""


@attrs.frozen
class View:
    """A rendering, and where it differs from the ids in use."""

    used: Packed
    rendered: Packed
    hunks: Sequence[Hunk]

    def over(self, hunk: Hunk) -> Hunk | None:
        """Return the first place that differs here too."""
        return next((other for other in self.hunks if other.touches(hunk)), None)

    def piece(self, hunk: Hunk) -> tuple[int, int, bytes]:
        """Return what a place is known by."""
        return hunk.start, hunk.stop, self.rendered[hunk.begin : hunk.end].tobytes()


def compared(
    renderer: Renderer,
    used: Packed,
    rendered: Packed,
    *,
    since: tuple[int, int] = (0, 0),
    floor: int = 0,
    open_end: bool = False,
) -> list[Hunk]:
    """Return what differs; where text does, in pieces, and in one where only ids do. See `hunks`."""
    text, found = renderer.text, []
    for hunk in hunks(used, rendered, renderer.markers, since=since, floor=floor, open_end=open_end):
        same = differing(text, used, rendered, hunk).same
        found += respelled(text, used, rendered, hunk) if same else _pieces(text, used, rendered, hunk)
    return found


def _pieces(text: Text, used: Packed, rendered: Packed, hunk: Hunk) -> list[Hunk]:
    """Part a hunk where its text says so, and what still differs in text where ids say so."""
    found: list[Hunk] = []
    for part in peeled(text, used, rendered, hunk):
        same = differing(text, used, rendered, part).same
        found += respelled(text, used, rendered, part) if same else split(used, rendered, part)
    return found


@attrs.define(slots=False)
class Views:
    """The renderings of a call's prompt, beside the ids that were in use."""

    renderer: Renderer
    forest: Forest
    call: StoredCall
    follow: Follow | None
    used: Packed
    """What a prompt that keeps ids begins with, or is."""
    open_end: bool
    """Whether `used` ends where the earlier turn ends."""
    sampled: dict[str, View | None] = attrs.field(factory=dict)
    """For turns, by their calls, the view of a prompt in which they are as they were sampled."""

    @property
    def earlier(self) -> StoredCall | None:
        """The call that the prompt goes on from."""
        return None if self.follow is None else self.forest[self.follow.of].call

    @cached_property
    def prompt(self) -> list[dict[str, Any]]:
        """The prompt's messages."""
        return list(self.call.step.prompt)

    @cached_property
    def told(self) -> list[dict[str, Any]]:
        """The messages that the earlier turn ended with, and then the prompt's own."""
        earlier = [] if self.earlier is None else list(self.earlier.step.messages)
        return [*earlier[: len(self.prompt)], *self.prompt[len(earlier) :]]

    @property
    def _key(self) -> str | None:
        return self.call.step.key if self.earlier is None else self.earlier.step.key

    def sent(self) -> View:
        """Return the prompt as it was really sent."""
        sent = packed(self.call.step.prompt_ids.tolist())
        found = compared(self.renderer, self.used, sent, open_end=self.open_end)
        return View(self.used, sent, found)

    def layers(self) -> list[tuple[Cause, View | None]]:
        """Return what may have changed, each with the view of a prompt in which it has not.

        A later one undoes the earlier ones too; None stands where nothing changed, or the template refuses.
        """
        return [
            (Cause.RENDERING, self.own),
            (Cause.TOOLS, self.same_tools),
            (Cause.EDITED, self.same_messages),
        ]

    @cached_property
    def own(self) -> View | None:
        """The prompt in this family's rendering, where it was really sent in messages."""
        if self.follow is not None and self.follow.by is By.IDS:
            return None
        return self._view(self.prompt, self.call.step.key)

    @cached_property
    def same_tools(self) -> View | None:
        """With the earlier turn's tools and arguments."""
        return None if self._key == self.call.step.key else self._view(self.prompt, self._key)

    @cached_property
    def same_messages(self) -> View | None:
        """And with its messages."""
        return None if self.told == self.prompt else self._view(self.told, self._key)

    def verbatim(self, turn: StoredCall, hunk: Hunk) -> bool | None:
        """Tell whether the text would be restated, had the turn come back as it was sampled."""
        place = turn.step.prompt.length
        if turn.step.completion.length != 1 or place >= len(self.told):
            return None
        if turn.name not in self.sampled:
            self.sampled[turn.name] = self._as_sampled(turn, place)
        view = self.sampled[turn.name]
        if view is None:
            return None
        rest = view.over(hunk)
        return rest is None or self.differing(view, rest).same

    def _as_sampled(self, turn: StoredCall, place: int) -> View | None:
        ids = turn.step.completion_ids.tolist()
        said = self.renderer.text(ids if turn.step.stop is None else ids[:-1])
        message = {"role": "assistant", "content": said}
        return self._view([*self.told[:place], message, *self.told[place + 1 :]], self._key)

    def differing(self, view: View, hunk: Hunk) -> Differing:
        """Return the text that differs."""
        return differing(self.renderer.text, view.used, view.rendered, hunk)

    def _view(self, messages: Sequence[Message], key: str | None) -> View | None:
        try:
            rendered = packed(self.renderer.ids(messages, key, add_generation_prompt=True))
        except TemplateRefused:
            return None
        found = compared(self.renderer, self.used, rendered, open_end=self.open_end)
        return View(self.used, rendered, found)
