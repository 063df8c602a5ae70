"""A trainer with a tiny random model, whose replies are written beforehand."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import define, field, frozen
from datasets import Dataset
from transformers import Qwen3Config, Qwen3ForCausalLM
from trl import GRPOConfig, GRPOTrainer

FAMILIES = os.environ.get("TITO_FAMILIES")
QUESTION = {"role": "user", "content": "What is 3 * 4 * 4?"}


def multiply(a: int, b: int) -> int:
    """Multiply two integers.

    Args:
        a: The first integer.
        b: The second integer.
    """
    return a * b


def no_zero() -> Callable[[int, int], int]:
    """Return a tool with the name of `multiply` that raises for a zero."""

    def multiply(a: int, b: int) -> int:
        """Multiply two integers that are no zeros.

        Args:
            a: The first integer.
            b: The second integer.
        """
        if not a * b:
            raise ValueError("a zero")
        return a * b

    return multiply


def spelled(tokenizer: Any, text: str) -> list[int]:
    """Return ids of a text, special tokens as they are and everything else letter by letter.

    A tokenizer gives other ids for the same text, so that ids which were made from text are noticed.
    """
    known = [re.escape(token) for token in tokenizer.get_added_vocab()]
    ids: list[int] = []
    for part in re.split(f"({'|'.join(known)})", text):
        letters = [part] if part in tokenizer.get_added_vocab() else list(part)
        ids += [one for letter in letters for one in tokenizer.encode(letter, add_special_tokens=False)]
    return ids


@frozen
class Model:
    """A tokenizer, and how its model writes calls.

    Attributes:
        tokenizer: The tokenizer, with its own chat template.
        stops: The ids that end a turn.
        call: The text of a call of `multiply` with a stop; `{a}` and `{b}` stand for the numbers.
        answer: The text of an answer with a stop.
        parse: The parser, None for TRL's.
    """

    tokenizer: Any
    stops: tuple[int, ...]
    call: str
    answer: str
    parse: Callable[[list[int], list[int]], Any] | None = None

    def calling(self, a: int, b: int) -> list[int]:
        """Return sampled ids of a call."""
        return spelled(self.tokenizer, self.call.replace("{a}", str(a)).replace("{b}", str(b)))

    def answering(self, text: str = "48") -> list[int]:
        """Return sampled ids of an answer."""
        return spelled(self.tokenizer, self.answer.replace("{}", text))


@define
class Engine:
    """Samples the replies that it was given, to the conversation which a prompt continues.

    Attributes:
        replies: The replies of each conversation.
        pad: The id after shorter replies.
        prompts: The prompts of each conversation, as the model saw them.
    """

    replies: Sequence[Sequence[list[int]]]
    pad: int
    prompts: list[list[list[int]]] = field(init=False)

    @prompts.default
    def _none(self) -> list[list[list[int]]]:
        return [[] for _ in self.replies]

    def __call__(self, input_ids: Any, attention_mask: Any, **_: Any) -> Any:
        asked = [row[kept.bool()].tolist() for row, kept in zip(input_ids, attention_mask, strict=True)]
        replies = [self._reply(prompt) for prompt in asked]
        longest = max(map(len, replies))
        padded = [reply + [self.pad] * (longest - len(reply)) for reply in replies]
        return torch.cat([input_ids, torch.tensor(padded)], dim=-1)

    def _reply(self, prompt: list[int]) -> list[int]:
        """Return the next reply; fails for a prompt that does not begin with the ids before it."""
        for prompts, replies in zip(self.prompts, self.replies, strict=True):
            turn = len(prompts)
            before = [*prompts[-1], *replies[turn - 1]] if turn else []
            if turn < len(replies) and prompt[: len(before)] == before:
                prompts.append(prompt)
                return replies[turn]
        raise AssertionError("this prompt continues no conversation")


@define
class Trained:
    """What training steps did.

    Attributes:
        trainer: The trainer.
        batches: What was trained on, step by step.
        rewarded: What reward functions were given, step by step.
        changed: How many parameters changed.
    """

    trainer: Any
    batches: list[dict[str, Any]] = field(factory=list)
    rewarded: list[dict[str, Any]] = field(factory=list)
    changed: int = 0

    @property
    def losses(self) -> list[float]:
        """The loss of each step."""
        return [entry["loss"] for entry in self.trainer.state.log_history if "loss" in entry]

    def rows(self, name: str) -> list[list[Any]]:
        """Return a column of all batches, without padding."""
        return [
            row[kept.bool()].tolist()
            for batch in self.batches
            for row, kept in zip(batch[name], batch["completion_mask"], strict=True)
        ]

    def sampled(self) -> list[list[int]]:
        """Return the ids that each row trains on."""
        pairs = zip(self.rows("completion_ids"), self.rows("tool_mask"), strict=True)
        return [[one for one, trained in zip(ids, mask, strict=True) if trained] for ids, mask in pairs]


def made(model: Model, folder: Path, *, steps: int = 1, **given: Any) -> Trained:
    """Make a trainer with a tiny random model; `given` are arguments of the trainer and its options."""
    config = Qwen3Config(
        vocab_size=len(model.tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=given.pop("context", 8192),
    )
    network = Qwen3ForCausalLM(config)
    network.generation_config.eos_token_id = list(model.stops)
    network.generation_config.pad_token_id = model.tokenizer.pad_token_id
    rows = [{"prompt": [QUESTION]}] * 2 * steps
    return trainer_of(network, model.tokenizer, rows, folder, steps=steps, **given)


def trainer_of(
    network: Any, processing_class: Any, rows: list[Any], folder: Path, *, steps: int = 1, **given: Any
) -> Trained:
    """Make a trainer of a network on rows of a data set."""
    named = {name: given.pop(name) for name in ("rollout_func", "tools") if name in given}
    seen = Trained(None)

    def reward(completions: list[Any], **columns: Any) -> list[float]:
        seen.rewarded.append({"completions": completions, **columns})
        return [float(number) for number in range(len(completions))]

    seen.trainer = GRPOTrainer(
        model=network,
        reward_funcs=reward,
        args=_options(folder, steps, given),
        train_dataset=Dataset.from_list(rows),
        processing_class=processing_class,
        **named,
    )
    return seen


def train(model: Model, engine: Engine, folder: Path, **given: Any) -> Trained:
    """Train on what the engine samples; the other arguments are those of `made`."""
    return trained(made(model, folder, **given), engine)


def trained(seen: Trained, engine: Engine) -> Trained:
    """Train on what the engine samples."""
    network = seen.trainer.model
    _watched(seen, engine)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    seen.trainer.train()
    seen.changed = sum(not torch.equal(before[name], value) for name, value in network.named_parameters())
    return seen


def _options(folder: Path, steps: int, given: dict[str, Any]) -> GRPOConfig:
    common: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 2,
        "num_generations": 2,
        "max_completion_length": 1000,
        "max_steps": steps,
        "learning_rate": 0.1,
        "logging_steps": 1,
        "use_cpu": True,
        "bf16": False,
        "activation_checkpointing": False,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    return GRPOConfig(**{**common, **given})


def _watched(seen: Trained, engine: Engine) -> None:
    """Let the engine sample, and keep what the trainer makes of it."""
    seen.trainer.model.generate = engine
    score = seen.trainer._generate_and_score_completions

    def scored(inputs: Any) -> Any:
        found = score(inputs)
        seen.batches.append(found)
        return found

    seen.trainer._generate_and_score_completions = scored
