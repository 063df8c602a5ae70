"""Render one prompt unchanged, and again with one change undone.

A cause is shown by undoing it: with the tools and arguments of the earlier turn, with the messages that it
had, with a turn's text as it was sampled. Each is made once a prompt, and only where a difference needs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..media.ranges import MediaRange
from ..message import Message
from ..normalization.media import media_of
from ..samples.call import StoredCall
from ..samples.forest import Forest
from .breaks import Cause
from .diff import Hunk, Packed, packed
from .numbered import NumberedMedia
from .predecessor import By, Predecessor
from .text import TextDifference, compare, text_difference


@attrs.frozen
class ComparedRendering:
    """A rendering, the ids that were used, and the hunks where they differ."""

    used: Packed
    rendered: Packed
    hunks: Sequence[Hunk]

    @property
    def alike(self) -> bool:
        """Whether at least half of the ids of the shorter side are the same.

        Another time, other arguments or missing tools leave most ids; those of another model share few.
        """
        same = len(self.used) - sum(hunk.stop - hunk.start for hunk in self.hunks)
        return 2 * same >= min(len(self.used), len(self.rendered))

    def first_overlap(self, hunk: Hunk) -> Hunk | None:
        """Return the first hunk that overlaps `hunk`, which may be another rendering's."""
        return next((other for other in self.hunks if other.overlaps(hunk)), None)

    def identity(self, hunk: Hunk) -> tuple[int, int, bytes]:
        """Return what makes hunks of two renderings the same: the used ids and what stands instead."""
        return hunk.start, hunk.stop, self.rendered[hunk.begin : hunk.end].tobytes()


@attrs.define(slots=False)
class PromptRenderings:
    """The renderings of a call's prompt.

    Attributes:
        renderer: Renders messages and decodes ids, with media numbered.
        forest: The calls of the conversation.
        call: The call whose prompt it is.
        predecessor: The call that the prompt continues; None for a first prompt.
        used: The ids to compare with: the prompt ids, or with `open_end` the ids of the earlier turn.
        open_end: Whether `used` ends with the earlier turn, so that the prompt goes further.
        sampled: By name of a turn, the rendering with that turn's text as it was sampled.
    """

    renderer: NumberedMedia
    forest: Forest
    call: StoredCall
    predecessor: Predecessor | None
    used: Packed
    open_end: bool
    sampled: dict[str, ComparedRendering | None] = attrs.field(factory=dict)

    @property
    def earlier(self) -> StoredCall | None:
        """The call that the prompt continues."""
        return None if self.predecessor is None else self.forest[self.predecessor.name].call

    @cached_property
    def prompt(self) -> list[dict[str, Any]]:
        """The prompt's messages."""
        return list(self.call.step.prompt)

    @cached_property
    def unedited(self) -> list[dict[str, Any]]:
        """The messages that the earlier turn ended with, then those that the prompt adds."""
        earlier = [] if self.earlier is None else list(self.earlier.step.messages)
        return [*earlier[: len(self.prompt)], *self.prompt[len(earlier) :]]

    @property
    def _unedited_media(self) -> list[MediaRange]:
        """The ranges of the media in `unedited`."""
        if self.earlier is None:
            return list(self.call.step.media)
        added = len(media_of(self.prompt[self.earlier.step.messages.length :]))
        return [*self.earlier.step.media, *self.call.step.media[self.call.step.media.length - added :]]

    @property
    def _earlier_key(self) -> str | None:
        return self.call.step.key if self.earlier is None else self.earlier.step.key

    def sent(self) -> ComparedRendering:
        """Return the prompt ids that were sent, compared with the used ones."""
        step = self.call.step
        return self._compared(self.renderer.used(step.prompt_ids, step.media))

    @cached_property
    def undone(self) -> Mapping[Cause, ComparedRendering]:
        """Renderings that undo a cause and the causes before it, in the order of `Cause`.

        A cause is absent where nothing changed, or where the template rejects the messages.
        """
        key, earlier_key, media = self.call.step.key, self._earlier_key, self.call.step.media
        variants: dict[Cause, tuple[Sequence[Message], str | None, Sequence[MediaRange]]] = {}
        # A prompt that went by ids was not rendered as a whole, so no rendering of it can be wrong.
        if self.predecessor is None or self.predecessor.by is not By.IDS:
            variants[Cause.RENDERING] = self.prompt, key, media
        if earlier_key != key:
            variants[Cause.TOOLS] = self.prompt, earlier_key, media
        if self.unedited != self.prompt:
            variants[Cause.EDITED] = self.unedited, earlier_key, self._unedited_media
        rendered = {cause: self._render(*variant) for cause, variant in variants.items()}
        return {cause: rendering for cause, rendering in rendered.items() if rendering is not None}

    def restates_verbatim(self, turn: StoredCall, hunk: Hunk) -> bool | None:
        """Return whether a hunk's text would be restated, had `turn` come back as it was sampled.

        None where the template cannot be asked.
        """
        place = turn.step.prompt.length
        if turn.step.completion.length != 1 or place >= len(self.unedited):
            return None
        if turn.name not in self.sampled:
            ids = turn.step.completion_ids.tolist()
            text = self.renderer.text(ids if turn.step.stop is None else ids[:-1])
            message = {"role": "assistant", "content": text}
            messages = [*self.unedited[:place], message, *self.unedited[place + 1 :]]
            self.sampled[turn.name] = self._render(messages, self._earlier_key, self._unedited_media)
        rendering = self.sampled[turn.name]
        if rendering is None:
            return None
        rest = rendering.first_overlap(hunk)
        return rest is None or self.text_difference(rendering, rest).same

    def text_difference(self, rendering: ComparedRendering, hunk: Hunk) -> TextDifference:
        """Return the text that differs in a hunk of `rendering`."""
        return text_difference(self.renderer.text, rendering.used, rendering.rendered, hunk)

    def _render(
        self, messages: Sequence[Message], key: str | None, ranges: Sequence[MediaRange]
    ) -> ComparedRendering | None:
        try:
            ids = self.renderer.ids(messages, key, add_generation_prompt=True, ranges=ranges)
        except TemplateRefused:
            return None
        return self._compared(packed(ids))

    def _compared(self, rendered: Packed) -> ComparedRendering:
        renderer = self.renderer
        hunks = compare(renderer.text, renderer.markers, self.used, rendered, open_end=self.open_end)
        return ComparedRendering(self.used, rendered, hunks)
