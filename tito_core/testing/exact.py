"""Assert that a prompt or a training row is token-exact."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import accumulate, takewhile
from math import isclose, isnan
from textwrap import fill
from typing import Any, NoReturn

import attrs

from ..errors import InputError
from .arguments import check_functions, check_messages, check_sampled, numbers
from .expected import Part, Render, Template, expected_parts, shared_length
from .mistakes import USUALLY, Difference, Mistake, mistake_in_ids
from .sampled_turn import SampledTurn, flat_ids
from .toys import Message, Toy


class NotTokenExactError(AssertionError):
    """Ids, a mask or log-probabilities are not those that the engine sampled and the template writes.

    Attributes:
        mistake: What is usually the cause.
        turn: The number of the sampled turn that it concerns, from 1; 0 for the first prompt.
        place: The first place that differs.
    """

    def __init__(self, mistake: Mistake, turn: int, place: int, text: str) -> None:
        """Keep the facts beside the text."""
        super().__init__(text)
        self.mistake, self.turn, self.place = mistake, turn, place


def assert_token_exact(  # noqa: PLR0913  # the last four are optional
    ids: Iterable[int] | None,
    messages: Sequence[Message],
    sampled: Sequence[Sequence[int] | SampledTurn | None],
    render: Render,
    decode: Callable[[list[int]], str],
    *,
    mask: Iterable[float] | None = None,
    logprobs: Iterable[float | None] | None = None,
    prompt_ids: Iterable[int] | None = None,
    stop_ids: Collection[int] = (),
) -> None:
    """Assert that `ids` hold every sampled turn unchanged, and between the turns what the template writes.

    `ids` are a next prompt if `messages` end with a new message, and a training row if they end with a
    sampled turn. What the template writes is found in renders of `messages`, apart from the code that
    stitches. The error shows the turn, the first difference, and what usually causes it. It quotes the
    conversation.

    Args:
        ids: What your code made: a list, an array or a flat tensor. None, for code that refused, fails.
        messages: The conversation that they stand for, in the form that `render` takes.
        sampled: For each assistant message in `messages`, in order: the ids that the engine sampled, or a
            `SampledTurn`; None for one that no engine sampled, such as an example in the first prompt.
        render: Renders messages to ids, with the model's own chat template and tokenizer, your tools and
            template arguments: `render(messages, add_generation_prompt=True)`.
        decode: Returns the text of ids with special tokens, such as `tokenizer.decode`.
        mask: The loss mask: for each of `ids`, or for those after the first prompt.
        logprobs: Log-probabilities, likewise; 0, None or NaN where nothing was sampled.
        prompt_ids: The first prompt as it was sent; None takes what `render` writes.
        stop_ids: The ids at which the engine stops. Give them if the template's close begins with text, or if
            turns may be cut short.

    Raises:
        NotTokenExactError: An `AssertionError` that says what differs.
        CannotLocateError: The template hides where a turn ends, so that nothing can be asserted.
        InputError: An argument does not fit the others.

    >>> from tito_core.testing import assert_token_exact
    >>> from tito_core.testing.toys import toy_named
    >>> chatml = toy_named("chatml")
    >>> hello = {"role": "user", "content": "Hi"}
    >>> ids = [*chatml([hello], add_generation_prompt=True), *chatml.encode("ab<|im_end|>")]
    >>> row = [hello, {"role": "assistant", "content": "ab"}]
    >>> assert_token_exact(ids, row, [ids[-2:]], chatml, chatml.decode, mask=[0] * (len(ids) - 2) + [1, 1])
    >>> rendered = chatml.encode("a") + chatml.encode("b") + ids[-1:]  # the engine sampled two ids for "ab"
    >>> try:
    ...     assert_token_exact(ids, row, [rendered], chatml, chatml.decode)
    ... except AssertionError as error:
    ...     print(str(error).splitlines()[0])
    turn 1 of 1, messages[1]: RERENDERED at place 10
    """
    __tracebackhide__ = True  # pytest shows the lines of the test
    check_messages(messages)
    check_sampled(sampled)
    check_functions(render, decode)
    stops = flat_ids(stop_ids, "stop_ids") or (render.stop_ids if isinstance(render, Toy) else ())
    template = Template(render, decode, frozenset(stops))
    turns = _turns(messages, sampled)
    given = None if prompt_ids is None else flat_ids(prompt_ids, "prompt_ids")
    check = _Check(template, messages, turns)
    if ids is None:
        check.refused()
    pieces = check.pieces(tuple(expected_parts(template, messages, turns, given)), flat_ids(ids, "ids"))
    if mask is not None:
        check.mask(pieces, numbers(mask, "mask"))
    if logprobs is not None:
        check.logprobs(pieces, numbers(logprobs, "logprobs"))


def _turns(
    messages: Sequence[Message], sampled: Sequence[Sequence[int] | SampledTurn | None]
) -> dict[int, SampledTurn]:
    """Return what was sampled, by the index of its message."""
    __tracebackhide__ = True
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if len(places) != len(sampled):
        raise InputError(
            f"sampled has {len(sampled)} entries for {len(places)} assistant messages (at {places}):"
            " give the ids of each, and None for one that no engine sampled"
        )
    return {
        place: turn if isinstance(turn, SampledTurn) else SampledTurn(flat_ids(turn, f"sampled[{number}]"))
        for number, (place, turn) in enumerate(zip(places, sampled, strict=True))
        if turn is not None
    }


@attrs.frozen
class _Piece:
    """Ids that stand where they must, and the part that they are."""

    part: Part
    ids: tuple[int, ...]


WIDTH = 100
"""Columns of the text after the table."""
NUMBER = "a number"
"""Stands for a log-probability of which only the place is known."""


@attrs.frozen
class _Check:
    """The arguments of one call."""

    template: Template
    messages: Sequence[Message]
    turns: dict[int, SampledTurn]

    def pieces(self, parts: Sequence[Part], ids: tuple[int, ...]) -> list[_Piece]:
        """Compare part by part, and return what stands where."""
        __tracebackhide__ = True
        found: list[_Piece] = []
        start = 0
        for part in parts:
            best = max(part.choices, key=partial(shared_length, ids[start:]))
            same = shared_length(best, ids[start:])
            if same < len(best):
                mistake = mistake_in_ids(self.template, self.messages, part, ids, (start, start + same))
                self._fail(mistake, part, Difference((*ids[:start], *best), ids, start + same), texts=True)
            start += len(best)
            found.append(_Piece(part, best))
        if len(ids) > start:
            self._fail(Mistake.LONGER, parts[-1], Difference(ids[:start], ids, start), texts=True)
        return found

    def refused(self) -> NoReturn:
        """Raise the error for code that made no ids."""
        __tracebackhide__ = True
        turn = len(self.turns)
        where = f"after turn {turn} of {turn}" if turn else "the first prompt"
        text = f"{where}: {Mistake.REFUSED.name}: ids is None\n{_advice(Mistake.REFUSED)}"
        raise NotTokenExactError(Mistake.REFUSED, turn, 0, text)

    def mask(self, pieces: Sequence[_Piece], given: Sequence[float | None]) -> None:
        """Compare a mask with where sampled ids stand."""
        __tracebackhide__ = True
        right = [float(piece.part.sampled) for piece in pieces for _ in piece.ids]
        self._values(pieces, right, given, (Mistake.MASK, Mistake.MASK_SHIFTED))

    def logprobs(self, pieces: Sequence[_Piece], given: Sequence[float | None]) -> None:
        """Compare log-probabilities with what the engine returned, where that is known."""
        __tracebackhide__ = True
        right = [value for piece in pieces for value in self._logprobs(piece)]
        self._values(pieces, right, given, (Mistake.LOGPROBS, Mistake.LOGPROBS_SHIFTED))

    def _logprobs(self, piece: _Piece) -> Sequence[object]:
        """Return the log-probabilities of a piece: none for what was not sampled."""
        if not piece.part.sampled:
            return [None] * len(piece.ids)
        known = self.turns[piece.part.message].logprobs
        return [NUMBER] * len(piece.ids) if known is None else known

    def _values(
        self,
        pieces: Sequence[_Piece],
        right: list[Any],
        given: Sequence[float | None],
        mistakes: tuple[Mistake, Mistake],
    ) -> None:
        """Compare values with those that the ids must have; some callers give none for the first prompt."""
        __tracebackhide__ = True
        prompt = len(pieces[0].ids)
        first = prompt if len(given) == len(right) - prompt else 0
        expected = right[first:]
        same = sum(1 for _ in takewhile(bool, map(_alike, expected, given)))
        if same < len(expected) or same < len(given):
            moved = len(expected) == len(given) and any(_shifted(expected, given, by) for by in (1, -1))
            part, found = _part_at(pieces, first + same), Difference(expected, given, same)
            self._fail(mistakes[moved], part, found, advice=_count(mistakes[0], right, given, prompt))

    def _fail(
        self, mistake: Mistake, part: Part, found: Difference, *, texts: bool = False, advice: str = ""
    ) -> NoReturn:
        """Raise the error, with the difference side by side, and what to do (by default, the usual cause)."""
        __tracebackhide__ = True
        turn = sorted(self.turns).index(part.message) + 1 if part.message >= 0 else 0
        where = f"turn {turn} of {len(self.turns)}, messages[{part.message}]" if turn else "the first prompt"
        after = "" if part.sampled or not turn or not texts else "after "
        raise NotTokenExactError(
            mistake,
            turn,
            found.place,
            f"{after}{where}: {mistake.name} at place {found.place}\n"
            f"{found.table(self.template.text if texts else None)}\n"
            f"{advice or _advice(mistake)}",
        )


def _advice(mistake: Mistake) -> str:
    """Return what usually causes a mistake, in lines."""
    return fill(f"usually: {USUALLY[mistake]}", WIDTH)


def _count(mistake: Mistake, right: Sequence[object], given: Sequence[object], prompt: int) -> str:
    """Return what is wrong with the number of values; empty if it fits the ids."""
    after = len(right) - prompt
    if len(given) in (len(right), after):
        return ""
    counted = f"{mistake.name.lower()} has {len(given)} value{'s' * (len(given) != 1)} for {len(right)} ids"
    return fill(f"{counted}: give one for each, or one for each of the {after} after the first prompt", WIDTH)


def _part_at(pieces: Sequence[_Piece], place: int) -> Part:
    """Return the part to which a position belongs."""
    ends = accumulate(len(piece.ids) for piece in pieces)
    return next((piece.part for piece, end in zip(pieces, ends, strict=True) if place < end), pieces[-1].part)


def _alike(expected: object, found: float | None) -> bool:
    """Return whether a value is as expected: numbers may have been stored with less precision.

    >>> _alike(None, 0.0), _alike(NUMBER, 0.0), _alike(-0.1, -0.10000000149), _alike(NUMBER, None)
    (True, True, True, False)
    """
    absent = found is None or isnan(found)
    if expected is None:
        return absent or found == 0
    if absent or found is None:
        return False
    return isinstance(expected, str) or isclose(float(str(expected)), found, rel_tol=1e-4, abs_tol=1e-6)


def _shifted(expected: Sequence[object], found: Sequence[float | None], by: int) -> bool:
    """Return whether each value stands `by` places later than it must, at least inside of turns."""
    first, last = max(by, 0), len(expected) + min(by, 0)
    pairs = [(expected[place - by], expected[place], found[place]) for place in range(first, last)]
    inside = [_alike(value, here) for value, there, here in pairs if _is_known(value) and there is not None]
    return all(_alike(value, here) for value, _, here in pairs) or (bool(inside) and all(inside))


def _is_known(value: object) -> bool:
    """Return whether a value can be compared."""
    return value is not None and value != NUMBER
