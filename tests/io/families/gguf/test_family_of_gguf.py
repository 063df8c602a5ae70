"""`Family.of_gguf` gives the ids of the model folder that a GGUF file was made from, or refuses by name.

TITO_GGUF_FAMILIES=qwen3,gpt-oss compares these model folders of TITO_FAMILIES, `all` all of them: each takes
ten seconds.
"""

from __future__ import annotations

import json
import os
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from tests.gguf_file import metadata_of, write_gguf
from tests.io.families.family_folder import NOON, expected, load, reference, rendered, write
from tests.io.families.test_real import CONVERSATIONS, OPTIONS
from tests.model_folders import FAMILIES
from tito_io.families import Family
from tito_io.families.fast.texts import texts
from tito_io.families.folder import FolderError
from tito_io.families.gguf.splits import SPLITTINGS

CHATML = (
    "{%- for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content }}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CORPUS = ["the quick brown Fox's 1234 camelCase words", "été e\u0301te\u0301 東京 don't", "a  b\n\n\tc"] * 2
TEXTS = [
    *CORPUS,
    "e\u0301",
    "<|im_end|><think>x</think>",
    " 12345 MixedCase",
    "x\r\n y",
    "<think>\n",
    "\u00bd",
]
MESSAGES = [{"role": "user", "content": "Is été 1234?"}, {"role": "assistant", "content": " Yes.\n"}]


@pytest.fixture(params=SPLITTINGS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a model folder whose tokenizer splits by the rule that its name is."""
    rule = SPLITTINGS[request.param]
    tokenizer = Tokenizer(BPE())
    if rule.normalizer:
        tokenizer.normalizer = rule.normalizer
    tokenizer.pre_tokenizer = rule.pre_tokenizer
    trainer = BpeTrainer(vocab_size=330, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    path = tmp_path / request.param
    config = {
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    saved = json.loads(tokenizer.to_str())
    saved["model"]["ignore_merges"] = rule.ignore_merges
    saved["decoder"] = {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    }
    return write(
        path, {"tokenizer.json": saved, "tokenizer_config.json": config, "chat_template.jinja": CHATML}
    )


def of(folder: Path, **changed: Any) -> Family:
    """Return the family of a folder as a GGUF file; a change to None leaves a key out."""
    metadata = {
        **metadata_of(folder, folder.name),
        **{key.replace("__", "."): value for key, value in changed.items()},
    }
    kept = {key: value for key, value in metadata.items() if value is not None}
    return Family.of_gguf(write_gguf(folder / "m.gguf", kept), clock=lambda: NOON)


def added(family: Family) -> dict[int, tuple[str, bool]]:
    tokens = family.tokenizer.get_added_tokens_decoder()
    return {index: (token.content, token.special) for index, token in tokens.items()}


def test_ids_and_texts_are_those_of_the_folder(folder: Path) -> None:
    ours, theirs, tokenizer = of(folder), load(folder), reference(folder)
    for text in TEXTS:
        ids = ours.encode(text)
        assert ids == theirs.encode(text) == tokenizer(text, add_special_tokens=False)["input_ids"]
        assert ours.decode(ids) == theirs.decode(ids)
    assert ours.vocab_size == theirs.vocab_size
    assert added(ours) == added(theirs)
    want = expected(tokenizer, MESSAGES, add_generation_prompt=True)
    assert rendered(ours, MESSAGES, add_generation_prompt=True) == want is not None


SPACED = {
    "general.architecture": "tito",
    "tokenizer.ggml.model": "gemma4",
    "tokenizer.ggml.tokens": [
        "<unk>",
        "<bos>",
        "a",
        "b",
        "\u2581",
        "\u2581a",
        "<0x0A>",
        "<0xC3>",
        "<0xA9>",
        "[PAD9]",
    ],
    "tokenizer.ggml.token_type": [2, 3, 1, 1, 1, 1, 6, 6, 6, 5],
    "tokenizer.ggml.merges": ["\u2581 a"],
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.chat_template": "{{ bos_token }}",
}


def test_a_vocabulary_with_signs_for_spaces(tmp_path: Path) -> None:
    family = Family.of_gguf(write_gguf(tmp_path / "m.gguf", SPACED))
    ids = family.encode("a a  a<bos>\n\u00e9b")
    assert ids == [2, 5, 4, 5, 1, 6, 7, 8, 3]
    assert family.decode(ids) == "a a  a<bos>\n\u00e9b"
    assert family.encode("\u4e00") == [0]


@pytest.mark.parametrize("unknown", [None, "x", 99])
def test_a_vocabulary_with_signs_for_spaces_needs_an_unknown_token(tmp_path: Path, unknown: Any) -> None:
    metadata = {key: value for key, value in SPACED.items() if "unknown" not in key}
    given = metadata if unknown is None else {**metadata, "tokenizer.ggml.unknown_token_id": unknown}
    with pytest.raises(FolderError, match="has no unknown token"):
        Family.of_gguf(write_gguf(tmp_path / "m.gguf", given))


@pytest.mark.parametrize("folder", ["llama-bpe"], indirect=True)
class TestOneFile:
    def test_special_tokens_and_stops_come_from_the_file(self, folder: Path) -> None:
        family = of(folder)
        assert family.special_tokens == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
        assert [family.decode([index]) for index in family.stop_ids] == ["<|im_end|>", "<|endoftext|>"]
        assert family.path == folder / "m.gguf"

    def test_an_id_out_of_range_is_no_token(self, folder: Path) -> None:
        family = of(folder, tokenizer__ggml__eos_token_id=10_000)
        assert "eos_token" not in family.special_tokens
        assert [family.decode([index]) for index in family.stop_ids] == ["<|im_end|>", "<|endoftext|>"]

    def test_templates_have_names(self, folder: Path) -> None:
        metadata = {
            **metadata_of(folder, folder.name),
            "tokenizer.chat_template.tool_use": "with {{ tools }}",
        }
        file = write_gguf(folder / "m.gguf", metadata)
        tools = [{"type": "function", "function": {"name": "f"}}]
        assert Family.of_gguf(file).text(MESSAGES, tools=tools).startswith("with [{")
        assert Family.of_gguf(file).text(MESSAGES).startswith("<|im_start|>user")
        assert Family.of_gguf(file, template="tool_use").text(MESSAGES) == "with None"

    def test_a_template_may_come_from_a_file(self, folder: Path) -> None:
        (folder / "other.jinja").write_text("other")
        of(folder)
        file = folder / "m.gguf"
        assert Family.of_gguf(file, template=str(folder / "other.jinja")).text(MESSAGES) == "other"
        with pytest.raises(FolderError, match=r"has no template lost\.jinja"):
            Family.of_gguf(file, template="lost.jinja")

    @pytest.mark.parametrize(
        ("key", "value", "said"),
        [
            ("tokenizer.ggml.model", None, "has no tokenizer"),
            ("tokenizer.ggml.model", "llama", "SentencePiece"),
            ("tokenizer.ggml.model", "bert", "kind 'bert': known are gpt2, gemma4"),
            ("tokenizer.ggml.pre", None, "by the rule None"),
            ("tokenizer.ggml.pre", "dbrx", "by the rule 'dbrx' .* known are deepseek-v3, "),
            ("tokenizer.ggml.tokens", [1, 2], "must be an array of texts"),
            ("tokenizer.ggml.tokens", ["a"], "values for 1 tokens"),
            ("tokenizer.ggml.token_type", None, "must be an array of integers"),
            ("tokenizer.ggml.merges", None, "must be an array of texts"),
            ("tokenizer.ggml.merges", ["ab"], "'ab', which is no pair"),
            ("tokenizer.ggml.merges", ["a zebra"], "do not fit"),
            ("tokenizer.chat_template", None, "has no chat template"),
            ("tokenizer.chat_template", 5, "must be a text"),
        ],
    )
    def test_what_cannot_be_read_exactly_is_refused(
        self, folder: Path, key: str, value: Any, said: str
    ) -> None:
        with pytest.raises(FolderError, match=said) as refused:
            of(folder, **{key.replace(".", "__"): value})
        assert str(refused.value).startswith(f"{folder / 'm.gguf'}: ")

    def test_a_token_that_stands_twice_is_refused(self, folder: Path) -> None:
        metadata = metadata_of(folder, folder.name)
        metadata["tokenizer.ggml.tokens"][5] = metadata["tokenizer.ggml.tokens"][6]
        with pytest.raises(FolderError, match="has a token twice"):
            Family.of_gguf(write_gguf(folder / "m.gguf", metadata))


CHOSEN = os.environ.get("TITO_GGUF_FAMILIES", "").split(",")
EXACT = {
    "deepseek-v3": "deepseek-v3",
    "gemma3": None,
    "glm4.5": "glm4",
    "gpt-oss": "gpt-4o",
    "kimi-k2": "kimi-k2",
    "llama3": "llama-bpe",
    "mistral-tekken": "tekken",
    "qwen2.5": "qwen2",
    "qwen3": "qwen2",
    "qwen3.5": "qwen35",
}
"""Names of rules by family, as llama.cpp's converter finds them by a hash. The tokens of the folder `gemma3`
are those of Gemma 4, a kind of its own without such a name."""
REFUSED = {"nemotron3": "pixtral", "phi3": "default", "phi4": "dbrx", "smollm3": "smaug-bpe"}
KINDS = {"gemma3": "gemma4", "phi3": "llama"}


def real(folder: str, pre: str | None, path: Path) -> Path:
    """Write the GGUF file of a real folder; skips a folder that was not asked for."""
    if not {folder, "all"} & {*CHOSEN} or not FAMILIES.is_dir():
        pytest.skip("needs TITO_FAMILIES, and the folder in TITO_GGUF_FAMILIES")
    return write_gguf(path / "m.gguf", metadata_of(FAMILIES / folder, pre, model=KINDS.get(folder, "gpt2")))


@pytest.mark.parametrize("folder", EXACT)
def test_a_real_vocabulary_gives_the_ids_of_its_folder(folder: str, tmp_path: Path) -> None:
    ours = Family.of_gguf(real(folder, EXACT[folder], tmp_path), clock=lambda: NOON)
    theirs = load(FAMILIES / folder)
    for _, text in texts(theirs.tokenizer):
        if text.encode(errors="ignore").decode() != text:
            continue  # half a surrogate pair has no ids
        ids = theirs.encode(text)
        assert ours.encode(text) == ids
        assert ours.decode(ids) == theirs.decode(ids)
    for messages, options in product(CONVERSATIONS.values(), OPTIONS):
        assert rendered(ours, messages, **options) == rendered(theirs, messages, **options)


@pytest.mark.parametrize("folder", REFUSED)
def test_a_vocabulary_that_the_file_does_not_describe_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"tokenizer\.json instead"):
        Family.of_gguf(real(folder, REFUSED[folder], tmp_path))
