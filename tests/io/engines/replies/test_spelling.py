"""The text of a turn belongs to its ids, or to others, whatever an engine leaves out or writes otherwise."""

from __future__ import annotations

import random
from functools import cache
from itertools import pairwise

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

from tests.io.engines.recorded_exchanges import FOLDER
from tests.io.engines.recorded_vocabulary import family
from tests.model_folders import FAMILIES, NAMES, needs_families
from tito_io.engines.replies.spelling import Spelling
from tito_io.engines.replies.text_stream import INCOMPLETE
from tito_io.families.family import Family

from .recorded_texts import RecordedTurn, recorded_turns

FILES = {"vllm*": 90, "sglang*": 15, "dynamo*": 200, "llamacpp*": 15}
"""The recorded exchanges of each engine, and how many turns at least are compared."""
SPELLING = Spelling.of(family())
needs_exchanges = pytest.mark.skipif(not FOLDER, reason="needs recorded exchanges: TITO_EXCHANGES=DIR")
TEXT = "The bridge — 橋 🙂 — is “open”: naïve café, 12,345 m.\n\n\tdef f(x):\n        return x  # ok\n" * 3


@cache
def turns(files: str) -> list[RecordedTurn]:
    return recorded_turns(files)


@needs_exchanges
@pytest.mark.parametrize("files", FILES)
def test_a_real_engines_text_is_that_of_its_ids(files: str) -> None:
    found = turns(files)
    assert len(found) >= FILES[files]
    least = {one: len(one.ids) if one.whole else 0 for one in found}
    assert [one.name for one in found if SPELLING.other_text(one.ids, one.text, least[one]) is not None] == []


@needs_exchanges
@pytest.mark.parametrize("files", FILES)
def test_ids_that_are_swapped_in_a_real_engines_turn_are_found(files: str) -> None:
    """Those that spell the same in either order cannot be, nor those behind a part of a character."""
    swaps = [(one, place) for one in turns(files) if one.whole for place in range(0, len(one.ids) - 1, 5)]
    planted = [(one, place, swapped(one.ids, place)) for one, place in swaps]
    visible = [(one, place, ids) for one, place, ids in planted if written(ids) != written(one.ids)]
    visible = [one for one in visible if INCOMPLETE not in written(one[0].ids) + written(one[2])]
    assert len(visible) >= 10
    for turn, place, ids in visible:
        found = SPELLING.other_text(ids, turn.text, len(ids))
        assert found is not None
        assert found <= place + 1


def swapped(ids: tuple[int, ...], place: int) -> tuple[int, ...]:
    return (*ids[:place], ids[place + 1], ids[place], *ids[place + 2 :])


def written(ids: tuple[int, ...]) -> str:
    """Return what is compared of the text of ids."""
    return "".join(SPELLING.added.sub("", SPELLING.decode(ids)).split())


@needs_families
@pytest.mark.parametrize("name", NAMES)
def test_text_that_is_streamed_as_engines_do_is_that_of_the_ids(name: str) -> None:
    """Over likely and unlikely ids after a prompt; special tokens are shown or left out."""
    found = Family.load(FAMILIES / name)
    spelling, drawn = Spelling.of(found), random.Random(name)  # noqa: S311  # the same ids each time
    likely, special = found.encode(TEXT), [*found.tokenizer.get_added_tokens_decoder()]
    for place in range(60):
        start, kind = drawn.randrange(len(likely) // 2), drawn.random()
        ids = [
            index if drawn.random() > kind else drawn.choice((drawn.choice(special), drawn.choice(likely)))
            for index in likely[start : start + drawn.choice((1, 3, 40))]
        ]
        text = streamed(found.tokenizer, likely[max(start - 5, 0) : start], ids, skip=bool(place % 2))
        assert spelling.other_text(ids, text, len(ids)) is None, (ids, text)


def streamed(tokenizer: Tokenizer, prompt: list[int], ids: list[int], *, skip: bool) -> str:
    """Return a text as vLLM decodes it: by the library's stream, begun again where that gives up."""
    stream, text = DecodeStream(skip_special_tokens=skip), ""
    for place, index in enumerate((*prompt, *ids)):
        try:
            piece = stream.step(tokenizer, index)
        except Exception:  # noqa: BLE001  # the library has no class for it
            stream = DecodeStream(skip_special_tokens=skip)
            piece = stream.step(tokenizer, index)
        text += (piece or "") if place >= len(prompt) else ""
    return text


LETTERS = Spelling(lambda ids: "".join(map(chr, ids)), SPELLING.added, lambda index: chr(index) or None)


def spelled(text: str) -> list[int]:
    return list(map(ord, text))


@pytest.mark.parametrize(
    ("ids", "text", "least"),
    [
        ("so<|im_end|>", "so", 13),
        ("so<|im_end|>", "so<|im_end|>", 13),
        (" so it\n", "so it", 7),
        ("so</s>", "so", 2),
        ("so it", "", 0),
        (f"so{INCOMPLETE}it", "so", 5),
        (f"so{INCOMPLETE}", "soé", 3),
        ("soé", f"so{INCOMPLETE}", 3),
        (f"so {INCOMPLETE * 3} it", f"so {INCOMPLETE} other", 8),
        ("so <|im_end|> it", "so <|im", 0),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_engines_leave_out_or_write_otherwise_is_no_difference(ids: str, text: str, least: int) -> None:
    assert LETTERS.other_text(spelled(ids), text, least) is None


@pytest.mark.parametrize(
    ("ids", "text", "least", "place"),
    [
        ("so it", "os it", 5, 0),
        ("so it", "so is", 0, 4),
        ("so it", "so i", 5, 4),
        ("so it", "so it is", 5, 5),
        (f"so it{INCOMPLETE}", f"no it{INCOMPLETE}", 6, 0),
        ("so<|im_end|>", "s", 2, 1),
    ],
)
def test_a_text_of_other_ids_is_found_at_its_first_one(ids: str, text: str, least: int, place: int) -> None:
    assert LETTERS.other_text(spelled(ids), text, least) == place


def test_ids_that_the_vocabulary_lacks_are_not_compared() -> None:
    size = family().vocab_size
    first, second = pairwise((0, 1, 2))
    assert SPELLING.other_text([*first, size], "other", 3) is None
    assert SPELLING.other_text([*second], "other", 2) == 0
