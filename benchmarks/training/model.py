"""The two models that are trained: a small one from scratch, and SmolLM2-135M from its GGUF file."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from tito_io.families import Family

from .game import scripted
from .plan import Plan
from .setting import END, HEADER, SETTINGS, Setting

SPECIAL = ("<|endoftext|>", HEADER, END)
VOCABULARY = 640


def load(plan: Plan, setting: Setting, folder: Path, gguf: Path | None) -> tuple[Any, Family]:
    """Return the untrained model, with its trainable parameters chosen, and its family."""
    if gguf is None or plan.name == "small":
        model, family = _small(folder)
    else:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32
        )
        family = Family.of_gguf(gguf)
    if plan.layers is not None:
        model.requires_grad_(requires_grad=False)
        for part in (*model.model.layers[-plan.layers :], model.model.norm):
            part.requires_grad_(requires_grad=True)
    model.generation_config.do_sample = True
    model.generation_config.eos_token_id = [*family.stop_ids]
    return model.eval(), setting.family(family)


def _small(folder: Path) -> tuple[Any, Family]:
    if not (folder / "tokenizer_config.json").exists():
        _write_tokenizer(folder)
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=96,
        intermediate_size=288,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    return transformers.Qwen3ForCausalLM(config), Family.load(folder)


def _write_tokenizer(folder: Path) -> None:
    """Train a byte-level BPE on scripted games, in which numbers and words are merged."""
    rng = Random(0)  # noqa: S311  # the same games each time
    texts = [
        setting.opening()[0]["content"]
        + " Tools: guess"
        + setting.written(guess, rng)
        + setting.tail(guess.answer)
        + "Begin.\nsystem\nuser\n"
        for setting in SETTINGS.values()
        for _ in range(500)
        for guess in scripted(rng)
    ]
    tokenizer = Tokenizer(models.BPE())
    pieces = Regex(r"<\|\w+\|>| ?\d+| ?[^\s\d]+?(?=<\|)| ?[^\s\d]+|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[*SPECIAL], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": END, "chat_template": "{{ messages }}"}  # a setting brings its own
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
