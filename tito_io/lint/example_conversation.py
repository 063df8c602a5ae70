"""A conversation with words for each case: what was sampled in it, and what a fresh render makes of that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from attrs import evolve, frozen
from tokenizers import Encoding

from tito_core import TemplateRefused
from tito_core.seams.case import TurnKind
from tito_core.seams.sample import sample_environment, sample_turn
from tito_core.seams.seam import common_prefix
from tito_io.families.family import Family

from .budget import LintBudget
from .report import Divergence, tokens

Plain = dict[str, Any]
SYSTEM: Plain = {"role": "system", "content": "Answer in one word."}
USER: Plain = {"role": "user", "content": "Where is it raining?"}
TOOL: Plain = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find a place.",
        "parameters": {
            "type": "object",
            "properties": {"value": {"type": "string"}},
            "required": ["value"],
        },
    },
}
ARGUMENT, SPOKEN, EARLIER = "Oslo", "Fjord", "Bergen"
"""Words that only one place has, and that merge with nothing that a template writes after them."""
FOLLOWS = "And tomorrow"


@frozen
class ExampleConversation:
    """A conversation around a turn."""

    history: tuple[Plain, ...]
    turn: Plain
    environment: tuple[Plain, ...]

    @property
    def prompt(self) -> tuple[Plain, ...]:
        """The next request's messages."""
        return (*self.history, self.turn, *self.environment)


@frozen
class Played:
    """A scene as ids."""

    scene: ExampleConversation
    prompt: tuple[int, ...]
    sampled: tuple[int, ...]
    rendered: tuple[int, ...]
    """The next prompt, rendered afresh."""
    rest: int
    """How many of the sampled ids come after the turn's own words: the rest of a call, and the stop."""
    tail: tuple[int, ...] | None
    """What the fresh render has after the turn's own words; None where it lacks them."""
    stopped: bool
    """Whether what was sampled ends with an id that ends turns."""

    @property
    def used(self) -> tuple[int, ...]:
        """The ids that the engine saw and sampled."""
        return self.prompt + self.sampled

    @property
    def ending(self) -> tuple[int, ...]:
        """The sampled ids after the turn's own words."""
        return self.sampled[len(self.sampled) - self.rest :]


@frozen
class Play:
    """How a turn is played: with which ids it may end."""

    meter: LintBudget
    ends: frozenset[int]
    stops: frozenset[int]


def scenes(kind: TurnKind, shape: Sequence[str], spellings: Sequence[bool]) -> Iterator[ExampleConversation]:
    """Yield conversations of a case, the one that most templates take first.

    `spellings` say whether arguments are written as an object.
    """
    for as_object in spellings:
        turn = _turn(kind, as_object=as_object)
        environment = sample_environment(shape, turn, 2, FOLLOWS)
        for opening in ((SYSTEM, USER), (USER,)):
            yield ExampleConversation((*opening, *_loop(kind, as_object=as_object)), turn, environment)


def _turn(kind: TurnKind, *, as_object: bool) -> Plain:
    turn = sample_turn(kind, ["find"] * kind.calls)
    said = {"content": SPOKEN} if turn.get("content") else {}
    return _spelled({**turn, **said}, ARGUMENT, as_object=as_object)


def _spelled(turn: Plain, word: str, *, as_object: bool) -> Plain:
    """Return a turn with this word in the arguments of each call."""
    if "tool_calls" not in turn:
        return turn
    arguments: object = {"value": word} if as_object else f'{{"value": "{word}"}}'
    calls = [
        {**call, "function": {**call["function"], "arguments": arguments}} for call in turn["tool_calls"]
    ]
    return {**turn, "tool_calls": calls}


def _loop(kind: TurnKind, *, as_object: bool) -> tuple[Plain, ...]:
    """Return the call and result before a turn in a tool loop; it thought there as the turn does."""
    if kind.before != "tool":
        return ()
    earlier = TurnKind(before="user", reasoning=kind.reasoning, calls=1, content="empty")
    call = _spelled(sample_turn(earlier, ["seek"]), EARLIER, as_object=as_object)
    return (call, *sample_environment(("tool",), call, 1, "Rain"))


def played(play: Play, scene: ExampleConversation, *, cut: bool) -> Played | None:
    """Return the scene as ids, None where the template does not take it or does not show the turn.

    The turn is sampled as the template writes it where nothing follows. `cut` ends it after its own words.
    """
    try:
        prompt, last, following = (
            play.meter.text(scene.history, speaking=True),
            play.meter.text((*scene.history, scene.turn), speaking=False),
            play.meter.text(scene.prompt, speaking=True),
        )
        own = _own(play.meter, prompt, last, scene.turn)
        word = _last_word(own)
        return None if word is None else _ids(play, scene, (prompt, own, following), word, cut=cut)
    except TemplateRefused:
        return None


def _own(meter: LintBudget, prompt: str, last: str, turn: Plain) -> str:
    """Return the text of a turn; reasoning that the template writes nowhere is put in front, words alone."""
    own = last[len(prompt) :] if last.startswith(prompt) else _parting(meter, prompt, last)
    thought = turn.get("reasoning", "")
    return own if thought in own else f"{thought}\n{own}"


def _parting(meter: LintBudget, prompt: str, last: str) -> str:
    """Return the text from the first token on that is not the prompt's."""
    found = meter.encoded(last)
    at = common_prefix(meter.encoded(prompt).ids, found.ids)
    return last[found.offsets[at][0] :] if at < len(found.ids) else ""


def _last_word(text: str) -> str | None:
    return max((word for word in (ARGUMENT, SPOKEN) if word in text), key=text.rfind, default=None)


def _ids(
    play: Play, scene: ExampleConversation, texts: tuple[str, str, str], word: str, *, cut: bool
) -> Played:
    """Tokenize; the turn ends with the first id after its own words that ends turns."""
    before, turn, rendered = map(play.meter.encoded, texts)
    said, shown = _after(turn, texts[1], word), _after(rendered, texts[2], word)
    ended = next((i for i in range(said, len(turn.ids)) if turn.ids[i] in play.ends), len(turn.ids) - 1)
    size = said if cut else ended + 1
    found = Played(
        scene=scene,
        prompt=tuple(before.ids),
        sampled=tuple(turn.ids[:size]),
        rendered=tuple(rendered.ids),
        rest=max(size - said, 0),
        tail=tuple(rendered.ids[shown:]) if word in texts[2] else None,
        stopped=not play.ends.isdisjoint(turn.ids[size - 1 : size]),
    )
    return found if cut or found.stopped else _marked(play, found)


def _after(found: Encoding, text: str, word: str) -> int:
    """Return the place of the first id after the last place of a word."""
    end = text.rfind(word) + len(word)
    return next((i for i, (begin, _) in enumerate(found.offsets) if begin >= end), len(found.ids))


def _marked(play: Play, found: Played) -> Played:
    """Return a turn that stopped with what opens the next message, where the template closes none."""
    size = len(found.used)
    marker = found.rendered[size : size + 1]
    if found.rendered[:size] != found.used or not play.stops.intersection(marker):
        return found
    return evolve(found, sampled=found.sampled + marker, rest=found.rest + 1, stopped=True)


CONTEXT, SHOWN, COMPARED = 6, 12, 60
"""How many tokens are shown before the place and from it on; and how many are compared."""
ANCHOR = 3
"""So many ids in a row are no accident."""


def divergence(family: Family, found: Played) -> Divergence | None:
    """Return the first place, None where the render repeats all that was used."""
    at = common_prefix(found.used, found.rendered)
    if at == len(found.used):
        return None
    used, rendered = found.used[at : at + COMPARED], found.rendered[at : at + COMPARED]
    gone, new = _until_alike(used, rendered)
    return Divergence(
        at=at,
        before=tokens(family, found.used[max(at - CONTEXT, 0) : at]),
        used=tokens(family, used[:SHOWN]),
        rendered=tokens(family, rendered[:SHOWN]),
        in_prompt=at < len(found.prompt),
        dropped=family.decode(used[:gone]),
        added=family.decode(rendered[:new]),
        gone=gone,
        new=new,
    )


def _until_alike(used: tuple[int, ...], rendered: tuple[int, ...]) -> tuple[int, int]:
    """Return how many ids on each side stand before both agree again, for a few ids or up to the end.

    Something that is only left out, or only added, is likelier than one thing in the place of another.

    >>> _until_alike((7, 8, 5, 6, 2), (5, 6, 2, 1)), _until_alike((3, 2), (4, 5, 2))
    ((2, 0), (1, 2))
    """
    places = [(gone, new) for gone in range(len(used)) for new in range(len(rendered)) if gone or new]
    for gone, new in sorted(places, key=_cost):
        here = used[gone : gone + ANCHOR]
        if rendered[new : new + len(here)] == here:
            return gone, new
    return len(used), min(len(used), len(rendered))


def _cost(place: tuple[int, int]) -> int:
    return sum(place) * (2 if all(place) else 1)
