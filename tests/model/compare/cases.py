"""Cases: a family, stored steps, the prompt that comes back, and what the caller chose and knows."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import attrs
from hypothesis.strategies import SearchStrategy

from tests.model.compare.picks import Picks
from tests.model.compare.quirks import PAD, Family, FromToy, quirky
from tests.model.messages import Message, arguments, doubles, media, plain
from tests.model.templates import Range, readings, tails
from tests.model.tokenizers import Tokenizer
from tito_core import Forgiveness, Ledger, OddStop, Policy, Step, TemplateRefused, Truncated
from tito_core.media.ranges import MediaRange
from tito_core.normalization.receipts import OPTIONAL
from tito_core.testing.strategies import message as messages_strategy
from tito_core.testing.strategies.message import draw_assistant, draw_environment, speech
from tito_core.testing.strategies.respelling import edited, respelled
from tito_core.testing.toys import TOYS, toy_named

LIMITS = ("numbered_hello", "prints_length")
"""Toys whose quirk docs/limits.md names as unnoticed: what they write depends on one property of a text."""
FAMILIES = tuple(
    Family(FromToy(toy), Tokenizer(toy.tokenizer.specials, toy.tokenizer.merges))
    for toy in TOYS
    if not toy.nondeterministic and toy.name not in LIMITS
)
CHATML = toy_named("chatml")
ENDINGS = (
    "right",
    "right",
    "right",
    "right",
    "cut",
    "any stop",
    "whole close",
    "close and opener",
    "cut in the close",
    "nothing",
    "another id",
)
FORGIVABLE = tuple(sorted(OPTIONAL, key=lambda one: one.name))
RENAMED_LAST_RESULT = {Forgiveness.RENAMED_TOOL_IDS}
"""With this the kernel finds no step that ends with a tool result, where its id was renamed: left out."""
PICTURES = (
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAB", "detail": "low"}},
    {"type": "image_url", "uuid": "cat"},
)


@attrs.frozen
class Case:
    """One question, for the kernel and for the model."""

    family: Family
    steps: list[Step]
    prompt: list[Any]
    policy: Policy
    key: str | None
    placeholders: dict[str, list[int]] | None
    dear: int
    """0 in one case of six: then what takes long is asked, too."""


class _Draw:
    """Answers the draws of the project's strategies from a case's bytes."""

    def __init__(self, picks: Picks) -> None:
        self.picks = picks

    def __call__(self, strategy: SearchStrategy[Any]) -> Any:
        if strategy is messages_strategy.KINDS:
            return self.picks.pick(range(16))
        if strategy is messages_strategy.ROLES:
            roles = ("user", "system", "developer", "tool", "assistant")
            return [self.picks.pick(roles) for _ in range(self.picks.pick((1, 2, 3)))]
        return self.picks.pick((1, 2, 3)) if strategy is messages_strategy.TURNS else self.picks


# --- conversations -------------------------------------------------------------------------------------


def conversation(picks: Picks, *, pictures: bool) -> list[Message]:
    """Return a conversation that ends with what is new after the last of one to three assistant turns."""
    draw = _Draw(picks)
    chat: list[Message] = [speech(picks, "system")] if picks.once_in(4) else []
    chat.append(speech(picks))
    for _ in range(picks.pick((1, 2, 3))):
        chat.append(draw_assistant(draw, may_call=True))
        chat += draw_environment(draw, CHATML, chat[-1])
    if picks.once_in(6):
        noted = picks.pick(chat)
        noted["note"] = picks.pick(("n", "o"))
    for _ in range(picks.pick((1, 2, 3)) if pictures else 0):
        show(picks, picks.pick([m for m in chat if m["role"] != "assistant"]))
    return chat


def show(picks: Picks, message: Message) -> None:
    """Put a picture into a message."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
    message["content"] = picks.pick(([picks.pick(PICTURES), *parts], [*parts, picks.pick(PICTURES)]))


def first_taken(family: Family, messages: Sequence[Message]) -> list[Message] | None:
    """Return the first way to show a conversation that the template takes."""
    for group in readings(messages):
        for way in group:
            try:
                family.template.page(way, add_generation_prompt=True)
            except TemplateRefused:
                continue
            return way
    return None


def rendered(family: Family, messages: Sequence[Message], sizes: int) -> tuple[list[int], list[Range]]:
    """Return the ids of a prompt as an engine saw them, with `sizes` ids for each picture."""
    way = first_taken(family, messages)
    if way is None:
        return [3001, 3002], []
    page = family.template.page(way, add_generation_prompt=True)
    ids, ranges = list[int](), list[Range]()
    for number, start, stop in family.tokenizer.tokens(page.text):
        inside = (start, stop) in page.media
        ranges += [(len(ids), len(ids) + sizes)] if inside else []
        ids += [number] * (sizes if inside else 1)
    return ids, ranges


def sampled(picks: Picks, family: Family, chat: Sequence[Message], place: int) -> tuple[list[int], bool]:
    """Return what an engine sampled for the message at `place`, and whether the turn was cut short."""
    way, ending = first_taken(family, chat[: place + 1]), picks.pick(ENDINGS)
    words = [3003, 3004]
    if way is not None:
        page = family.template.page(way, add_generation_prompt=False)
        text = page.text[slice(*page.bodies.get(place, (0, 0)))]
        cuts = sorted(
            {0, len(text), *(picks.pick(range(len(text) + 1)) for _ in range(picks.pick((0, 0, 1, 2))))}
        )
        pieces = [text[a:b] for a, b in pairwise(cuts)]
        words = [index for piece in pieces for index in family.tokenizer.encode(piece)]
    found = tails(family.template, family.tokenizer, chat, place + 1)
    tail = found[0].ids if isinstance(found, list) else list(family.suffix)
    marks = [i for i, index in enumerate(tail[: len(family.suffix) + 1]) if index in family.stop_ids]
    stop = tail[: 1 + min(marks, default=0)]
    if ending == "right":
        return [*merged(family, words, stop)], False
    if ending in {"cut", "cut in the close"}:
        kept = words[: picks.pick(range(len(words), -1, -1))] if ending == "cut" else words
        return [
            *kept,
            *family.suffix[: picks.pick(range(3)) if ending == "cut in the close" else 0],
        ], not picks.once_in(4)
    others = {
        "any stop": [picks.pick((*family.stop_ids, 9))],
        "whole close": list(family.suffix),
        "close and opener": tail[: len(family.suffix) + 1],
        "another id": [3005],
    }
    return ([], picks.once_in(2)) if ending == "nothing" else ([*words, *others[ending]], False)


def merged(family: Family, words: list[int], stop: list[int]) -> list[int]:
    """Return words and a stop as a model samples them: the last word and text of a close may be one id."""
    if not words or words[-1] >= 3000 or not picks_merge(family, words, stop):
        return [*words, *stop]
    return [*words[:-1], *family.tokenizer.encode(family.tokenizer.decode([words[-1], *stop]))]


def picks_merge(family: Family, words: list[int], stop: list[int]) -> bool:
    """Return whether the last word and the stop can be read as text and written as ids again."""
    text = family.tokenizer.decode([words[-1], *stop])
    return family.tokenizer.decode(family.tokenizer.encode(text)) == text


def a_step(picks: Picks, family: Family, chat: Sequence[Message], place: int, key: str | None) -> Step:
    """Return the call that answered with the message at `place`, its history as some serializer wrote it."""
    messages = [
        plain(respelled(picks, m)) if picks.once_in(3) else copy.deepcopy(m) for m in chat[: place + 1]
    ]
    ids, ranges = rendered(family, chat[:place], picks.pick((3, 1, 2)))
    completion, truncated = sampled(picks, family, chat, place)
    shown = media(chat[:place])
    known = len(ranges) == len(shown) and all(identity for _, identity, _ in shown)
    pad = family.tokenizer.encode(PAD)
    return Step(
        prompt=messages[:-1],
        completion=messages[-1:],
        prompt_ids=ids,
        completion_ids=completion,
        truncated=truncated,
        key=key,
        media=[
            MediaRange(modality=kind, identity=str(identity), offset=a, length=b - a, collapsed=pad)
            for (a, b), (kind, identity, _) in zip(ranges, shown, strict=True)
        ]
        if known and not picks.once_in(12)
        else [],
    )


# --- what comes back -----------------------------------------------------------------------------------


def trimmed(picks: Picks, message: Message) -> Message:
    """Return a message as a client keeps it: trimmed, or without what it does not echo."""
    kept = copy.deepcopy(message)
    if picks.pick((True, False)) and isinstance(kept.get("content"), str):
        kept["content"] = kept["content"].strip() or picks.pick((None, ""))
    if picks.once_in(3):
        kept.pop(picks.pick(("reasoning_content", "content", "reasoning")), None)
    if picks.once_in(4) and isinstance(kept.get("content"), str):
        kept["content"] = f"{kept['content']}\n"
    return kept


def renamed(picks: Picks, chat: Sequence[Message]) -> list[Message]:
    """Return a conversation with other ids of calls, at times two of them alike or swapped."""
    names: dict[Any, Any] = {}
    kind = picks.pick(("new", "new", "swapped", "alike", "late"))
    every = list(dict.fromkeys(c.get("id") for m in chat for c in m.get("tool_calls") or ()))
    for place, one in enumerate(every):
        names[one] = {"swapped": every[place - 1], "alike": "callnew00"}.get(kind, f"callnew0{place}")
    changed = copy.deepcopy(list(chat))
    for number, m in enumerate(changed):
        if kind == "late" and number < len(changed) // 2:
            continue
        for call in m.get("tool_calls") or ():
            call["id"] = names.get(call.get("id"))
        if "tool_call_id" in m:
            m["tool_call_id"] = names.get(m["tool_call_id"], m["tool_call_id"])
    return changed


def read_by_javascript(picks: Picks, message: Message) -> Message:
    """Return a message whose calls' arguments a client read and wrote again: rounded, or with a null more."""
    kept = copy.deepcopy(message)
    for call in kept.get("tool_calls") or ():
        found = arguments(call)
        if isinstance(found, dict):
            more = picks.pick(({}, {}, {"line": None}))
            call["function"]["arguments"] = json.dumps({**as_plain(doubles(found)), **more})
    return kept


def as_plain(value: Any) -> Any:
    """Return JSON data with doubles as JavaScript writes them."""
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(as_plain, value))
    return int(Decimal(repr(value))) if isinstance(value, float) and value.is_integer() else value


def returned(picks: Picks, sent: Sequence[Message]) -> list[Any]:
    """Return the conversation as the client sends it back."""
    chat = copy.deepcopy(list(sent))
    way = picks.pick(
        (
            *("as it is", "respelled", "trimmed", "renamed", "edited", "reordered", "shorter", "respelled"),
            "read by JavaScript",
        )
    )
    if way == "read by JavaScript":
        return [read_by_javascript(picks, m) for m in chat]
    if way == "respelled":
        return [respelled(picks, m) for m in chat]
    if way == "trimmed":
        return [trimmed(picks, m) if m["role"] == "assistant" else m for m in chat]
    if way == "renamed":
        return renamed(picks, chat)
    if way == "edited":
        place = picks.pick(range(len(chat)))
        chat[place] = edited(picks, chat[place])
    if way == "reordered":
        place = picks.pick(range(len(chat)))
        chat[place:] = chat[place:][::-1]
    return chat[: picks.pick(range(1, len(chat) + 1))] if way == "shorter" else chat


def policy(picks: Picks) -> Policy:
    """Return what a caller chose."""
    return Policy(
        truncated=picks.pick((Truncated.CLOSE, *Truncated)),
        odd_stop=picks.pick(tuple(OddStop)),
        forgive={one for one in FORGIVABLE if picks.pick((False, True))},
        further_keys=picks.pick((set[str](), set[str](), {"note"}, {"x_cached"})),
    )


def a_case(data: bytes, *, pictures: bool = False) -> Case:
    """Return the case that bytes describe."""
    picks = Picks(data)
    dear = picks.pick(range(6))
    family = picks.pick(FAMILIES) if not pictures and picks.once_in(3) else quirky(picks)
    chosen, key = (
        policy(picks) if picks.pick((False, True)) else Policy(),
        picks.pick((None, None, None, "k")),
    )
    chat = conversation(picks, pictures=pictures)
    for message in chat if family.template.reads else ():
        message["note"] = picks.pick(("n", None))
    answered = [place for place, m in enumerate(chat) if m["role"] == "assistant"]
    steps = [a_step(picks, family, chat, place, key) for place in answered if not picks.once_in(6)]
    steps += [noise(picks, family, chat, key) for _ in range(picks.pick((0, 0, 0, 1, 2)))]
    if chosen.forgive & RENAMED_LAST_RESULT:
        steps = [step for step in steps if step.messages[-1]["role"] != "tool"]
    placeholders = {"image": family.tokenizer.encode(PAD)} if pictures and not picks.once_in(8) else None
    prompt = returned(picks, chat)
    noted = picks.pick(prompt)
    if family.template.reads and isinstance(noted, dict) and picks.once_in(2):
        noted["note"] = "o"
    return Case(family, picks.turned(steps), prompt, chosen, key, placeholders, dear)


def noise(picks: Picks, family: Family, chat: Sequence[Message], key: str | None) -> Step:
    """Return a step that looks like the others: a retry, a fork, another key, the whole conversation."""
    kind, place = (
        picks.pick(("retry", "edited", "other key", "split oddly", "no ids")),
        picks.pick(range(len(chat))),
    )
    if kind == "edited":
        other = picks.pick(range(place + 1))
        return a_step(
            picks, family, [*chat[:other], edited(picks, chat[other]), *chat[other + 1 :]], place, key
        )
    step = a_step(picks, family, chat, place, "not this" if kind == "other key" else key)
    if kind == "no ids":
        return attrs.evolve(step, prompt_ids=[], prompt_ledger=Ledger.prompt(0), media=[])
    if kind == "split oddly" and not step.media and not media(chat):
        cut = picks.pick(range(place + 2))
        return attrs.evolve(step, prompt=chat[:cut], completion=chat[cut : place + 1])
    return step
