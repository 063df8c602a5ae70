"""Find what a template does with images: its placeholder, and where a prompt with images goes by ids."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count, product

import attrs

from tito_core import OddStop, Policy, Refusal, Step, TemplateRefused, answer, stitch_questions
from tito_core.media.ranges import Placeholders
from tito_core.normalization.media import asked, media_of
from tito_core.samples.trie import common_length
from tito_core.seams.case import TurnKind
from tito_core.seams.placeholders import ranges_at
from tito_io.cli.errors import visible
from tito_io.families.family import Family
from tito_io.families.image_tokens import placeholder_candidates
from tito_io.families.placeholders import written_placeholder

from .example_conversation import (
    ExampleConversation,
    ExampleSampler,
    Plain,
    SampledExample,
    example_conversations,
)
from .image_report import EXACT, REFUSED, REJECTED, ImageCase, MediaReport
from .meter import LintMeter

QUESTION = "Where is it raining?"
TEXT: Plain = {"type": "text", "text": QUESTION}
FIRST, LATER = "the first image, in a user message", "a later image, in a user message"
PLACES = {
    FIRST: (0, 1, "user"),
    LATER: (1, 1, "user"),
    "two images in one user message": (0, 2, "user"),
    "an image in a tool result": (0, 1, "tool"),
}
"""Where an image may stand: images in the message before the turn and in the one after it, and its role."""
OTHERS = ("audio", "video")
"""The modalities beside images that messages may have."""
NO_LISTS = "the template takes no lists of parts"
NOTHING = "the template writes nothing for such a part"
UNNAMED = (
    "no file of the model folder says which of these ids the engine expands: name it as image_token_id in "
    "config.json, or give it to TokenClient(media=...)"
)
_NOT_WRITTEN = "the template rejects the conversation, or does not write all of its turn"
UNLIKE = "the template does not write the same for each image"


@attrs.frozen
class PlacedExample:
    """An example conversation with images.

    Attributes:
        history: The messages before the turn, with a `uuid` for each image.
        environment: The message after it, likewise.
        sampled: The conversation as ids.
    """

    history: tuple[Plain, ...]
    environment: tuple[Plain, ...]
    sampled: SampledExample


@attrs.frozen
class ImageLinter:
    """Looks at what a template does with images.

    Attributes:
        family: The template's family.
        meter: Renders.
        suffix: The ids with which the template closes a turn.
        stop_ids: The ids that end a turn.
    """

    family: Family
    meter: LintMeter
    suffix: tuple[int, ...]
    stop_ids: tuple[int, ...]

    def report(self) -> MediaReport:
        """Return what was found; raises `Hostile` once the budget is used up."""
        written, problem = self._written("image")
        found = MediaReport(written=visible(written), problem=problem, others=tuple(self._others()))
        if problem:
            return found
        whole = written_placeholder(self.meter, {"written": self.family.encode(written)})
        run = written_placeholder(self.meter, placeholder_candidates(self.family))
        # An only id needs no name. Without one, all ids stand for the placeholder: seams are the same.
        run = run or (whole if whole and len(whole) == 1 else None)
        whole = run or whole
        if whole is None:
            return attrs.evolve(found, problem=UNLIKE)
        examples = {place: self._example(place) for place in PLACES}
        return attrs.evolve(
            found,
            problem="" if run else UNNAMED,
            placeholder=run or (),
            placeholder_text=visible(self.family.decode(run or ())),
            numbered=_are_numbered(examples),
            cases=tuple(self._case(place, one, whole) for place, one in examples.items()),
        )

    def _written(self, modality: str) -> tuple[str, str]:
        """Return what the template writes for a part of a modality, or else why it writes none."""
        parts = [TEXT], [{"type": modality}, TEXT]
        try:
            bare, shown = (
                self.meter.text([{"role": "user", "content": list(one)}], speaking=True) for one in parts
            )
        except TemplateRefused as refused:
            return "", f"the template rejects such a part: {visible(f'{refused!s:.200}')}"
        inserted = _inserted(bare, shown)
        if QUESTION not in bare or _SPELLED.search(inserted):
            return "", NO_LISTS
        return inserted, "" if inserted else NOTHING

    def _others(self) -> Iterator[tuple[str, str]]:
        """Yield the other modalities with why they go by messages, and what the template does with them."""
        for modality in OTHERS:
            written, problem = self._written(modality)
            does = f"the template writes `{visible(written):.60}` for such a part" if written else problem
            yield modality, f"not supported: a conversation with {modality} goes by messages; {does}"

    def _example(self, place: str) -> PlacedExample | None:
        """Return the first conversation with an image at a place that the template accepts."""
        sampler = ExampleSampler(
            self.meter, frozenset((*self.stop_ids, *self.suffix[:1])), frozenset(self.stop_ids)
        )
        for one in _conversations(*PLACES[place]):
            bare = attrs.evolve(
                one,
                history=tuple(map(asked, one.history)),
                environment=tuple(map(asked, one.environment)),
            )
            sampled = sampler.sample(bare, cut=False)
            if sampled is not None:
                return PlacedExample(one.history, one.environment, sampled)
        return None

    def _case(self, place: str, example: PlacedExample | None, run: tuple[int, ...]) -> ImageCase:
        """Return what `stitch` makes of a conversation, compared with one fresh render of it."""
        if example is None:
            return ImageCase(place=place, verdict=REJECTED, detail=_NOT_WRITTEN)
        placeholders = Placeholders.of({"image": run})
        assert placeholders is not None  # noqa: S101  # only None gives None
        sampled = example.sampled
        found, shown = placeholders.find(sampled.prompt), media_of(example.history)
        if len(found) != len(shown):
            return ImageCase(place=place, verdict=REFUSED, reason="PLACEHOLDERS", detail=_COUNT)
        step = Step(
            prompt=example.history,
            completion=[sampled.conversation.turn],
            prompt_ids=sampled.prompt,
            completion_ids=sampled.sampled,
            media=ranges_at(found, shown, placeholders),
        )
        # Odd stops are no matter of images: the tables show them.
        questions = stitch_questions(
            [step],
            [*step.messages, *example.environment],
            self.suffix,
            policy=Policy(odd_stop=OddStop.KEEP),
            media=placeholders,
        )
        result = answer(questions, self.meter)
        if isinstance(result, Refusal):
            return ImageCase(
                place=place, verdict=REFUSED, reason=result.reason.name, detail=visible(result.detail)
            )
        if sampled.rendered[-len(result.added) :] != result.added:
            return ImageCase(place=place, verdict=REFUSED, reason="CONTRADICTED", detail=_OTHER_TAIL)
        return ImageCase(place=place, verdict=EXACT)


_SPELLED = re.compile(r"""['"]type['"] *:""")
"""How Python and JSON write a part: a template that takes no lists writes them so."""
_COUNT = "the template writes another number of placeholders than the history has images"
_OTHER_TAIL = "a fresh render ends with other ids: please report this template"


def _conversations(before: int, after: int, role: str) -> Iterator[ExampleConversation]:
    """Yield conversations with so many images before the turn and after it, texts as such and in lists."""
    calls = int(role == "tool")
    kind = TurnKind(before="user", reasoning=False, calls=calls, content="empty" if calls else "text")
    for one, in_lists in product(example_conversations(kind, (role,), (True, False)), (False, True)):
        names = map("image-{}".format, count())
        yield ExampleConversation(
            tuple(_shown(m, before * (m["role"] == "user"), names, in_lists) for m in one.history),
            _shown(one.turn, 0, names, in_lists),
            tuple(_shown(m, after, names, in_lists) for m in one.environment),
        )


def _shown(message: Plain, images: int, names: Iterator[str], in_lists: object) -> Plain:
    """Return a message with so many images before its text, which is then a list of parts."""
    text = message.get("content")
    if not isinstance(text, str) or not text or not (images or in_lists):
        return message
    shown = [{"type": "image_url", "uuid": next(names)} for _ in range(images)]
    return {**message, "content": [*shown, {"type": "text", "text": text}]}


def _are_numbered(examples: Mapping[str, PlacedExample | None]) -> bool:
    """Return whether what follows a turn is different if an image stands before it."""
    first, later = examples[FIRST], examples[LATER]
    if first is None or later is None or first.sampled.tail is None:
        return False
    return first.sampled.tail != later.sampled.tail


def _inserted(text: str, longer: str) -> str:
    """Return what a longer text has beside another one, with which it begins and ends.

    >>> _inserted("a dog", "a small dog")
    'small '
    """
    start = common_length(text, longer)
    end = min(common_length(text[::-1], longer[::-1]), len(text) - start)
    return longer[start : len(longer) - end]
