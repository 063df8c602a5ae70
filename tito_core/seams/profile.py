"""Profiles: the facts learned about a chat template, as data that can be saved.

A profile claims nothing that was not shown: each case says on how many renders it rests. A conversation that
is no known case is proven anew each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from ..errors import InputError
from ..ids import checked
from ..normalization.clean import says
from ..questions import Questions, Rendered, T, ask, ask_rendered, bounded, if_taken, in_parts, relayed
from ..refusal import Reason
from .case import TurnKind, case_of
from .close import Cut
from .history import OF_SYSTEM, akin_histories
from .prove import MOST, Proof, Taken, disagreement_questions, dropped_questions, first_taken, twice_longer
from .seam import SHORT, Seam, after, common_prefix, grown
from .turn import Environment, LocatedTurn, SampledTurn
from .turn_form import TurnForm

CERTIFIED_LOOPS: tuple[tuple[str, ...], ...] = ((), *((role,) for role in OF_SYSTEM))
"""What may stand between a tool result and a turn whose case is certified; see `SampledTurn.loop`."""
VERSION = 2
"""The version of a profile's form; other versions are rejected."""


class Mode(Enum):
    """The part of a conversation on which a tail depends."""

    FREE = "only the opening texts and the last user's message: short renders"
    HISTORY = "the whole history: one render of it, of which only the tail is tokenized"
    REFUSED = "it cannot be proven"


@attrs.frozen(kw_only=True)
class Recipe:
    """How to ask for the tail once, and how to recognize it in the answer.

    Attributes:
        place: Index of the call whose arguments hold the text to locate; None if the content does.
        as_object: Whether the arguments of calls are written as an object.
        past: Index of the short history that stands in for the real one.
        mark: The last ids of the text to locate; the tail follows them.
        rest: Ids between that text and the close; None if they depend on the call.
        close: What the close begins with.
        closed: How many ids close the turn before the next message opens.
        speaks: The generation prompt.
        unlike: Index of the first unlike history that the template takes.
        cut: Whether a rendered text cut at the text to locate has the same ids from there as the whole.
    """

    place: int | None
    as_object: bool
    past: int
    mark: tuple[int, ...]
    rest: tuple[int, ...] | None
    close: tuple[int, ...]
    closed: int
    speaks: tuple[int, ...]
    cut: bool
    unlike: int = 0


@attrs.frozen(kw_only=True)
class Case:
    """The certificate of one kind of turn before one shape of environment.

    Attributes:
        kind: The kind of turn.
        shape: The shape of what follows it (see `shape_of`).
        mode: What the tail depends on.
        recipe: How to ask for the tail; None if the case is refused.
        reason: Why the case is refused; None if it is not.
        detail: What was seen when it was refused.
        renders: On how many renders the certificate rests.
        histories: In how many unlike histories the tail was the same.
        rewritten: Whether rendering the turn as history changes what stood there when it was sampled.
    """

    kind: TurnKind
    shape: tuple[str, ...]
    mode: Mode
    recipe: Recipe | None = None
    reason: Reason | None = None
    detail: str = ""
    renders: int = 0
    histories: int = 0
    rewritten: bool = False


@attrs.frozen(kw_only=True)
class Facts:
    """Further facts about a template; None if unknown.

    Attributes:
        arguments: How it takes a call's arguments: `object`, `text`, `either`; None if it writes no calls.
        follows: The roles that may follow an assistant turn.
        grouped_results: Whether two results rendered together are more than each rendered alone.
        default_system: Whether a conversation without a system text gets one.
        random: Whether the same question had two answers.
        null_content: A content of None against an empty one: `same`, `differs` or `refused`.
        absent_content: A missing content against an empty one: `same`, `differs` or `refused`.
        parts_content: A list of one text part against its text: `same`, `differs` or `refused`.
        opens_thought: Whether the generation prompt continues in a way that a plain answer would not.
        drops_reasoning: Whether reasoning before the last user message is left out.
        trims: Whether white space around a content is left out.
        opening: The ids of a system text and a question, with the tools: how a conversation begins.
        openers: What opens a message of each role after an assistant turn, without the close.
    """

    arguments: str | None = None
    follows: tuple[str, ...] = ()
    grouped_results: bool | None = None
    default_system: bool | None = None
    random: bool = False
    null_content: str | None = None
    absent_content: str | None = None
    parts_content: str | None = None
    opens_thought: bool | None = None
    drops_reasoning: bool | None = None
    trims: bool | None = None
    opening: tuple[int, ...] = ()
    openers: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)


def _unique(_: Any, __: Any, cases: Sequence[Case]) -> None:
    if len({(case.kind, case.shape) for case in cases}) != len(cases):
        raise InputError("cases has two entries for one kind and shape: keep one")


def _is_known(_: Any, __: Any, version: object) -> None:
    if type(version) is not int or version != VERSION:
        raise InputError(
            f"version is {version!r:.20}, and this library reads {VERSION}: probe the template again"
        )


def _suffix(ids: Sequence[int]) -> tuple[int, ...]:
    return checked(ids, "suffix")


def _stop_ids(ids: Sequence[int]) -> tuple[int, ...]:
    return checked(ids, "stop_ids")


def _words(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(words)


@attrs.frozen(kw_only=True)
class Profile:
    """The learned facts about a chat template with one rendering (tools, template arguments).

    Attributes:
        version: The version of this form.
        suffix: The ids that close an assistant turn.
        stop_ids: The ids that end a turn, from the model's generation config.
        key: What it was rendered with (see `render_key`). With a key, it serves prompts of that key only.
        parts: Whether the template is asked with every text as a list of one part.
        words: Words that the template looks for in messages, as its source has them (see `TokenizeFn`).
        facts: What else the template does.
        cases: The certified cases.
        known: The cases by kind and shape; made from `cases`.

    Raises:
        InputError: The version is unknown, an id is invalid, or a case occurs twice.

    >>> plain = TurnKind(before="user", reasoning=False, calls=0, content="text")
    >>> Profile(suffix=(9, 2)).case(plain, ("user",))
    """

    version: int = attrs.field(default=VERSION, validator=_is_known)
    suffix: tuple[int, ...] = attrs.field(converter=_suffix)
    stop_ids: tuple[int, ...] = attrs.field(default=(), converter=_stop_ids)
    key: str | None = None
    parts: bool = False
    words: tuple[str, ...] = attrs.field(default=(), converter=_words)
    facts: Facts = attrs.field(factory=Facts)
    cases: tuple[Case, ...] = attrs.field(default=(), validator=_unique)
    known: Mapping[tuple[TurnKind, tuple[str, ...]], Case] = attrs.field(init=False, eq=False, repr=False)

    @known.default
    def _known(self) -> Mapping[tuple[TurnKind, tuple[str, ...]], Case]:
        return {(case.kind, case.shape): case for case in self.cases}

    @property
    def markers(self) -> tuple[int, ...]:
        """The stop ids that open the next role's message."""
        opening = {ids[0] for ids in self.facts.openers.values() if ids}
        return tuple(index for index in self.stop_ids if index in opening)

    def case(self, kind: TurnKind, shape: tuple[str, ...]) -> Case | None:
        """Return the case of a kind of turn before a shape of environment, None if it is unknown."""
        return self.known.get((kind, shape))

    def known_tail_questions(self, turn: SampledTurn, environment: Environment) -> Questions[Proof | None]:
        """Ask for the tail after `turn` if its case is known, and return None if it must be proven."""
        proof = yield from self.asked(self._known_tail(turn, environment))
        return attrs.evolve(proof, parts=True) if proof and self.parts else proof

    def asked(self, questions: Questions[T]) -> Questions[T]:
        """Ask `questions` in the form that the template takes."""
        return (yield from relayed(questions, in_parts) if self.parts else questions)

    def _known_tail(self, turn: SampledTurn, environment: Environment) -> Questions[Proof | None]:
        name = case_of(turn, environment)
        case = None if name is None else self.case(*name)
        if case is None or case.recipe is None:
            return None
        asking = _recognized(turn, environment, case.mode, case.recipe)
        return (yield from bounded(asking, MOST, None))

    def then(self, *cases: Case) -> Profile:
        """Return this profile with more cases; a case that is known already is replaced."""
        new = {(case.kind, case.shape) for case in cases}
        kept = [case for case in self.cases if (case.kind, case.shape) not in new]
        return attrs.evolve(self, cases=(*kept, *cases))


def _recognized(
    turn: SampledTurn, environment: Environment, mode: Mode, recipe: Recipe
) -> Questions[Proof | None]:
    """Ask as `recipe` says; return None if an answer is not what it predicts."""
    known = akin_histories(turn.after, turn.history) if turn.history_known else turn.likely
    # DeepSeek-V3 and Cohere's templates read all of the history: no other stands in for it.
    sure = turn.history_known and not turn.others
    if not 0 <= recipe.past < len(known) or (mode is Mode.HISTORY and not sure):
        return None
    past = turn.past if mode is Mode.HISTORY else known[recipe.past]
    form = TurnForm(turn.message, recipe.place, recipe.as_object)
    # A message that says the stand-in word makes the cut ambiguous: templates repeat earlier texts, too.
    since = None if not recipe.cut or says((*past, *environment), SHORT) else SHORT
    asking = ask_rendered((*past, form.write(SHORT), *environment), since=since)
    found = yield from if_taken(asking, Rendered(None, ()))
    ids = tuple(found.ids)
    tail, rest = recognize(recipe, ids), after(recipe.mark, ids) or ()
    if tail is None:
        return None
    seam = Seam(ids, len(ids) - len(rest), text=recipe.mark)
    located = LocatedTurn(context=past, form=form, environment=environment, seam=seam, since=since)
    cut = Cut(len(rest) - len(tail), recipe.closed)
    # Mistral-Nemo writes a call's id after its arguments, whatever it is: the close is looked for.
    if recipe.rest is None and not (yield from _closes_call(located, recipe, cut.place)):
        return None
    proof = Proof(located=located, cut=cut, generation_prompt=len(recipe.speaks))
    if mode is Mode.HISTORY:  # the tail is that of the real history, and may lose a message as any other
        return proof if (yield from dropped_questions(located)) is None else None
    text = None if since is None else found.text
    return proof if (yield from _depends_on_nothing_else(turn, proof, recipe, text)) else None


def _closes_call(located: LocatedTurn, recipe: Recipe, place: int) -> Questions[bool]:
    """Return whether the close at `place` stands there with nothing after the call, or begins right there.

    A template may close some calls otherwise: then the close that was found is that of a new message.
    """
    asking = ask(located.messages(()), add_generation_prompt=False, since=located.since)
    alone = after(recipe.mark, (yield from if_taken(asking, ()))) or ()
    shared = common_prefix(alone, located.seam.tail)
    return place + len(recipe.close) <= shared or place == shared == len(alone)


def _depends_on_nothing_else(
    turn: SampledTurn, proof: Proof, recipe: Recipe, text: str | None
) -> Questions[bool]:
    """Return whether an unlike history gives the same tail, in which every new message leaves a trace.

    The words of the new messages may change what the template does, so that no certificate answers for them.
    Both are asked at once, and one by one only where ids merge at the end of a message. `text` is the one of
    the tail, if it is known: then no ids are needed.
    """
    located = proof.located
    usual = turn.history_known and not (turn.others or turn.reused or turn.switched or turn.said)
    if usual and turn.loop in CERTIFIED_LOOPS:
        environment = located.environment
        count = len(environment)
        longer = attrs.evolve(located, environment=twice_longer(environment, range(count)))
        taken = Taken(first=recipe.unlike)
        found = yield from first_taken(longer, turn.unlike.histories, taken=taken, ids=text is None)
        if found is not None and _grew(located.seam.tail, text, found, recipe, count):
            return True
    return (yield from disagreement_questions(turn, proof)) is None


def _grew(tail: tuple[int, ...], text: str | None, longer: Rendered, recipe: Recipe, count: int) -> bool:
    """Return whether a longer render has the tail, and more of each of `count` messages."""
    if text is not None and longer.text is not None:
        return grown(text.partition(SHORT)[2], longer.text.partition(SHORT)[2], count)
    rest = after(recipe.mark, longer.ids)
    return rest is not None and grown(tail, rest, count)


def recognize(recipe: Recipe, ids: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the tail in the answer `ids`, None if it is not what `recipe` predicts.

    >>> recipe = Recipe(place=None, as_object=False, past=0, mark=(50,), rest=(), close=(2,), closed=1,
    ...                 speaks=(1, 9), cut=False)
    >>> recognize(recipe, (1, 8, 50, 2, 1, 7, 65, 2, 1, 9))
    (2, 1, 7, 65, 2, 1, 9)
    >>> recognize(recipe, (1, 8, 50, 50, 2, 1, 9)) is None
    True
    """
    rest = after(recipe.mark, ids)
    begin = -1 if rest is None else _close_begins(recipe, rest)
    if rest is None or begin < 0:
        return None
    tail = rest[begin:]
    end = len(tail) - len(recipe.speaks)
    whole = end >= len(recipe.close) and tail[: len(recipe.close)] == recipe.close
    return tail if whole and tail[end:] == recipe.speaks else None


def _close_begins(recipe: Recipe, rest: tuple[int, ...]) -> int:
    """Return the index of the close in what follows the text, -1 if it does not occur."""
    if recipe.rest is not None:
        return len(recipe.rest) if rest[: len(recipe.rest)] == recipe.rest else -1
    size = len(recipe.close)
    return next((i for i in range(len(rest) - size + 1) if rest[i : i + size] == recipe.close), -1)
