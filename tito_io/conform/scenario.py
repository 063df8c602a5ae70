"""Conversations that vectors are made of, and the program that makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from .oracle import Answer, Message, Oracle, SampledTurn
from .templates import MERGED, SPECIAL, STOPS, TEMPLATES
from .toy_tokenizer import BYTES, ToyTokenizer

VERSION = 1
TOKENIZER = ToyTokenizer(
    {text: BYTES + place for place, text in enumerate(MERGED)},
    {text: BYTES + len(MERGED) + place for place, text in enumerate(SPECIAL)},
)
NEVER, ALLOWED, REQUIRED = "never", "allowed", "required"
"""Whether a refusal is right."""


Chat: TypeAlias = Sequence["Message | Turn"]
"""Messages, and the turns that were sampled among them."""


@attrs.frozen
class Turn:
    """A sampled turn of a conversation.

    Attributes:
        message: The assistant message that the turn was parsed to.
        said: The text that was sampled, without the stop. Unless given, what the template writes.
        pieces: Tokens that the model sampled in place of those that the tokenizer writes for a part of
            `said`, such as `("How", "ever")`.
        stop: Tokens at the end. Unless given, the first stop that the template writes after the turn.
        cut: Whether the turn was cut short.
    """

    message: Message
    said: str | None = None
    pieces: tuple[str, ...] = ()
    stop: tuple[str, ...] | None = None
    cut: bool = False


@attrs.frozen(kw_only=True)
class Scenario:
    """A conversation, and what is asked after it.

    Attributes:
        name: The name of the vector, with its set in front.
        title: What the vector is about, in a sentence.
        template: The template by its name.
        chat: Messages and turns, up to the last new message.
        tools: Tools, None for none.
        arguments: Further variables of the template.
        stops: Known stops. Unless given, those of the template.
        request: The next request's messages, if they are not those of the conversation.
        more: Another conversation whose turns belong to the same trajectory, after those of `chat`.
        refusal: Whether a refusal is right.
        reason: Why it is right.
    """

    name: str
    title: str
    template: str
    chat: Chat
    tools: Sequence[Mapping[str, Any]] | None = None
    arguments: Mapping[str, Any] = attrs.field(factory=dict)
    stops: tuple[str, ...] | None = None
    request: Sequence[Message] | None = None
    more: Chat = ()
    refusal: str = NEVER
    reason: str | None = None

    @property
    def stop_ids(self) -> list[int]:
        """The known stops as ids."""
        stops = STOPS[self.template] if self.stops is None else self.stops
        return [number for stop in stops for number in TOKENIZER.encode(stop)]

    @property
    def oracle(self) -> Oracle:
        """The oracle of its template."""
        return Oracle(TEMPLATES[self.template], TOKENIZER, self.tools, self.arguments)


def vector(scenario: Scenario) -> dict[str, Any]:
    """Return the vector of a scenario as JSON data."""
    turns = _turns(scenario, scenario.chat)
    steps = [*_steps(scenario.chat, turns), *_steps(scenario.more, _turns(scenario, scenario.more))]
    return {
        "version": VERSION,
        "id": scenario.name,
        "set": scenario.name.partition("/")[0],
        "title": scenario.title,
        "template": TEMPLATES[scenario.template],
        "tokenizer": {"tokens": dict(TOKENIZER.tokens), "special": dict(TOKENIZER.special)},
        "tools": scenario.tools,
        "template_arguments": dict(scenario.arguments),
        "stop_ids": scenario.stop_ids,
        "trajectory": steps,
        "messages": list(_plain(scenario.chat) if scenario.request is None else scenario.request),
        "expected": {
            "answers": [attrs.asdict(one) for one in _answers(scenario, turns)],
            "refusal": scenario.refusal,
            "reason": scenario.reason,
        },
    }


def _plain(chat: Chat) -> list[Message]:
    """Return the messages of a conversation."""
    return [one.message if isinstance(one, Turn) else one for one in chat]


def _steps(chat: Chat, turns: Sequence[tuple[int, SampledTurn]]) -> list[dict[str, Any]]:
    """Return the steps of a conversation as JSON data."""
    messages = _plain(chat)
    return [
        {
            "messages": messages[:place],
            "turn": messages[place],
            "prompt_ids": list(turn.prompt),
            "sampled_ids": list(turn.sampled),
            "cut": turn.cut,
        }
        for place, turn in turns
    ]


def _turns(scenario: Scenario, chat: Chat) -> list[tuple[int, SampledTurn]]:
    """Return the sampled turns of a conversation with their places; each continues the one before."""
    oracle, messages = scenario.oracle, _plain(chat)
    found: list[tuple[int, SampledTurn]] = []
    for place, turn in enumerate(chat):
        if not isinstance(turn, Turn):
            continue
        if found:
            prompt = oracle.answers(found[-1][1], scenario.stop_ids, messages[:place], found[-1][0])[0].ids
        else:
            prompt = oracle.prompt(messages[:place])
        found.append((place, SampledTurn(prompt, _sampled(scenario, chat, place, turn), turn.cut)))
    return found


def _sampled(scenario: Scenario, chat: Chat, place: int, turn: Turn) -> tuple[int, ...]:
    """Return the ids that the model sampled."""
    said = _said(scenario.oracle, _plain(chat), place) if turn.said is None else turn.said
    first = "".join(map(_text, turn.pieces))
    before, found, after = said.partition(first) if first else (said, "", "")
    if found != first:
        raise ValueError(f"{scenario.name}: the turn says {said!r}, without {first!r}")
    stop = _stop(scenario, chat, place) if turn.stop is None else turn.stop
    return (*TOKENIZER.encode(before), *_ids(turn.pieces), *TOKENIZER.encode(after), *_ids(stop))


def _text(piece: str) -> str:
    """Return the text of a piece that a model sampled."""
    return piece[1:-1] if piece.startswith("«") else piece


def _ids(pieces: Sequence[str]) -> list[int]:
    """Return the ids of pieces: a token, the bytes of a text between angle quotes, or bytes in hexadecimal.

    >>> _ids(["How", "«ab»", "#f09f"]) == [TOKENIZER.tokens["How"], 97, 98, 0xF0, 0x9F]
    True
    """
    ids: list[int] = []
    for piece in pieces:
        if piece.startswith("«"):
            ids += _text(piece).encode()
        else:
            ids += bytes.fromhex(piece[1:]) if piece.startswith("#") else TOKENIZER.encode(piece)
    return ids


def _said(oracle: Oracle, messages: Sequence[Message], place: int) -> str:
    """Return the text that the template writes for a turn after its generation prompt.

    Where that prompt opens a reasoning block, which the history does not show, the model ends it first.
    """
    prompt = oracle.page(messages[:place], speak=True).text
    page = oracle.page(messages[: place + 1], speak=False)
    begin, end = page.words[place]
    if page.text.startswith(prompt):
        return page.text[len(prompt) : end]
    if "<think>" not in prompt[begin:]:
        raise ValueError(f"the template's history does not begin with {prompt!r}: give the text as `said`")
    return "Well.\n</think>\n\n" + page.text[begin:end]


def _stop(scenario: Scenario, chat: Chat, place: int) -> tuple[str, ...]:
    """Return the first stop that the template writes after a turn, none after one that was cut."""
    turn = chat[place]
    if isinstance(turn, Turn) and turn.cut:
        return ()
    end = next((at for at in range(place + 1, len(chat)) if isinstance(chat[at], Turn)), len(chat))
    messages = _plain(chat)
    tail = scenario.oracle.text_after(messages[:end], place) or scenario.oracle.text_after(
        messages[: place + 1], place
    )
    stops = {number for stop in STOPS[scenario.template] for number in TOKENIZER.encode(stop)}
    found = [number for number in TOKENIZER.encode(tail) if number in stops]
    return (TOKENIZER.decode(found[:1]),)


def _answers(scenario: Scenario, turns: Sequence[tuple[int, SampledTurn]]) -> tuple[Answer, ...]:
    """Return the right next prompts of a scenario; none where a refusal is required."""
    if scenario.refusal == REQUIRED:
        return ()
    place, turn = turns[-1]
    found = scenario.oracle.answers(turn, scenario.stop_ids, _plain(scenario.chat), place)
    if not found:
        raise ValueError(f"{scenario.name}: the template drops a new message, and no refusal is required")
    return found
