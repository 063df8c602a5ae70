"""What ids say, asked of a tokenizer that lies anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest

from tito_core import InputError
from tito_io.engines.protocol import Rendering
from tito_io.engines.replies.harmony import MARKERS
from tito_io.engines.replies.hermes import BRACKETS, TAGS
from tito_io.engines.replies.output_parser import Harmony, Hermes, OutputParser

pytestmark = pytest.mark.anyio


@attrs.define
class Letters:
    """A tokenizer of letters, and of some texts that are tokens; it keeps what it was asked."""

    tokens: dict[str, int]
    asked: list[object] = attrs.field(factory=list)

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text."""
        self.asked.append(text)
        for token, index in self.tokens.items():
            text = text.replace(token, chr(index))
        return [ord(letter) for letter in text]

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        self.asked.append(tuple(ids))
        names = {index: token for token, index in self.tokens.items()}
        return "".join(names.get(index) or chr(index) for index in ids)


def letters(texts: Sequence[str]) -> Letters:
    return Letters({text: 5000 + place for place, text in enumerate(texts)})


CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize(("parser_class", "texts"), [(Hermes, TAGS), (Harmony, MARKERS)])
async def test_what_must_be_known_is_asked_once(
    parser_class: type[Hermes | Harmony], texts: tuple[str, ...]
) -> None:
    tokenizer = letters(texts)
    parser: OutputParser = parser_class(tokenizer)
    await parser.tags()
    count = len(tokenizer.asked)
    await parser.tags()
    await parser.parsed([1], [104, 105], "hi", whole=True, rendering=None)
    assert count > 0
    assert len(tokenizer.asked) == count, "a plain text needs no question"


@pytest.mark.parametrize("whole", [True, False])
async def test_a_call_counts_where_its_tags_were_sampled(whole: bool) -> None:
    tokenizer = letters(TAGS)
    parser = Hermes(tokenizer)
    sampled = await tokenizer.encode(CALL)
    parsed = await parser.parsed([1], sampled, CALL, whole=whole, rendering=None)
    assert parsed.calls == (("f", '{"a": 1}'),)
    spelled = await parser.parsed([1], [ord(letter) for letter in CALL], CALL, whole=whole, rendering=None)
    assert (spelled.calls, spelled.content) == ((), CALL)
    assert not (await parser.parsed([1], sampled, CALL, whole=whole, rendering=Rendering())).calls


async def test_reasoning_of_mistral_needs_its_tokens() -> None:
    text = "[THINK]hm[/THINK]hi"
    for tokens, reasoning in ((TAGS, None), ((*TAGS, *BRACKETS), "hm")):
        tokenizer = letters(tokens)
        ids = await tokenizer.encode(text)
        found = await Hermes(tokenizer).parsed([1], ids, text, whole=True, rendering=None)
        assert (found.reasoning, found.content) == (reasoning, "hi" if reasoning else text)


async def test_harmony_is_told_by_its_markers() -> None:
    assert await Harmony(letters(MARKERS)).supported()
    one_token = Letters(dict.fromkeys(MARKERS, 5000))
    for tokenizer in (letters(()), letters(TAGS), letters(MARKERS[:-1]), one_token):
        assert not await Harmony(tokenizer).supported()
    with pytest.raises(InputError, match="has no harmony markers"):
        await Harmony(letters(TAGS)).tags()


async def test_the_stop_may_stand_in_the_text() -> None:
    """Servers told to show it do show it."""
    tokenizer = letters(MARKERS)
    text = "<|channel|>final<|message|>hi"
    ids = [*await tokenizer.encode(text), tokenizer.tokens["<|return|>"]]
    parser = Harmony(tokenizer)
    for said in (text, text + "<|return|>"):
        assert (await parser.parsed([1], ids, said, whole=True, rendering=None)).content == "hi"
