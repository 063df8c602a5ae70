"""Sampling styles that make a model with random weights write like an agent's model.

A grammar (structured output) gives sentences, reasoning and tool calls, but in arbitrary tokens. So the style
`lean` adds a logit bias: for whole words in sentences, and for long tokens in fixed texts, as a tokenizer
merges them. Then drift comes from the spelling of calls, reasoning, line breaks and limits. The style `raw`
has no such bias.
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
"""Argument values of tool calls."""
NAMES = ("search", "read_file")
SURE, LEANING, LONGER, MOST = 100.0, 50.0, 12.0, 96.0
"""Logit biases: for tags and the end, for whole words, per letter of a fixed text's token, its limit."""
LONGEST = 120
"""Ids of a turn that is not to be cut."""
ROUGHLY = 20
"""Ids after which a raw turn ends, on average."""

WHOLE = re.compile("Ġ[a-z]{3,}|Ġ?[A-Z][a-z]{2,}|[.,]Ċ*")
"""Tokens of whole words in a byte-level vocabulary, and the punctuation after them."""
SENTENCE = r"[A-Z][a-z]{1,9}(,? [a-z]{2,10}){2,6}\."
SENTENCES = SENTENCE + f"( {SENTENCE})?"
THINKING = f"<think>\n{SENTENCES}\n</think>\n\n"


def _any(texts: Iterable[str]) -> str:
    return "(" + "|".join(map(re.escape, texts)).replace(r"\ ", " ") + ")"


def _call(between: str, colon: str) -> str:
    """Return the pattern of a tool call whose JSON has these separators."""
    value = _any(VALUES)
    more = f'({between}"limit":{colon}[1-9])?'
    body = f'"name":{colon}"{_any(NAMES)}"{between}"arguments":{colon}\\{{"query":{colon}"{value}"{more}\\}}'
    return f"<tool_call>\n\\{{{body}\\}}\n</tool_call>"


CALL, TERSE = _call(", ", " "), _call(",", "")
KINDS: Mapping[str, tuple[float, str]] = {
    "says": (0.4, SENTENCES),
    "thinks": (0.12, THINKING + SENTENCES),
    "calls": (0.2, CALL),
    "says and calls": (0.08, f"{SENTENCE}\n{{1,2}}{CALL}"),
    "thinks and calls": (0.08, THINKING + CALL),
    "calls twice": (0.06, f"{CALL}\n{CALL}"),
    "calls tersely": (0.06, TERSE),
}
"""Kinds of turns: how often, and the regular expression."""
LEANS = (
    "temperature 1; structured output gives sentences, reasoning and tool calls; a logit_bias for whole "
    "words and long tokens, so that most ids are those of the canonical tokenization"
)
RAW = (
    "temperature 1; sentences are unconstrained, reasoning and tool calls follow the grammar, in arbitrary "
    "tokens; a logit_bias for tags and for the end of turns"
)
EMBEDDED = "the embedded engine's own sampler"


@attrs.frozen
class SamplingStyle:
    """Sampling arguments of turns, for one engine and vocabulary.

    Attributes:
        name: Name of the style.
        description: How the sampling is constrained.
        patterns: Regular expression by kind of turn; a missing kind is unconstrained.
        leaning: Logit bias by id.
        arguments_for: Converts a pattern and a logit bias to the engine's arguments.
    """

    name: str
    description: str
    patterns: Mapping[str, str]
    leaning: Mapping[str, float]
    arguments_for: Callable[[str | None, Mapping[str, float]], dict[str, Any]]

    def args(self, rng: random.Random, *, cut: bool) -> dict[str, Any]:
        """Draw the arguments of a turn; with `cut` it may have a few ids only."""
        kind = rng.choices(list(KINDS), [share for share, _ in KINDS.values()])[0]
        length = rng.randint(1, 12) if cut else LONGEST
        fixed = {"max_tokens": length, "temperature": 1.0, "seed": rng.randrange(2**31)}
        return {**fixed, **self.arguments_for(self.patterns.get(kind), self.leaning)}


def lean(family: Family, arguments_for: Callable[..., dict[str, Any]]) -> SamplingStyle:
    """Return the style that mostly samples the canonical tokenization."""
    fixed = {number for text in _fixed() for number in family.encode(text)}
    leaning = {
        str(number): _leaning(token, family.decode([number]))
        for token, number in family.tokenizer.get_vocab().items()
        if number in fixed or WHOLE.fullmatch(token)
    }
    return SamplingStyle(
        "lean",
        LEANS,
        {kind: pattern for kind, (_, pattern) in KINDS.items()},
        leaning | _tags(family) | {_end(family): SURE},
        arguments_for,
    )


def _leaning(token: str, text: str) -> float:
    """Return the logit bias of a token. Letters get less, or a word would never end."""
    if WHOLE.fullmatch(token):
        return LEANING + LONGER * text.count("\n")
    return min(LONGER * len(text), MOST) / (1 + text.isalpha())


def raw(family: Family, arguments_for: Callable[..., dict[str, Any]]) -> SamplingStyle:
    """Return the style that samples arbitrary tokens; turns end after about `ROUGHLY` ids."""
    size = len(family.tokenizer.get_vocab())
    ends = {_end(family): math.log(size / ROUGHLY)}
    patterns = {kind: pattern for kind, (_, pattern) in KINDS.items() if kind != "says"}
    return SamplingStyle("raw", RAW, patterns, ends | _tags(family), arguments_for)


STYLES: Mapping[str, Callable[..., SamplingStyle]] = {"lean": lean, "raw": raw}


def _tags(family: Family) -> dict[str, float]:
    ids = {tag: family.tokenizer.token_to_id(tag) for tag in TAGS}
    return {str(number): SURE for number in ids.values() if number is not None}


def _end(family: Family) -> str:
    """Return the template's stop token as a string; another stop would be odd."""
    return str(suffix_ids(family.tokenize_fn())[0])


def _fixed() -> Iterable[str]:
    """Yield fixed texts: the JSON of tool calls, and what stands between sentences."""
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
    """Return a pattern and a logit bias as arguments of vLLM."""
    shape = {} if pattern is None else {"structured_outputs": {"regex": pattern}}
    return {**shape, "logit_bias": dict(leaning)}


def of_sglang(pattern: str | None, leaning: Mapping[str, float]) -> dict[str, Any]:
    """Return a pattern and a logit bias as arguments of SGLang."""
    return {**({} if pattern is None else {"regex": pattern}), "logit_bias": dict(leaning)}


def embedded() -> SamplingStyle:
    """Return the style of the embedded engine, whose sampler needs no arguments."""
    return SamplingStyle("own", EMBEDDED, {}, {}, lambda _, __: {})
