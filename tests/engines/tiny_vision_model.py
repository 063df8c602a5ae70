"""Write a very small vision-language model with random weights.

`python -m tests.engines.tiny_vision_model FOLDER KIND` runs in the environment of `tests/processors`, which
has torch and transformers. The processor is that of `tests/processors/kinds.py`, with the vocabulary of
`tiny_model.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs

from tests.processors.kinds import KINDS, processor_of, tokenizer_of

from . import tiny_model

INIT = {"initializer_range": 0.3}
"""Weights wide enough apart that images and earlier texts matter."""
SMALL = {"hidden_size": 64, "intermediate_size": 128}
TEXT = {
    **SMALL,
    **INIT,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": tiny_model.CONTEXT,
    "tie_word_embeddings": False,
}
VISION = {**SMALL, **INIT, "num_hidden_layers": 2, "num_attention_heads": 2, "patch_size": 14}
QWEN_VISION = {**SMALL, **INIT, "depth": 2, "num_heads": 2, "out_hidden_size": 64}
ROPE = {"rope_type": "default", "rope_theta": 1_000_000.0}
TOKEN_IDS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


@attrs.frozen(kw_only=True)
class VisionModel:
    """A model of transformers and its configuration.

    Attributes:
        name: What its classes are called, without `Config` and `ForConditionalGeneration`.
        vision: The part that reads images.
        text: Settings of the part that reads texts, beside `TEXT`.
        more: Settings of the whole.
        tokens: Tokens whose ids the configuration names, by their keys.
        line_ends: Whether one to four line ends in a row are a token each, named by their own text.
        published: How the names of weights begin in published models, where `transformers` writes other ones.
    """

    name: str
    vision: Mapping[str, Any]
    text: Mapping[str, Any] = attrs.field(factory=dict)
    more: Mapping[str, Any] = attrs.field(factory=dict)
    tokens: Mapping[str, str]
    line_ends: bool = False
    published: Mapping[str, str] = attrs.field(factory=dict)


MODELS = {
    "qwen3-vl": VisionModel(
        name="Qwen3VL",
        vision={
            **QWEN_VISION,
            "patch_size": 16,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
        },
        text={"rope_parameters": {**ROPE, "mrope_section": [6, 5, 5], "mrope_interleaved": True}},
        tokens=TOKEN_IDS,
    ),
    "qwen2.5-vl": VisionModel(
        name="Qwen2_5_VL",
        vision={**QWEN_VISION, "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1]},
        text={"rope_parameters": {**ROPE, "mrope_section": [4, 6, 6]}},
        tokens=TOKEN_IDS,
    ),
    "smolvlm": VisionModel(
        name="SmolVLM",
        vision={**VISION, "image_size": 56},
        text={"model_type": "llama"},
        more={"scale_factor": 2},
        tokens={"image_token_id": "<image>"},
    ),
    "gemma3": VisionModel(
        name="Gemma3",
        vision={**VISION, "image_size": 28, "vision_use_head": False},
        text={"sliding_window": 64, "model_type": "gemma3_text"},
        more={"mm_tokens_per_image": 4},
        tokens={
            "image_token_index": "<image_soft_token>",
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
        },
        line_ends=True,
        published={"vision_tower.": "vision_tower.vision_model."},
    ),
}


def tokenizer(folder: Path, kind: str) -> Any:
    """Train the vocabulary, and return a tokenizer with the tokens of a kind."""
    tiny_model.vocabulary(folder)
    found = tokenizer_of(KINDS[kind], (folder / "tokenizer.json").read_text())
    if MODELS[kind].line_ends:
        found.add_tokens(["\n" * count for count in range(1, 5)])
    return found


def write_weights(folder: Path, model: VisionModel, words: Any) -> None:
    """Write the configuration and random weights."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    ends = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id, "bos_token_id": None}
    config = getattr(transformers, f"{model.name}Config")(
        text_config={**TEXT, **model.text, "vocab_size": len(words), **ends},
        vision_config=dict(model.vision),
        tie_word_embeddings=False,
        **model.more,
        **{key: words.convert_tokens_to_ids(text) for key, text in model.tokens.items()},
    )
    made = getattr(transformers, f"{model.name}ForConditionalGeneration")(config).to(torch.float32)
    made.generation_config = transformers.GenerationConfig(
        eos_token_id=words.eos_token_id, pad_token_id=words.pad_token_id, do_sample=True
    )
    made.save_pretrained(folder)
    rename_weights(folder / "model.safetensors", model.published)


def rename_weights(file: Path, names: Mapping[str, str]) -> None:
    """Give weights the names that published models have: engines read those alone."""
    safetensors: Any = import_module("safetensors.torch")
    weights = {_renamed(name, names): weight for name, weight in safetensors.load_file(file).items()}
    safetensors.save_file(weights, file, {"format": "pt"})


def _renamed(name: str, names: Mapping[str, str]) -> str:
    return next((new + name.removeprefix(old) for old, new in names.items() if name.startswith(old)), name)


def write(folder: Path, kind: str) -> None:
    """Write the whole folder."""
    folder.mkdir(parents=True, exist_ok=True)
    words = tokenizer(folder, kind)
    processor_of(KINDS[kind], tokenizer=words).save_pretrained(folder)
    write_weights(folder, MODELS[kind], words)


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2])
