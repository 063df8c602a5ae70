"""Whatever the fast tokenizer does, the ids are those of the reference, and a difference is noticed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.normalizers import NFKC

from tests.io.families.family_folder import tiny_folder
from tests.io.families.fast.package import COMPILED, installed
from tito_core import InputError
from tito_io.families.family import Family
from tito_io.families.fast import fast_tokenizer, library
from tito_io.families.fast.texts import texts

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = "the quick brown fox"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep certificates apart, and compare a few texts: the whole comparison has a test of its own."""
    monkeypatch.setenv("TITO_CACHE", str(tmp_path / "cache"))
    few = [("words", "hello world"), ("surrogates", "\ud800")]
    monkeypatch.setattr(fast_tokenizer, "texts", lambda _: iter(few))
    return tmp_path / "cache" / "certificates"


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with installed(tmp_path, monkeypatch) as tokenizer:
        yield tokenizer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_folder(tmp_path / "model", CHATML)


def use_of(family: Family) -> fast_tokenizer.FastUse:
    assert family.fast is not None
    return family.fast.use


def test_texts_are_encoded_by_the_package_once_it_was_compared(folder: Path, fast: Any) -> None:
    family = Family.load(folder, fast=True)
    compared = [one for one in fast.encoded if one.startswith("<|im_start|>")]
    found = use_of(family).certificate
    assert found is not None
    assert (found.difference, found.texts) == (None, 2 + len(compared) // 2)  # each is encoded twice
    fast.encoded.clear()
    assert family.encode(TEXT) == Family.load(folder).encode(TEXT)
    assert fast.encoded == [TEXT]


def test_the_use_is_readable(folder: Path, fast: Any) -> None:
    use = use_of(Family.load(folder, fast=True))
    assert use.certificate is not None
    compared = f"fastokens is in use: {use.certificate.texts} texts were compared, and "
    assert str(use) == f"{compared}one of 100 texts is encoded by tokenizers, too"
    use.check_every = 1
    assert str(use) == f"{compared}every text is encoded by tokenizers, too"
    assert "<function" not in repr(use)
    fast.planted.append("hello")
    assert use_of(Family.load(folder, fast=True)).off is None  # as the certificate says
    use.differed()
    assert str(use) == "fastokens is not in use: it gave other ids than the reference"


def test_the_prompts_of_the_template_are_compared(folder: Path, fast: Any) -> None:
    fast.planted.append("<|im_start|>assistant\n")
    family = Family.load(folder, fast=True)
    assert use_of(family).off == "it gave other ids than the reference (prompts)"
    assert use_of(family).certificate is not None
    assert family.encode("<|im_start|>assistant\n") == Family.load(folder).encode("<|im_start|>assistant\n")


def test_nothing_changes_where_it_is_not_asked_for(folder: Path, fast: Any) -> None:
    family = Family.load(folder)
    assert family.fast is None
    family.encode(TEXT)
    assert fast.encoded == []


def test_a_missing_package_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastokens", None)
    with pytest.raises(InputError, match=r"fast: fastokens is missing: install it with .*\[fast\]"):
        Family.load(folder, fast=True)


def test_a_planted_difference_switches_it_off_before_the_first_use(
    folder: Path, fast: Any, caplog: pytest.LogCaptureFixture, cache: Path
) -> None:
    fast.planted.append("hello")
    family = Family.load(folder, fast=True)
    reason = "it gave other ids than the reference (words)"
    assert use_of(family).off == reason
    assert f"{folder}: fastokens is not used: {reason}" in caplog.messages
    fast.encoded.clear()
    assert family.encode("hello") == Family.load(folder).encode("hello")
    assert fast.encoded == []
    assert len(list(cache.iterdir())) == 1
    fast.planted.clear()  # the certificate says so in later processes, too
    assert use_of(Family.load(folder, fast=True)).off == reason


def test_a_difference_in_use_switches_it_off_and_later_processes_know(
    folder: Path, fast: Any, caplog: pytest.LogCaptureFixture
) -> None:
    family, right = Family.load(folder, fast=True, check_every=3), Family.load(folder)
    noticed: list[None] = []
    use_of(family).on_difference = lambda: noticed.append(None)
    fast.planted.append("fox")
    assert family.encode(TEXT) != right.encode(TEXT)  # this one in three is not compared
    assert family.encode("hello") == right.encode("hello")
    assert family.encode(TEXT) == right.encode(TEXT)
    assert use_of(family).differences == len(noticed) == 1
    (said,) = (one for one in caplog.messages if "switched off" in one)
    assert "one in 3" in said
    assert TEXT not in said
    fast.encoded.clear()
    assert family.encode(TEXT) == right.encode(TEXT)
    assert fast.encoded == []
    fast.planted.clear()
    assert use_of(Family.load(folder, fast=True)).off == "it gave other ids than the reference (in use)"


def test_a_failure_of_the_package_is_a_difference(folder: Path, fast: Any) -> None:
    family = Family.load(folder, fast=True)
    fast.failing.append("fox")
    assert family.encode(TEXT) == Family.load(folder).encode(TEXT)
    assert use_of(family).differences == 1


def test_what_both_refuse_is_no_difference(folder: Path, fast: Any) -> None:
    family = Family.load(folder, fast=True, check_every=1)
    fast.encoded.clear()
    with pytest.raises(InputError, match="half a surrogate pair"):
        family.encode("a\ud800")
    assert use_of(family).off is None
    assert family.encode(TEXT)
    assert fast.encoded == [TEXT]


def test_a_vocabulary_that_the_package_cannot_read(folder: Path, fast: Any) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = NFKC()
    tokenizer.save(str(folder / "tokenizer.json"))
    family = Family.load(folder, fast=True)
    assert use_of(family).off == "it cannot read this tokenizer.json"
    assert family.encode(TEXT) == Family.load(folder).encode(TEXT)
    assert fast.encoded == []


def certified_again(folder: Path, fast: Any) -> bool:
    fast.encoded.clear()
    Family.load(folder, fast=True)
    return bool(fast.encoded)


def test_a_certificate_is_made_once(folder: Path, fast: Any) -> None:
    assert certified_again(folder, fast)
    assert not certified_again(folder, fast)


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"texts": 1, "characters": 1, "difference": null}'])
def test_a_damaged_certificate_is_missing(folder: Path, fast: Any, cache: Path, damage: bytes) -> None:
    assert certified_again(folder, fast)
    (file,) = cache.iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole.partition(b"\n")[0] + b"\n" + damage if damage else whole[:-1])
    assert certified_again(folder, fast)
    assert file.read_bytes() == whole


def split_special_tokens(folder: Path) -> None:
    config = folder / "tokenizer_config.json"
    config.write_text(config.read_text().replace("{", '{"split_special_tokens": true, ', 1))


@pytest.mark.parametrize("changed", ["version", "code", "template", "vocabulary", "split"])
def test_a_certificate_of_something_else_is_missing(
    changed: str, folder: Path, fast: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert certified_again(folder, fast)
    if changed == "version":
        with installed(tmp_path, monkeypatch, "0.3.6") as newer:
            assert certified_again(folder, newer)
        return
    if changed == "code":
        (tmp_path / "site-0.3.5" / COMPILED).write_text("another build")
        library.code_digest.cache_clear()
    elif changed == "template":
        (folder / "chat_template.jinja").write_text(CHATML + "{# another #}")
    elif changed == "vocabulary":
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.add_tokens([AddedToken("<new>")])
        tokenizer.save(str(folder / "tokenizer.json"))
    else:
        split_special_tokens(folder)
    assert certified_again(folder, fast)


def test_special_tokens_are_split_where_the_folder_says_so(folder: Path, fast: Any) -> None:
    split_special_tokens(folder)
    text = "<|im_start|>user"
    family = Family.load(folder, fast=True)
    assert use_of(family).off is None
    assert family.encode(text) == Family.load(folder).encode(text)
    assert family.tokenizer.token_to_id("<|im_start|>") not in family.encode(text)
    assert fast.encoded[-1] == text


def test_text_with_a_token_that_was_added_later_goes_to_the_reference(folder: Path, fast: Any) -> None:
    tokens = ["\ue000x\ue001", "(("]
    family = Family.load(folder, fast=True).with_special_tokens(tokens)
    right = Family.load(folder).with_special_tokens(tokens)
    fast.encoded.clear()
    assert family.encode(f"{TEXT}(({TEXT}") == right.encode(f"{TEXT}(({TEXT}")
    assert right.tokenizer.token_to_id("((") in right.encode("((")
    assert fast.encoded == []
    assert family.encode(TEXT) == Family.load(folder).encode(TEXT)
    assert fast.encoded == [TEXT]


def test_a_tokenizer_that_was_changed_in_place_is_not_encoded_by_its_twin(folder: Path, fast: Any) -> None:
    family = Family.load(folder, fast=True)
    digest = family.vocabulary_digest
    family.tokenizer.add_special_tokens(["\ue000x\ue001"])
    fast.encoded.clear()
    assert family.tokenizer.token_to_id("\ue000x\ue001") in family.encode(f"{TEXT}\ue000x\ue001")
    assert fast.encoded == []
    assert attrs.evolve(family).vocabulary_digest != digest


def test_another_tokenizer_is_not_encoded_by_the_first_ones_twin(folder: Path, fast: Any) -> None:
    family = Family.load(folder, fast=True)
    fast.encoded.clear()
    other = attrs.evolve(family, tokenizer=Tokenizer.from_file(str(folder / "tokenizer.json")))
    assert other.encode(TEXT) == family.tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert fast.encoded == []


@pytest.mark.usefixtures("fast")
def test_a_token_that_was_known_and_gets_other_options_ends_the_use(folder: Path) -> None:
    family = Family.load(folder, fast=True)
    assert family.with_special_tokens(["<new>"]).fast is not None
    assert family.with_special_tokens(["<new>", "<eos>"]).fast is None


@pytest.mark.usefixtures("fast")
def test_profiles_that_were_asked_with_it_are_kept_apart(folder: Path) -> None:
    with_it, without = (Family.load(folder, fast=one).tokenize_fn() for one in (True, False))
    assert with_it.origin() == {**without.origin(), "fast": "fastokens 0.3.5"}
    use_of(with_it.family).off = "it gave other ids than the reference"
    assert with_it.origin() == without.origin()


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("number", [0, -1])
def test_check_every_counts_from_one(folder: Path, number: int) -> None:
    with pytest.raises(InputError, match="check_every"):
        Family.load(folder, fast=True, check_every=number)


def test_the_texts_are_the_same_each_time_and_hold_all_tokens(folder: Path) -> None:
    tokenizer = Family.load(folder).tokenizer
    first, again = list(texts(tokenizer)), list(texts(tokenizer))
    assert first == again
    whole = {kind: "".join(text for one, text in first if one == kind) for kind, _ in first}
    assert list(whole) == [
        *("added tokens", "code points", "vocabulary", "long runs"),
        *("words and white space", "any characters", "surrogates"),
    ]
    assert all(
        token.content in whole["added tokens"] for token in tokenizer.get_added_tokens_decoder().values()
    )
    assert {"a", "é", "東", "\u0301", "🦊", "\u2028"} <= set(whole["code points"])
    assert len(first) > 1_000
