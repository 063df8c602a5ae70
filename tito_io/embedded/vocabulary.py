"""A byte-level BPE vocabulary, trained here at first use and then kept.

Three tokens are special (a decoder may skip them), six are added but not special (a decoder keeps them, a
parser consumes them); the rest are bytes and merges of bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from attrs import frozen
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .draws import Rng

OPEN, CLOSE, OVER = "<|turn|>", "<|done|>", "<|over|>"
"""A turn's beginning, its end, and the end of all text: an end token that no turn is closed with."""
THINK, THOUGHT = "<think>", "</think>"
CALL, CALLED = "<tool_call>", "</tool_call>"
RESPONSE, RESPONDED = "<tool_response>", "</tool_response>"
SPECIAL = (OVER, OPEN, CLOSE)
TAGS = (THINK, THOUGHT, CALL, CALLED, RESPONSE, RESPONDED)
PIECES = 2000
"""Bytes and merges; the nine named tokens come after them."""

# Punctuation takes the newlines after it, so a merge can lie across what a template writes in two steps.
SPLIT = r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?=\S)|\s+"


@frozen
class Vocabulary:
    """The tokenizer and what the sampler has to know of its inside."""

    tokenizer: Tokenizer
    """Text to ids as an engine does it: the nine named tokens are found in the text."""
    plain: Tokenizer
    """The same merges without the named tokens: `<think>` becomes the ids of seven characters or fewer."""
    halves: Mapping[int, tuple[int, int]]
    """A merged id to the two ids that it was merged from."""

    @property
    def size(self) -> int:
        """Return how many ids there are; every id is below it."""
        return self.tokenizer.get_vocab_size()

    def id(self, token: str) -> int:
        """Return the id of a named token, such as `CLOSE`."""
        found = self.tokenizer.token_to_id(token)
        assert found is not None, token  # noqa: S101  # only the tokens named in this file are asked for
        return int(found)

    def spelled(self, text: str) -> list[int]:
        """Return `text` in merges alone, a tag in it spelled out like any other word."""
        return list(self.plain.encode(text, add_special_tokens=False).ids)

    def encode(self, text: str) -> list[int]:
        """Return the canonical ids of `text`."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids` with every special token in it."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def bytes_of(self, identifier: int) -> list[int]:
        """Return the single-byte ids that a merged id is made of."""
        if identifier not in self.halves:
            return [identifier]
        return [byte for half in self.halves[identifier] for byte in self.bytes_of(half)]


@cache
def vocabulary() -> Vocabulary:
    """Train the vocabulary, or return the one that was trained before in this process."""
    plain = _trained()
    tokenizer = Tokenizer.from_str(plain.to_str())
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    return Vocabulary(tokenizer, plain, _halves(plain))


def _trained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=PIECES, show_progress=False, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def _halves(tokenizer: Tokenizer) -> dict[int, tuple[int, int]]:
    model = json.loads(tokenizer.to_str())["model"]
    ids, merges = model["vocab"], model["merges"]
    return {ids[left + right]: (ids[left], ids[right]) for left, right in merges}


PASSAGES = 260


def corpus() -> Iterator[str]:
    """Yield every passage, about 54 thousand characters in all."""
    dice = Rng("corpus")
    yield from TURN
    yield " ".join(COMMON * 3)
    for index in range(PASSAGES):
        yield " ".join(sentence(dice) for _ in range(2)) + "\n\n"
        yield _record(dice)
        if index % 4 == 0:
            yield dice.pick(CODE)
            yield f"{index}. {dice.pick(NOUNS)} - {dice.between(0, 9999)}; "
            yield f"{dice.pick(ABROAD)}, {dice.pick(PLACES)}\n"


def _record(dice: Rng) -> str:
    """Return one JSON object as an engine or a client would write it."""
    keys = [dice.pick(KEYS) for _ in range(3)]
    values = [dice.pick(PLACES), dice.between(0, 500), {"type": dice.pick(KEYS), "items": [dice.pick(NOUNS)]}]
    record = dict(zip(keys, values, strict=True))
    return json.dumps(record, ensure_ascii=False, indent=2 if dice.chance(0.2) else None) + "\n"


ECHOED = 0.5
FOREIGN = 0.35


def sentence(dice: Rng, heard: Sequence[str] = ()) -> str:
    """Return one sentence, half the time around a word that was `heard` in the prompt."""
    parts = [dice.pick(OPENERS) + ", the"] if dice.chance(0.4) else ["The"]
    parts += [dice.pick(ADJECTIVES), dice.pick(NOUNS), dice.pick(VERBS), "the"]
    if heard and dice.chance(ECHOED):
        parts += [dice.pick(heard), "and the"]
    parts.append(dice.pick(NOUNS))
    if dice.chance(FOREIGN):
        parts += ["of", dice.pick(ABROAD)]
    return " ".join(parts) + dice.pick((".", ".", ".", "!", "?", ";", "..."))


def passage(dice: Rng, heard: Sequence[str] = ()) -> str:
    """Return a few sentences, now and then with a list or a piece of code after them."""
    between = dice.pick((" ", " ", "\n", "\n\n"))
    text = between.join(sentence(dice, heard) for _ in range(dice.between(1, 3)))
    if dice.chance(0.12):
        text += "\n\n" + dice.pick(CODE).rstrip("\n")
    elif dice.chance(0.12):
        text += "\n" + "\n".join(f"- {dice.pick(NOUNS)}: {dice.between(0, 999)}" for _ in range(3))
    return text


NOUNS = (
    *("river", "window", "answer", "question", "garden", "engine", "letter", "token", "bridge", "mountain"),
    *("message", "station", "harbour", "kitchen", "picture", "number", "winter", "summer", "paper", "valley"),
    *("machine", "library", "teacher", "village", "morning", "evening", "problem", "reason", "weather"),
    *("result", "signal", "market", "forest", "island", "record", "branch", "history", "prompt", "template"),
)
VERBS = (
    *("carries", "finds", "keeps", "opens", "closes", "follows", "answers", "measures", "writes", "reads"),
    *("counts", "splits", "joins", "crosses", "returns", "builds", "checks", "holds", "sends", "watches"),
)
ADJECTIVES = (
    *("small", "quiet", "bright", "early", "late", "narrow", "wide", "plain", "green", "distant", "careful"),
    *("simple", "heavy", "gentle", "second", "third", "whole", "broken", "open", "northern"),
)
OPENERS = (
    *("Then", "Often", "Perhaps", "Therefore", "At first", "In the end", "However", "Meanwhile"),
    *("For example", "As before", "Step by step", "Of course"),
)
ABROAD = (
    *("café", "naïve", "Zürich", "smörgås", "łódź", "señor", "garçon", "Ελλάδα", "данные", "мост"),
    *("東京", "水曜日", "서울", "שלום", "مرحبا", "½", "≤", "→", "€", "🙂", "🚲", "👩‍🚀"),
)
PLACES = ("Paris", "Lisbon", "Nairobi", "Osaka", "Quito", "Tromsø", "Zürich", "São Paulo", "Reykjavík")
KEYS = (
    *(
        "name",
        "city",
        "unit",
        "query",
        "path",
        "limit",
        "count",
        "value",
        "text",
        "units",
        "date",
        "id",
        "type",
    ),
    *("function", "parameters", "arguments", "description", "properties", "required", "object", "string"),
    *(
        "integer",
        "number",
        "boolean",
        "array",
        "items",
        "enum",
        "result",
        "status",
        "error",
        "content",
        "role",
    ),
)
CODE = (
    "def add(left, right):\n    return left + right\n",
    "for index, item in enumerate(items):\n    print(index, item)\n",
    "if value is None:\n    raise ValueError('no value')\n",
    "const total = rows.map((row) => row.count).reduce((a, b) => a + b, 0);\n",
    "SELECT name, count(*) FROM records WHERE status = 'open' GROUP BY name;\n",
    "curl -s https://example.org/api/v1/items?limit=10 | jq '.result[0]'\n",
    "```python\nimport json\nprint(json.dumps({'a': 1}, indent=2))\n```\n",
    "<table>\n  <tr><td>left</td><td>right</td></tr>\n</table>\n",
)
COMMON = (
    *("hello", "please", "what", "when", "where", "which", "who", "how", "why", "could", "would", "should"),
    *("you", "your", "we", "they", "this", "that", "these", "with", "from", "about", "have", "will", "can"),
    *("today", "tomorrow", "tell", "give", "make", "look", "need", "know", "think", "write", "find", "there"),
)
TURN = (
    *("system", "user", "assistant", "tool", "think", "tool_call", "tool_response", "tools", "functions"),
    *("You may call these functions, described in JSON, one on each line:", "Write every call as"),
)
