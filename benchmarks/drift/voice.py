"""How a model with random weights is made to say what an agent's model says: a grammar, and leanings.

A grammar alone lets the model spell each word in whichever pieces come up. So ids are leaned on: whole words
in sentences, and in fixed texts long pieces more than short ones, as a tokenizer merges. What drifts then is
what the spelling of calls, thoughts, line breaks and limits lets drift. `raw` leaves the leanings out.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from tito_core import suffix_ids
from tito_io.families.family import Family

TAGS = ("<tool_call>", "</tool_call>", "<think>", "</think>")
VALUES = (
    "src/main",
    "tests/parser",
    "def handler",
    "import os",
    "open the file and read it",
    "class Session",
    "TODO",
    "return None",
    "timeout=30",
)
"""What calls are made with."""
NAMES = ("search", "read_file")
SURE, LEANING, LONGER, MOST = 100.0, 50.0, 12.0, 96.0
"""Added to logits: for tags and the end, for whole words, and for each letter of a piece of fixed text."""
LONGEST = 120
"""Ids of a turn that is not to be cut."""
ROUGHLY = 20
"""Ids after which a raw turn ends."""

WHOLE = re.compile("Ġ[a-z]{3,}|Ġ?[A-Z][a-z]{2,}|[.,]Ċ*")
"""Words, as vocabularies of bytes have them, and what may follow them."""
SENTENCE = r"[A-Z][a-z]{1,9}(,? [a-z]{2,10}){2,6}\."
SAID = SENTENCE + f"( {SENTENCE})?"
THOUGHT = f"<think>\n{SAID}\n</think>\n\n"


def _any(texts: Iterable[str]) -> str:
    return "(" + "|".join(map(re.escape, texts)).replace(r"\ ", " ") + ")"


def _call(between: str, colon: str) -> str:
    """Return the pattern of a call whose JSON is spaced so."""
    value = _any(VALUES)
    more = f'({between}"limit":{colon}[1-9])?'
    said = f'"name":{colon}"{_any(NAMES)}"{between}"arguments":{colon}\\{{"query":{colon}"{value}"{more}\\}}'
    return f"<tool_call>\n\\{{{said}\\}}\n</tool_call>"


CALL, TERSE = _call(", ", " "), _call(",", "")
KINDS: Mapping[str, tuple[float, str]] = {
    "says": (0.4, SAID),
    "thinks": (0.12, THOUGHT + SAID),
    "calls": (0.2, CALL),
    "says and calls": (0.08, f"{SENTENCE}\n{{1,2}}{CALL}"),
    "thinks and calls": (0.08, THOUGHT + CALL),
    "calls twice": (0.06, f"{CALL}\n{CALL}"),
    "calls tersely": (0.06, TERSE),
}
"""What a turn may be, how often, and its pattern."""
LEANS = (
    "temperature 1; a grammar of sentences, thoughts and calls by structured output; by logit_bias whole "
    "words and long pieces come first, so that most ids are those that a tokenizer would give"
)
RAW = (
    "temperature 1; sentences are whatever comes, calls and thoughts follow the grammar, each word in "
    "whatever pieces; logit_bias ends turns and samples tags as tags"
)
OWN = "the embedded sampler's own habits"


@attrs.frozen
class Voice:
    """Sampling arguments of turns, for one engine and vocabulary."""

    name: str
    told: str
    """What is done to the model."""
    patterns: Mapping[str, str]
    """By the kind of turn; none where anything may be said."""
    leaning: Mapping[str, float]
    said: Callable[[str | None, Mapping[str, float]], dict[str, Any]]
    """What an engine calls a pattern and leanings."""

    def args(self, dice: random.Random, *, cut: bool) -> dict[str, Any]:
        """Return the arguments of a turn; one that is to be cut has room for a few ids."""
        kind = dice.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
        length = dice.randint(1, 12) if cut else LONGEST
        fixed = {"max_tokens": length, "temperature": 1.0, "seed": dice.randrange(2**31)}
        return {**fixed, **self.said(self.patterns.get(kind), self.leaning)}


def lean(family: Family, said: Callable[..., dict[str, Any]]) -> Voice:
    """Return the voice that mostly samples what a tokenizer would give."""
    fixed = {number for text in _fixed() for number in family.encode(text)}
    leaning = {
        str(number): _leaning(token, family.decode([number]))
        for token, number in family.tokenizer.get_vocab().items()
        if number in fixed or WHOLE.fullmatch(token)
    }
    return Voice(
        "lean",
        LEANS,
        {kind: pattern for kind, (_, pattern) in KINDS.items()},
        leaning | _tags(family) | {_end(family): SURE},
        said,
    )


def _leaning(token: str, text: str) -> float:
    """Return what is added for a piece: little for letters, with which a word could go on and on."""
    if WHOLE.fullmatch(token):
        return LEANING + LONGER * text.count("\n")
    return min(LONGER * len(text), MOST) / (1 + text.isalpha())


def raw(family: Family, said: Callable[..., dict[str, Any]]) -> Voice:
    """Return the voice that samples whatever comes, its turns ended now and then."""
    size = len(family.tokenizer.get_vocab())
    ends = {_end(family): math.log(size / ROUGHLY)}
    patterns = {kind: pattern for kind, (_, pattern) in KINDS.items() if kind != "says"}
    return Voice("raw", RAW, patterns, ends | _tags(family), said)


VOICES: Mapping[str, Callable[..., Voice]] = {"lean": lean, "raw": raw}


def _tags(family: Family) -> dict[str, float]:
    found = {tag: family.tokenizer.token_to_id(tag) for tag in TAGS}
    return {str(number): SURE for number in found.values() if number is not None}


def _end(family: Family) -> str:
    """Return the id that the template ends turns with; at another end a turn is odd."""
    return str(suffix_ids(family.tokenize_fn())[0])


def _fixed() -> Iterable[str]:
    """Yield what stands between the words, and what calls are made with."""
    for between, colon in ((", ", " "), (",", "")):
        for name, value in zip(NAMES * len(VALUES), VALUES, strict=False):
            yield (
                f'<tool_call>\n{{"name":{colon}"{name}"{between}"arguments":{colon}{{"query":{colon}"{value}"'
                f'{between}"limit":{colon}1}}}}\n</tool_call>'
            )
            yield f'"query":{colon}"{value}"}}}}\n</tool_call>\n<tool_call>\n'
    yield "<think>\nThe word.\n</think>\n\n<tool_call>\n"
    yield from ("The, word.\n<tool_call>", "The word.\n\n<tool_call>", "Go. The end.")


def of_vllm(pattern: str | None, leaning: Mapping[str, float]) -> dict[str, Any]:
    """Return a pattern and leanings as vLLM takes them."""
    shape = {} if pattern is None else {"structured_outputs": {"regex": pattern}}
    return {**shape, "logit_bias": dict(leaning)}


def of_sglang(pattern: str | None, leaning: Mapping[str, float]) -> dict[str, Any]:
    """Return a pattern and leanings as SGLang takes them."""
    return {**({} if pattern is None else {"regex": pattern}), "logit_bias": dict(leaning)}


def embedded() -> Voice:
    """Return the voice of the embedded sampler, which has habits of its own."""
    return Voice("own", OWN, {}, {}, lambda _, __: {})
