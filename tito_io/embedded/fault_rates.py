"""What goes wrong, and how often: the rates of everything a trainer has to survive."""

from __future__ import annotations

from attrs import field, frozen, validators


def _rate(default: float) -> float:
    """Return a field that holds a share of all turns, from 0 (never) to 1 (always)."""
    between = validators.and_(validators.ge(0.0), validators.le(1.0))
    found: float = field(default=default, validator=between, kw_only=True)
    return found


@frozen
class Habits:
    """How often the sampler does what, each from 0 (never) to 1 (always).

    As they stand, fifty turns show every habit at least once while three turns in four stop cleanly.

    >>> Habits(odd_stops=1.0).odd_stops, TIDY.odd_stops
    (1.0, 0.0)
    """

    drifts: float = _rate(0.8)
    """Ids that are not the ones a tokenizer gives for their text: `encode(decode(ids)) != ids`."""
    thinks: float = _rate(0.6)
    """A thought with words in it, where the prompt leaves room for one; else the empty thought."""
    calls: float = _rate(0.6)
    """A tool call where the prompt offers tools and a user spoke last; half as often after tool results."""
    twice: float = _rate(0.25)
    """A second call in the same turn, given a first."""
    spells_tags: float = _rate(0.2)
    """The tag of a call written with the ids of ordinary text instead of the token that is the tag."""
    malformed: float = _rate(0.12)
    """A call that is not the JSON it should be."""
    loose: float = _rate(0.3)
    """Spaces and newlines that a template trims: around thoughts, before calls, at the very end."""
    spells_special: float = _rate(0.1)
    """Text that reads like a special token, in ordinary ids."""
    runs_on: float = _rate(0.08)
    """No end at all: only a limit stops it, `finish_reason` says `length`."""
    odd_stops: float = _rate(0.08)
    """The end of all text where the end of the turn belongs."""
    half_characters: float = _rate(0.1)
    """A last character of which some bytes are missing."""
    silent: float = _rate(0.04)
    """Nothing but the end of the turn."""
    bunches: float = _rate(0.15)
    """Several ids in one event of a stream."""


TIDY = Habits(
    drifts=0.0,
    spells_tags=0.0,
    malformed=0.0,
    loose=0.0,
    spells_special=0.0,
    runs_on=0.0,
    odd_stops=0.0,
    half_characters=0.0,
    silent=0.0,
    bunches=0.0,
)
"""It thinks, calls and answers, and does nothing wrong: its ids are the ones that a template writes."""
