"""Prove what the template writes between a sampled turn and the place where the model speaks next.

The kernel asks in short stand-in conversations and believes an answer only with proof. The turn's text is
located by difference; an unlike conversation, and one akin to the real history, must give the same tail; no
new message may vanish. What differs between them is refused. What depends on anything else in the history,
such as the number of its messages, cannot be known at this price (see docs/limits.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import attrs

from ..errors import TemplateRefused
from ..media.ranges import MediaRange, Placeholders
from ..message import Message, Messages, as_id, called_ids, texts_in
from ..normalization.clean import clean, lengthened
from ..normalization.media import Medium
from ..questions import Questions, Rendered, ask, ask_rendered, in_parts, relayed
from ..refusal import Reason, Refusal
from .seam import OTHER, SHORT, Seam, after, common_prefix, seam_questions
from .stand_in import (
    ANSWER,
    LAST,
    NO_KEY,
    OF_SYSTEM,
    ON,
    SWITCHED,
    SYSTEM,
    USER,
    WORDS,
    Context,
    TurnForm,
    Turns,
    akin_histories,
    calls_of,
    contexts,
    forms,
    in_loop,
    plainly_named,
)
from .suffix import takes_parts_questions, takes_texts_questions

Environment = tuple[dict[str, Any], ...]
RETRIED = (Reason.TEMPLATE_REFUSED, Reason.SWALLOWED)
"""Refusals that texts as lists of one part may overcome."""
BEFORE = ("user", "tool")
"""Roles of the message before a turn that templates tell apart, in turns that agents take."""
MOST_BETWEEN = 64
"""How many messages before a turn are looked at for the tool loop that it may stand in."""
MOST_SHOWN = 64
"""Media that a stand-in history shows at most."""
HISTORY = "the tail depends on the history before it"
UNLOCATED = Refusal(Reason.UNPROVEN_TAIL, "the template loses, repeats or merges the turn's text")


@attrs.frozen(kw_only=True)
class SampledTurn:
    """The sampled turn that a bridge follows, as far as it is known.

    Attributes:
        message: The turn as the prompt restates it; the likeliest kind of turn if it is unknown.
        after: Role of the message before it.
        history: What a template may read in the real history: its opening system messages, and the last
            developer's and user's.
        history_known: Whether `after` and `history` are those of the real history.
        stop: The id that the turn ended with; None if it was cut short.
        suffix: The template's turn close.
        stops: The ids that are known to end a turn.
        others: Turns of other kinds that it may be: the tail must be theirs, too.
        reused: Ids of its calls, and of calls in new messages, that an earlier call may have, too; None for
            a call without one.
        switched: Roles of earlier messages, after the opening, that may have a switch.
        prompt: The whole conversation.
        place: Position of the turn in it.
        media: The media of the new messages.
        placeholders: What the template writes for media; None if there may be none, before the turn or after.
        shown: How many media stand before the turn.
    """

    message: dict[str, Any]
    stop: int | None
    after: str = "user"
    history: Environment = ()
    history_known: bool = True
    suffix: tuple[int, ...] = ()
    stops: tuple[int, ...] = ()
    others: tuple[dict[str, Any], ...] = ()
    reused: tuple[Any, ...] = ()
    switched: frozenset[str] = frozenset()
    prompt: Sequence[Message] = ()
    place: int = 0
    media: tuple[Medium, ...] = ()
    placeholders: Placeholders | None = None
    shown: int = 0

    @property
    def past(self) -> tuple[Message, ...]:
        """All messages before the turn; read only where the tail is known to depend on them."""
        return clean(self.prompt[: self.place])

    @property
    def loop(self) -> tuple[str, ...]:
        """The roles between a tool result and the turn, where its loop may go on; one for several alike.

        A plain answer ends it, unless the turn follows it at once: models and clients add notes.
        """
        peek = self.prompt.peek if isinstance(self.prompt, Messages) else self.prompt.__getitem__
        roles: list[str] = []
        for place in reversed(range(max(self.place - MOST_BETWEEN, 0), self.place)):
            role = peek(place)["role"]
            if role not in LAST:
                return tuple(roles[::-1])
            if role == "assistant" and (peek(place).get("tool_calls") or "user" in roles):
                break
            if roles[-1:] != [role]:
                roles.append(role)
        return ()

    @property
    def modalities(self) -> tuple[str, ...]:
        """What the conversation may show, before the turn or after."""
        return tuple(modality for modality, _ in self.placeholders.runs) if self.placeholders else ()

    @property
    def unlike(self) -> Sequence[Context]:
        """Histories without a text of the likely ones; with as many media as the real one may have."""
        pasts = contexts(self.after, switched=self.switched)
        if not self.modalities:
            return pasts.unlike
        return pasts.showing(self.modalities, min(max(self.shown, 1), MOST_SHOWN))

    @property
    def likely(self) -> Sequence[Context]:
        """The shortest histories that the turn may stand in."""
        opened = bool(self.history) and self.history[0]["role"] != "user"
        return contexts(self.after, opened=opened).likely

    def histories(
        self, call_ids: Collection[Any] = (), names: Collection[str] = ()
    ) -> Iterator[tuple[bool, Sequence[Sequence[Context]]]]:
        """Yield groups of histories that must give one tail, each with whether one of it must be taken.

        Of each member of a group the first history that is taken counts. An unlike one shares no text, so
        that a tail which repeats earlier text is detected. Other ones call tools by the ids that may have
        been called before, and in both ways without an id; or tools of these `names`. One
        akin to the real one has its system texts and its last user message, since templates look for switches
        such as `/no_think`. Where there may be media, one shows some: a template may number them.
        """
        known, switched = self.history_known, self.switched
        for role in (self.after,) if known else (*BEFORE, *OF_SYSTEM):
            yield known, (contexts(role, switched=switched).unlike,)
        if known and self.loop:
            yield True, (in_loop(self.loop, switched=switched),)
        if switched and known:
            yield True, (contexts(self.after, switched=switched, words=ON).unlike,)
        roles = (self.after,) if known else BEFORE
        for ways in _called_before({*call_ids, *self.reused}):
            group = [_calling(role, way, switched) for way in ways for role in roles]
            loops = ways if known and self.loop else ()
            yield True, [*group, *(in_loop(self.loop, turns, switched) for way in loops for turns in way)]
        for name in names:
            yield True, [contexts(role, switched=switched, name=name).calling for role in roles]
        for modality in self.modalities:
            pasts = contexts(self.after, switched=switched)
            yield known, (pasts.showing((modality,)),)
            if self.shown:
                yield known, (pasts.showing_many(modality, min(self.shown, MOST_SHOWN)),)
        if known:
            yield True, (akin_histories(self.after, self.history),)
        else:
            yield from ((False, ((history,),)) for history in SWITCHED)


Ways = tuple[Turns, ...]
"""Ways in which calls of the same ids may be spread over turns; the first that a template takes counts."""


def _called_before(ids: set[Any]) -> Iterator[Sequence[Ways]]:
    """Yield groups of calls that may stand before a turn, each as its members.

    Named ones are called in one turn, and in a turn each where a template takes no more. A missing id may be
    None, or have no key: a template may take one of them alone, as it does of the real turn.
    """
    named = tuple(sorted((one for one in ids if one is not None), key=str))
    if named:
        yield [((named,), tuple((one,) for one in named))]
    if None in ids:
        yield [(((None,),),), (((NO_KEY,),),)]


def _calling(role: str, ways: Ways, switched: frozenset[str]) -> Sequence[Context]:
    return [one for turns in ways for one in contexts(role, turns, switched=switched).calling]


@attrs.frozen(kw_only=True)
class LocatedTurn:
    """A way to ask in which the turn's text can be located.

    Attributes:
        context: The short history before the turn.
        form: How the turn is written.
        environment: The new messages after it.
        seam: The render, and where the turn's text ends in it.
        since: The text from which on the render is needed; None for all of it.
    """

    context: Sequence[Message]
    form: TurnForm
    environment: Environment
    seam: Seam
    since: str | None = None

    def messages(self, environment: Environment, text: str = SHORT) -> tuple[Message, ...]:
        """Return the conversation to render, with another environment or text."""
        return (*self.context, self.form.write(text), *environment)

    def unlike(self, context: Context, turn: dict[str, Any] | None = None) -> tuple[Message, ...]:
        """Return the conversation with another history and other words wherever they must not matter.

        Another `turn` says the same everywhere: of its calls the template may write the first alone.
        """
        said = self.seam.said
        if turn is None:
            return (*context, self.form.write(said, WORDS[1]), *self.environment)
        return (*context, attrs.evolve(self.form, turn=turn).write(said, said), *self.environment)


@attrs.frozen
class Cut:
    """Where in a seam's tail the turn's own text is over.

    Attributes:
        place: Index of the first id of the close, or of the next opener where nothing closes the turn.
        closed: How many ids from there on close the turn.
    """

    place: int
    closed: int


@attrs.frozen(kw_only=True)
class Proof:
    """A proven tail.

    Attributes:
        located: The way in which it was asked.
        cut: Where in the seam's tail the turn's own text is over.
        generation_prompt: How many ids at the end are the generation prompt.
        parts: Whether every text is asked as a list of one part.
        media: Where the media of the new messages stand in `ids`.
    """

    located: LocatedTurn
    cut: Cut
    generation_prompt: int
    parts: bool = False
    media: tuple[MediaRange, ...] = ()

    @property
    def ids(self) -> tuple[int, ...]:
        """The close, the environment and the generation prompt."""
        return self.located.seam.tail[self.cut.place :]

    def ends(self, ids: Sequence[int]) -> bool:
        """Return whether another render ends with these ids, and with what stands before them: text and call.

        Where a template writes something between the turn and the next message in some histories only, its
        last id may be that of a text or of a call, too.
        """
        return self.located.seam.ends(ids)


def prove_questions(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn`: a bounded number of questions, each as long as what is new."""
    proof = yield from _proved(turn, environment)
    if not isinstance(proof, Refusal) or (proof.reason not in RETRIED and proof != UNLOCATED):
        return proof
    in_texts = yield from takes_texts_questions()
    if in_texts or not (yield from takes_parts_questions()):
        return proof
    found = yield from relayed(_proved(turn, environment), in_parts)
    return attrs.evolve(found, parts=True) if isinstance(found, Proof) else proof


def _proved(turn: SampledTurn, environment: Environment) -> Questions[Proof | Refusal]:
    proof = yield from show_questions(turn, environment, turn.likely)
    if isinstance(proof, Refusal) or (yield from agrees_questions(turn, proof)):
        return proof
    return Refusal(Reason.UNPROVEN_TAIL, HISTORY)


def show_questions(
    turn: SampledTurn,
    environment: Environment,
    histories: Sequence[Context],
    turn_forms: Sequence[TurnForm] | None = None,
) -> Questions[Proof | Refusal]:
    """Ask for the tail after `turn` in the first of `histories` that works; others may give another tail.

    `turn_forms` are the ways to write the turn. The first in which its text can be located counts.
    """
    located = yield from _locate(environment, histories, turn_forms or forms(turn.message))
    if isinstance(located, Refusal):
        return located
    cut = yield from _cut(turn, located)
    if isinstance(cut, Refusal):
        return cut
    lost = yield from swallowed_questions(located)
    if lost is not None:
        return lost
    prompt = yield from _generation_prompt(located)
    return Proof(located=located, cut=cut, generation_prompt=min(prompt, len(located.seam.tail) - cut.place))


def _locate(
    environment: Environment, histories: Sequence[Context], turn_forms: Sequence[TurnForm]
) -> Questions[LocatedTurn | Refusal]:
    """Return the first way to write the turn in which its text can be located."""
    refusal = Refusal(Reason.TEMPLATE_REFUSED)
    for context in histories:
        for form in turn_forms:
            try:
                seam = yield from seam_questions(form.within(context, environment))
            except TemplateRefused as refused:
                found = Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
            else:
                if seam is not None:
                    return LocatedTurn(context=context, form=form, environment=environment, seam=seam)
                found = UNLOCATED
            # A form that rendered says more than one that the template rejected.
            refusal = found if refusal.reason is Reason.TEMPLATE_REFUSED else refusal
    return refusal


def agrees_questions(turn: SampledTurn, proof: Proof) -> Questions[bool]:
    """Return whether other histories give the same tail, and other turns where the turn is unknown.

    Another turn may have another rest of its call, the same in all histories. A turn that the template takes
    in none of them, while it takes another, cannot be the real one.
    """
    orphans, names = _orphans(turn, proof.located.environment), _unnamed(proof.located.environment)
    for message in (None, *turn.others):
        same = {proof.located.seam.tail[: proof.cut.place]} if message is None else set[tuple[int, ...]]()
        rests, taken = set[tuple[int, ...] | None](same), False
        for needed, group in turn.histories(orphans, names):
            found = yield from _rests(proof, group, message)
            rests |= found
            if None in rests or len(rests) > 1:
                return False
            taken |= bool(found)
            if needed and not found and message is None:
                return False
        if not taken and message is None:
            return False
    return True


def _rests(
    proof: Proof, group: Sequence[Sequence[Context]], message: dict[str, Any] | None
) -> Questions[set[tuple[int, ...] | None]]:
    """Return what the members of a group have before the tail, None for one without it."""
    seam, rests = proof.located.seam, set[tuple[int, ...] | None]()
    for histories in group:
        found = yield from first_taken(proof.located, histories, message)
        if found is not None:
            rests.add(seam.rest(found.ids, proof.cut.place))
    return rests


def first_taken(
    located: LocatedTurn,
    histories: Iterable[Context],
    message: dict[str, Any] | None = None,
    *,
    ids: bool = True,
) -> Questions[Rendered | None]:
    """Render with other words, or as another turn, in the first of `histories` that the template takes.

    `ids` is whether they are needed beside a text.
    """
    for context in histories:
        try:
            return (yield from ask_rendered(located.unlike(context, message), since=located.since, ids=ids))
        except TemplateRefused:
            continue
    return None


def swallowed_questions(located: LocatedTurn) -> Questions[Refusal | None]:
    """Refuse if the text of a new message leaves no trace after the turn.

    A template may drop it, or collect such texts in front of the conversation. All messages without calls are
    lengthened at once, each by another number of words; they are tried one by one only if that adds more or
    fewer ids than the first one's share suggests. Calls are lengthened in other words, which have no share.
    """
    alike = {i: i + 1 for i, message in enumerate(located.environment) if not calls_of(message)}
    added = yield from _added(located, alike)
    first = next(iter(alike), 0)
    one = (yield from _added(located, (first,))) if len(alike) > 1 else added
    shown = alike if one and added and added * alike[first] == one * sum(alike.values()) else {}
    for position in range(len(located.environment)):
        if position not in shown and (yield from _added(located, (position,))) == 0:
            return _unfollowed(located.environment[position])
    return None


def _unfollowed(message: dict[str, Any]) -> Refusal:
    """Return why more text in a message adds nothing."""
    role, content = message["role"], message.get("content")
    if content and texts_in(message) == []:
        form = f"the content of a {role} message is of type {type(content).__name__}, and has no texts"
        return Refusal(Reason.UNPROVEN_TAIL, form)
    return Refusal(Reason.SWALLOWED, f"a {role} message leaves no trace after the turn")


def _added(located: LocatedTurn, positions: Iterable[int]) -> Questions[int | None]:
    """Return how many ids more text in some messages adds after the turn; None if the template rejects it."""
    try:
        ids = yield from ask(
            located.messages(lengthened(located.environment, positions, graded=True)), since=located.since
        )
    except TemplateRefused:
        return None
    elsewhere = common_prefix(ids, located.seam.ids) < located.seam.place
    return 0 if elsewhere or ids == located.seam.ids else len(ids) - len(located.seam.ids)


def _generation_prompt(located: LocatedTurn) -> Questions[int]:
    """Return how many ids of the tail appear only because the model is to speak next."""
    try:
        ids = yield from ask(located.messages(located.environment), add_generation_prompt=False)
    except TemplateRefused:
        return 0
    shared = common_prefix(located.seam.ids, ids)
    return len(located.seam.ids) - shared if shared > located.seam.place else 0


def _cut(turn: SampledTurn, located: LocatedTurn) -> Questions[Cut | Refusal]:
    """Return where in the tail the turn's own text is over and its close begins.

    After content that is the first id. After a tool call the rest of the call comes first.
    """
    tail, size = located.seam.tail, len(turn.suffix)
    if calls_of(turn.message) and not (yield from _calls_unwritten(located)):
        return (yield from _call_cut(turn, located))
    if tail[:size] == turn.suffix:
        return Cut(0, (yield from _closed(turn, located)))
    if tail and tail[0] in (turn.stop, *turn.stops):
        return Cut(0, 0)
    return Refusal(Reason.CLOSE_MISMATCH, "after the turn the template does not write the suffix")


def _calls_unwritten(located: LocatedTurn) -> Questions[bool]:
    """Return whether the template writes a turn's content and leaves out its calls."""
    if located.form.place is not None:
        return False
    bare = {name: value for name, value in located.form.turn.items() if name != "tool_calls"}
    said = attrs.evolve(located, form=attrs.evolve(located.form, turn=bare))
    try:
        ids = yield from ask(said.messages(located.environment, located.seam.said), since=located.since)
    except TemplateRefused:
        return False
    return located.seam.ends(ids)


def _closed(turn: SampledTurn, located: LocatedTurn) -> Questions[int]:
    """Return how many ids close a turn: those of the suffix, or all up to a known stop after them.

    Some templates write their stop only once something follows, where the suffix does not show it.
    """
    size = len(turn.suffix)
    if not turn.stops or not set(turn.stops).isdisjoint(turn.suffix):
        return size
    shared = yield from _always_written(located)
    if shared is None or _known_stops(shared, turn):  # two roles may share an opener; an assistant's differs
        spoken = yield from _before(located, ANSWER)
        shared = min((one for one in (shared, spoken) if one is not None), key=len, default=())
    return max([size, *(place + 1 for place in _known_stops(shared, turn)[:1])])


def _call_cut(turn: SampledTurn, located: LocatedTurn) -> Questions[Cut | Refusal]:
    """Return where the rest of a tool call is over. Exactly one place must qualify.

    It is found by the suffix, or by the stop that the engine sampled. If neither is there, the turn was cut
    or ended oddly, and the only known stop that can close the call, or open what follows, shows the place.
    """
    tail, size = located.seam.tail, len(turn.suffix)
    call = yield from _call_close(located)
    if call is None:  # with nothing after it the call may not be written
        found = _only_stop((yield from _always_written(located)) or (), turn)
        return found or Refusal(Reason.UNPROVEN_TAIL, "the end of the tool call's turn cannot be shown")
    if (yield from _spells_end(turn, located, call)):
        return Refusal(Reason.UNPROVEN_TAIL, "a tool's name or a call's id is written like the turn's end")
    closed = _suffixes(tail, turn, call)
    inside = {i + j for i in closed for j in range(1, size)}
    cuts = {Cut(i, size) for i in closed if i not in inside}
    stopped = _stops(tail, turn, call, turn.stop)
    cuts |= {cut for cut in stopped if cut.place not in {*closed, *inside}}
    if not cuts:
        cuts = {cut for stop in turn.stops for cut in _stops(tail, turn, call, stop)}
    if not cuts:
        always = (yield from _always_written(located)) or ()
        # Of stops alone the only one counts: an id of a call may spell another.
        cuts = _known_close(always, turn, call) or {
            _whole_close(place, turn, tail, call) for place in _known_stops(always, turn)
        }
    if len(cuts) == 1:
        return _from_first_stop(cuts.pop(), tail, turn)
    if not cuts and turn.stop is not None:
        return Refusal(
            Reason.ODD_STOP,
            f"the turn ended with {turn.stop}, which closes no tool call here:"
            " if it does, it is missing in stop_ids",
        )
    return Refusal(Reason.UNPROVEN_TAIL, f"{len(cuts)} places where the tool call's turn may end")


def _spells_end(turn: SampledTurn, located: LocatedTurn, call: CallClose) -> Questions[bool]:
    """Return whether names or ids of calls hold stops, or ids of a close; usual ones never do."""
    usual = plainly_named(located.form.turn)
    if usual == located.form.turn:
        return False
    marks, found = {turn.stop, *turn.stops, *turn.suffix}, []
    for form in (located.form, attrs.evolve(located.form, turn=usual)):
        try:
            ids = yield from ask((*located.context, form.write(SHORT)), add_generation_prompt=False)
        except TemplateRefused:
            return True
        found.append([one for one in after(call.text, ids) or () if one in marks])
    return found[0] != found[1]


def _from_first_stop(cut: Cut, tail: tuple[int, ...], turn: SampledTurn) -> Cut:
    """Return a cut that leaves no known stop to the rest of the call, as no engine samples past one."""
    place = next((i for i, one in enumerate(tail[: cut.place]) if one in turn.stops), cut.place)
    return Cut(place, cut.place - place + cut.closed)


def _known_close(always: tuple[int, ...], turn: SampledTurn, call: CallClose) -> set[Cut]:
    """Return where a call is closed that is written otherwise once something follows; at most one place.

    A template may write a call's id only then. The close is the suffix, or begins with a known stop. It must
    stand there whatever follows, and no other such stop may: that could be in an id, or close the turn, too.
    """
    stop = next((one for one in always if one in turn.stops), None)
    if stop is None or stop not in call.ids:
        return set()
    whole = stop in turn.suffix and call.ids[-len(turn.suffix) :] == turn.suffix
    close = turn.suffix if whole else call.ids[call.ids.index(stop) :]
    place = always.index(stop) - close.index(stop)
    stands = place >= 0 and always[place : place + len(close)] == close
    return {Cut(place, len(close))} if stands and always.count(stop) == close.count(stop) else set()


def _only_stop(always: tuple[int, ...], turn: SampledTurn) -> Cut | None:
    """Return the only known stop that is always written, if it was sampled or is a part of the suffix.

    Else text before it may close the turn, too, and is no part of the call.
    """
    places, suffix = _known_stops(always, turn), turn.suffix
    if len(places) != 1:
        return None
    (place,), stop = places, always[places[0]]
    if stop == turn.stop:
        return Cut(place, 1)
    begin = place - suffix.index(stop) if stop in suffix else -1
    return Cut(begin, len(suffix)) if begin >= 0 and always[begin:][: len(suffix)] == suffix else None


def _whole_close(place: int, turn: SampledTurn, tail: tuple[int, ...], call: CallClose) -> Cut:
    """Return where the close with a known stop at `place` begins.

    The turn may have sampled what stands before the stop, or it is the call's own. If the template writes no
    close with nothing after the call, all that it writes then is the call, and the close begins there.
    """
    alone = call.alone
    if tail[place] == turn.stop or alone is None or len(alone) > place or tail[: len(alone)] != alone:
        return Cut(place, 1)
    return Cut(len(alone), place + 1 - len(alone))


def _known_stops(always: tuple[int, ...], turn: SampledTurn) -> list[int]:
    """Return where known stops stand in what is always written after the turn."""
    return [place for place, index in enumerate(always) if index in turn.stops]


def _always_written(located: LocatedTurn) -> Questions[tuple[int, ...] | None]:
    """Return how much of the tail stands there whatever the role and the text of the next message are."""
    first = located.environment[0]
    other = SYSTEM if first["role"] == "user" else USER
    text = SHORT if "".join(texts_in(first)).startswith(OTHER[0]) else OTHER
    return (yield from _before(located, {**other, "content": text}))


def _before(located: LocatedTurn, message: dict[str, Any]) -> Questions[tuple[int, ...] | None]:
    """Return how much of the tail stands there before another message; None if the template rejects that.

    Before one of another role the turn may be written with other reasoning. It is found there by its text.
    """
    seam = located.seam
    try:
        ids = yield from ask(located.messages((message,)), since=located.since)
        if ids[: seam.place] == seam.ids[: seam.place]:
            return seam.tail[: common_prefix(ids, seam.ids) - seam.place]
        ids = yield from ask(located.messages((message,), seam.said), since=located.since)
    except TemplateRefused:
        return None
    return seam.tail[: common_prefix(after(seam.text, ids) or (), seam.tail)]


def _orphans(turn: SampledTurn, environment: Environment) -> set[Any]:
    """Return the ids that results answer and that neither the turn nor a new message called.

    A result without an id may be named by an earlier call without one.
    """
    called = set(called_ids(turn.message, environment))
    answered = (message.get("tool_call_id") for message in environment if message["role"] not in LAST)
    return {as_id(one) for one in answered} - called


def _unnamed(environment: Environment) -> list[str]:
    """Return the tools of results without an id: an earlier call of the same tool may give it one."""
    results = (message for message in environment if message["role"] not in LAST)
    names = (message.get("name") for message in results if message.get("tool_call_id") is None)
    return sorted({name for name in names if isinstance(name, str)})


@attrs.frozen
class CallClose:
    """What the template writes after the text of a tool call.

    Attributes:
        shared: How many ids of the tail stand there whatever follows.
        end: How many of them stand there if nothing follows: the rest of the call, and its close. -1 if
            that cannot be determined.
        ids: Those that stand there if nothing follows.
        text: The ids of the text.
        alone: All that is written with nothing after it and without a generation prompt; None if unknown.
    """

    shared: int
    end: int
    ids: tuple[int, ...] = ()
    text: tuple[int, ...] = ()
    alone: tuple[int, ...] | None = None


def _call_close(located: LocatedTurn) -> Questions[CallClose | None]:
    """Render the call with nothing after it, with and without the generation prompt."""
    try:
        other = yield from ask(located.messages(located.environment, OTHER))
        speaking = yield from ask(located.messages(()))
        silent = yield from ask(located.messages(()), add_generation_prompt=False)
    except TemplateRefused:
        return None
    text = located.seam.ids[common_prefix(located.seam.ids, other) : located.seam.place]
    quiet = after(text, silent)
    rest = after(text, speaking) or quiet  # before a generation prompt some templates leave the last call out
    if rest is None:
        return None
    end = -1 if quiet is None else common_prefix(rest, quiet)
    return CallClose(common_prefix(located.seam.tail, rest), end, rest[: max(end, 0)], text, quiet)


def _suffixes(tail: tuple[int, ...], turn: SampledTurn, call: CallClose) -> list[int]:
    """Return where the suffix stands in what is always written after the call, or right after that.

    One that holds no known stop may be a part of the call, or of what follows. It counts where it ends what
    is written if nothing follows, or holds the sampled stop where no stops are known.
    """
    size = len(turn.suffix)
    places = [*range(call.shared - size + 1), *([call.end] if call.end == call.shared else [])]
    found = [i for i in places if size and tail[i : i + size] == turn.suffix]
    if not set(turn.stops).isdisjoint(turn.suffix):
        return found[:1]  # no engine samples past a stop, so that of several closes the first is the turn's
    believed = not turn.stops and turn.stop in turn.suffix
    sure = call.end < 0 or believed or not {call.end, call.end - size}.isdisjoint(found)
    return found if sure else []


def _stops(tail: tuple[int, ...], turn: SampledTurn, call: CallClose, stop: int | None) -> list[Cut]:
    """Return where a `stop` closes the call, or opens what follows.

    It closes the call if it is the last id before anything follows, and occurs once. Where stops are known it
    must be one: any other id there may be the call's own last one, after which the turn was cut. It opens
    what follows if nothing is left of the call, and it is not there, too. Anywhere else it belongs to the
    call: the turn broke off in the middle.
    What is not shared with the call alone is another message's, which may end with the same stop.
    """
    end, suffix = max(call.end, 0), turn.suffix
    if stop is None or (suffix and tail[end : end + len(suffix)] == suffix):
        return []
    known = stop in turn.stops or not turn.stops
    if known and end <= call.shared and tail[:end].count(stop) == 1 and tail.index(stop) == end - 1:
        return [Cut(end - 1, 1)]
    opens = call.shared == call.end and tail[end : end + 1] == (stop,) and stop not in tail[:end]
    return [Cut(end, 0)] if opens else []
