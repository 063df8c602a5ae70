"""The embedded model family: a byte-level BPE vocabulary, trained at first use, and its model folder.

The folder is a Hugging Face one without weights. Three tokens are special: a decoder may skip them. Six tags
are added tokens but not special: a decoder keeps them and a parser reads them. All other tokens are bytes and
merges of bytes. The training text is drawn here, too, from the same words as the sampler's text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import frozen
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tito_core import InputError
from tito_io.atomic_write import write_atomically
from tito_io.families.family import Family

from .rng import Rng

MODEL = "tito-embedded-sampler"
"""The served model name, which says what this is: a sampler of words, not a language model."""
MAX_MODEL_LEN = 1_048_576
"""The most ids of a prompt and its reply: agents begin with a hundred thousand characters of system text and
tools, which take several times as many ids here as in a large vocabulary. Nothing is allocated for it."""
HERE = Path(__file__).parent
TEMPLATE = (HERE / "chat_template.jinja").read_text(encoding="utf-8")
WORDS: Mapping[str, list[str]] = json.loads((HERE / "words.json").read_text(encoding="utf-8"))
"""Words and pieces of code, of which all texts are drawn."""
START_OF_TURN, END_OF_TURN, END_OF_TEXT = "<|turn|>", "<|done|>", "<|over|>"
"""`END_OF_TEXT` is a stop token with which the chat template closes no turn: sampling it is an odd stop."""
THINK, END_THINK = "<think>", "</think>"
TOOL_CALL, END_TOOL_CALL = "<tool_call>", "</tool_call>"
SPECIAL = (END_OF_TEXT, START_OF_TURN, END_OF_TURN)
TAGS = (THINK, END_THINK, TOOL_CALL, END_TOOL_CALL, "<tool_response>", "</tool_response>")
MERGED_SIZE = 2000
"""How many bytes and merges there are; the nine named tokens come after them."""

# Punctuation takes the newlines after it, so that a merge can span two texts which a chat template writes one
# after the other. Real vocabularies do the same: it is where token ids depend on what follows.
SPLIT = r"\p{N}{1,3}| ?\p{L}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?=\S)|\s+"


@frozen
class Vocabulary:
    """The tokenizer, and the merges that the sampler undoes.

    Attributes:
        tokenizer: Encodes text as an engine does; named tokens are found in the text.
        plain: The same merges without the named tokens: `<think>` becomes the ids of its letters.
        halves: For a merged id, the two ids that it was merged from.
    """

    tokenizer: Tokenizer
    plain: Tokenizer
    halves: Mapping[int, tuple[int, int]]

    @property
    def size(self) -> int:
        """Return the number of ids; every id is below it."""
        return self.tokenizer.get_vocab_size()

    def id(self, token: str) -> int:
        """Return the id of a named token, such as `END_OF_TURN`."""
        identifier = self.tokenizer.token_to_id(token)
        assert identifier is not None, token  # noqa: S101  # only the tokens named in this file are asked for
        return int(identifier)

    def encode(self, text: str) -> list[int]:
        """Return the canonical ids of `text`."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def spell_out(self, text: str) -> list[int]:
        """Return ids of `text` without named tokens: a tag in it becomes ordinary ids."""
        return list(self.plain.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, special tokens included."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def bytes_of(self, identifier: int) -> list[int]:
        """Return the single-byte ids that a merged id is made of."""
        if identifier not in self.halves:
            return [identifier]
        return [byte for half in self.halves[identifier] for byte in self.bytes_of(half)]


@cache
def vocabulary() -> Vocabulary:
    """Return the vocabulary, trained at the first call in this process; it is the same in every process."""
    plain = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(SPLIT), behavior="isolated", invert=False)
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    plain.pre_tokenizer = pre_tokenizers.Sequence([split, level])
    plain.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=MERGED_SIZE, show_progress=False, initial_alphabet=alphabet)
    plain.train_from_iterator(training_text(), trainer)
    tokenizer = Tokenizer.from_str(plain.to_str())
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in TAGS])
    model = json.loads(plain.to_str())["model"]
    ids = model["vocab"]
    halves = {ids[left + right]: (ids[left], ids[right]) for left, right in model["merges"]}
    return Vocabulary(tokenizer, plain, halves)


@cache
def family() -> Family:
    """Return the embedded model family, loaded from a folder as any other family is; once per process."""
    with TemporaryDirectory(prefix="tito-embedded-") as folder:
        return Family.load(write_family(folder))


def write_family(path: str | Path) -> Path:
    """Write the model folder at `path`, which is created where it is missing, and return it.

    `tito_io.families.Family` and `transformers.AutoTokenizer` load it. Its files are the same on every run.
    Raises `InputError` if it is no path, or the folder cannot be written.
    """
    if not isinstance(path, str | PathLike):
        raise InputError(f"path is {path!r:.60}: give the path of a folder")
    folder, words = Path(path), vocabulary()
    # Both are stop tokens, the end-of-turn token first: sampling the other one is the odd stop.
    stops = [words.id(END_OF_TURN), words.id(END_OF_TEXT)]
    generation_config = {"do_sample": True, "eos_token_id": stops, "pad_token_id": stops[1]}
    files = {
        "tokenizer.json": words.tokenizer.to_str(pretty=False),
        "chat_template.jinja": TEMPLATE,
        "tokenizer_config.json": json.dumps(_tokenizer_config(words), indent=2) + "\n",
        "generation_config.json": json.dumps(generation_config, indent=2) + "\n",
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_atomically(folder / name, text)
    except OSError as error:
        raise InputError(f"{error.filename or folder} cannot be written: {error.strerror}") from error
    return folder


def _tokenizer_config(words: Vocabulary) -> dict[str, Any]:
    flags = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "added_tokens_decoder": {
            str(words.id(token)): {"content": token, **flags, "special": token in SPECIAL}
            for token in (*SPECIAL, *TAGS)
        },
        "additional_special_tokens": [START_OF_TURN, END_OF_TURN],
        "bos_token": None,
        "eos_token": END_OF_TURN,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_MODEL_LEN,
    }


def training_text() -> Iterator[str]:
    """Yield the texts that the vocabulary is trained on, about 54 thousand characters in all."""
    rng = Rng("corpus")
    yield from ROLE_WORDS
    yield " ".join(COMMON_WORDS * 3)
    for index in range(260):
        yield " ".join(sentence(rng) for _ in range(2)) + "\n\n"
        keys, place = [rng.pick(KEYS) for _ in range(3)], rng.pick(PLACES)
        values = [place, rng.between(0, 500), {"type": rng.pick(KEYS), "items": [rng.pick(NOUNS)]}]
        record, indent = dict(zip(keys, values, strict=True)), 2 if rng.chance(0.2) else None
        yield json.dumps(record, ensure_ascii=False, indent=indent) + "\n"
        if index % 4 == 0:
            yield rng.pick(CODE)
            yield f"{index}. {rng.pick(NOUNS)} - {rng.between(0, 9999)}; "
            yield f"{rng.pick(FOREIGN_WORDS)}, {rng.pick(PLACES)}\n"


def sentence(rng: Rng, echoed: Sequence[str] = ()) -> str:
    """Return one sentence; half the time one of the words in `echoed` is in it."""
    parts = [rng.pick(OPENERS) + ", the"] if rng.chance(0.4) else ["The"]
    parts += [rng.pick(ADJECTIVES), rng.pick(NOUNS), rng.pick(VERBS), "the"]
    if echoed and rng.chance(0.5):
        parts += [rng.pick(echoed), "and the"]
    parts.append(rng.pick(NOUNS))
    if rng.chance(0.35):
        parts += ["of", rng.pick(FOREIGN_WORDS)]
    return " ".join(parts) + rng.pick((".", ".", ".", "!", "?", ";", "..."))


def passage(rng: Rng, echoed: Sequence[str] = ()) -> str:
    """Return one to three sentences, sometimes with a list or a piece of code after them."""
    between = rng.pick((" ", " ", "\n", "\n\n"))
    text = between.join(sentence(rng, echoed) for _ in range(rng.between(1, 3)))
    if rng.chance(0.12):
        text += "\n\n" + rng.pick(CODE).rstrip("\n")
    elif rng.chance(0.12):
        text += "\n" + "\n".join(f"- {rng.pick(NOUNS)}: {rng.between(0, 999)}" for _ in range(3))
    return text


def _words(name: str) -> tuple[str, ...]:
    return tuple(WORDS[name])


NOUNS, VERBS, ADJECTIVES = _words("nouns"), _words("verbs"), _words("adjectives")
OPENERS, PLACES, FOREIGN_WORDS = _words("openers"), _words("places"), _words("foreign_words")
KEYS, CODE = _words("keys"), _words("code")
COMMON_WORDS, ROLE_WORDS = _words("common_words"), _words("role_words")
