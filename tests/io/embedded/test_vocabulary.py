"""The embedded vocabulary: trained the same everywhere, and open about its merges."""

import subprocess
import sys

import pytest

from tito_io.embedded.vocabulary import (
    END_OF_TEXT,
    END_OF_TURN,
    END_TOOL_CALL,
    SPECIAL,
    START_OF_TURN,
    TAGS,
    TOOL_CALL,
    training_text,
    vocabulary,
)

TRAINED = (
    "import hashlib; from tito_io.embedded.vocabulary import vocabulary as v;"
    "print(hashlib.sha256(v().tokenizer.to_str().encode()).hexdigest())"
)


@pytest.mark.whole
def test_every_process_trains_the_same_vocabulary() -> None:
    found = set()
    for seed in ("1", "2"):
        environment = {"PYTHONHASHSEED": seed, "RAYON_NUM_THREADS": seed, "PYTHONPATH": "."}
        done = subprocess.run(
            [sys.executable, "-c", TRAINED], env=environment, capture_output=True, text=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_the_corpus_is_of_many_kinds() -> None:
    text = "".join(training_text())
    assert text == "".join(training_text())
    assert 20_000 < len(text) < 100_000
    for kind in ("the", '{"', "def add(", "東京", "🙂", "\n\n", "https://", "0"):
        assert kind in text


def test_an_id_has_the_text_of_its_two_halves() -> None:
    words = vocabulary()
    assert len(words.halves) > 1000
    for merged, (left, right) in words.halves.items():
        assert words.decode([left, right]) == words.decode([merged])


def test_bytes_of_an_id_are_all_single_bytes() -> None:
    words = vocabulary()
    for merged in words.halves:
        found = words.bytes_of(merged)
        assert not any(one in words.halves for one in found)
        assert words.decode(found) == words.decode([merged])


@pytest.mark.parametrize(
    "text", ["naïve café", "a\n\n  b\t", "🙂👩‍🚀", '{"a": [1, 2.5e-3]}\n', "\x00\x7f", ""]
)
def test_any_text_comes_back_from_its_ids(text: str) -> None:
    words = vocabulary()
    assert words.decode(words.encode(text)) == text
    assert words.decode(words.spell_out(text)) == text


def test_named_tokens_are_one_id_and_can_also_be_spelled_out() -> None:
    words = vocabulary()
    for token in (*SPECIAL, *TAGS):
        assert words.encode(token) == [words.id(token)]
        spelled = words.spell_out(token)
        assert len(spelled) > 1
        assert words.id(token) not in spelled
        assert words.decode(spelled) == token


def test_special_tokens_can_be_skipped_and_tags_cannot() -> None:
    words = vocabulary()
    ids = words.encode(f"{START_OF_TURN}a{TOOL_CALL}b{END_TOOL_CALL}{END_OF_TURN}{END_OF_TEXT}")
    assert words.tokenizer.decode(ids, skip_special_tokens=True) == f"a{TOOL_CALL}b{END_TOOL_CALL}"


def test_a_newline_merges_with_the_punctuation_before_it() -> None:
    words = vocabulary()
    assert len(words.encode("}\n")) < len(words.encode("}")) + len(words.encode("\n"))
