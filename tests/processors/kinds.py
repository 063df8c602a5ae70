"""Processors of transformers, made from their configuration alone: nothing is downloaded, no model is made.

All share a tokenizer that is trained here, with the tokens that the kind names. Sizes are tiny.
"""

from __future__ import annotations

import argparse
import inspect
import string
import textwrap
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .shapes import SHAPES

SIDE_BY_SIDE = ("two in the first turn", "two in one")
WITH_OLDER = ("third turn", "two in one", "same twice", "after a cut turn", "after reasoning")

MARKS = ("<|im_start|>", "<|im_end|>", "<think>", "</think>")
TEMPLATE = """
{%- macro body(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- else -%}
    {%- for part in content or [] -%}
      {%- if part.type == 'image' -%}{{- 'IMAGE' -}}{%- elif 'text' in part -%}{{- part.text -}}{%- endif -%}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{{- bos_token }}
{%- for message in messages %}
  {%- if message.role == 'assistant' %}
    {{- '<|im_start|>assistant\\n' + body(message.content) }}
    {%- for call in message.tool_calls or [] %}
      {{- '\\n<call>' + call.function.name + '</call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
  {%- elif message.role == 'tool' %}
    {{- '<|im_start|>user\\n<result>' + body(message.content) + '</result><|im_end|>\\n' }}
  {%- else %}
    {{- '<|im_start|>' + message.role + '\\n' + body(message.content) + '<|im_end|>\\n' }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
"""A template with tool results; it drops the reasoning of every turn."""


@attrs.frozen(kw_only=True)
class Kind:
    """A processor of transformers and its configuration.

    Attributes:
        processor: Its class.
        image_processor: The class of the image processor in it.
        sizes: Arguments of the image processor.
        settings: Arguments of the processor.
        tokens: Tokens that the tokenizer names, by their names.
        others: Further tokens.
        image: What the template writes for an image.
        video_processor: The class of the video processor in it, None without one.
        call: Arguments without which its call fails.
        refused: Conversations in which an image cannot be expanded.
    """

    processor: str
    image_processor: str
    sizes: Mapping[str, Any]
    tokens: Mapping[str, str]
    image: str
    others: tuple[str, ...] = ()
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    video_processor: str | None = None
    call: Mapping[str, Any] = attrs.field(factory=dict)
    refused: tuple[str, ...] = ()


QWEN = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
QWEN |= {"vision_start_token": "<|vision_start|>", "vision_end_token": "<|vision_end|>"}
IDEFICS = {
    "fake_image_token": "<fake_token_around_image>",
    "image_token": "<image>",
    "global_image_token": "<global-img>",
    "end_of_utterance_token": "<end_of_utterance>",
}
ROWS = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
TILES = {"longest_edge": 56}
LLAVA = {"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
SQUARE = {"height": 28, "width": 28}
PINPOINTS = [[28, 56], [56, 28], [56, 56]]
GEMMA = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}

KINDS = {
    "qwen2-vl": Kind(
        processor="Qwen2VLProcessor",
        image_processor="Qwen2VLImageProcessor",
        video_processor="Qwen2VLVideoProcessor",
        sizes={"patch_size": 14, "size": {"shortest_edge": 784, "longest_edge": 50176}},
        tokens=QWEN,
        image="<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "qwen2.5-vl": Kind(
        processor="Qwen2_5_VLProcessor",
        image_processor="Qwen2VLImageProcessor",
        video_processor="Qwen2VLVideoProcessor",
        sizes={"patch_size": 14, "size": {"shortest_edge": 784, "longest_edge": 50176}},
        tokens=QWEN,
        image="<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "qwen3-vl": Kind(
        processor="Qwen3VLProcessor",
        image_processor="Qwen2VLImageProcessor",
        video_processor="Qwen3VLVideoProcessor",
        sizes={"patch_size": 16, "size": {"shortest_edge": 1024, "longest_edge": 65536}},
        tokens=QWEN,
        image="<|vision_start|><|image_pad|><|vision_end|>",
    ),
    "glm4v": Kind(
        processor="Glm4vProcessor",
        image_processor="Glm4vImageProcessor",
        video_processor="Glm4vVideoProcessor",
        sizes={"patch_size": 14, "size": {"shortest_edge": 784, "longest_edge": 50176}},
        tokens={"image_token": "<|image|>", "video_token": "<|video|>"},
        image="<|begin_of_image|><|image|><|end_of_image|>",
        others=("<|begin_of_image|>", "<|end_of_image|>"),
    ),
    "smolvlm": Kind(
        processor="SmolVLMProcessor",
        image_processor="SmolVLMImageProcessor",
        video_processor="SmolVLMVideoProcessor",
        sizes={"size": {"longest_edge": 112}, "max_image_size": TILES},
        settings={"image_seq_len": 4},
        tokens=IDEFICS,
        others=ROWS,
        image="<image>",
    ),
    "idefics3": Kind(
        processor="Idefics3Processor",
        image_processor="Idefics3ImageProcessor",
        sizes={"size": {"longest_edge": 112}, "max_image_size": TILES},
        settings={"image_seq_len": 4},
        tokens=IDEFICS,
        others=ROWS,
        image="<image>",
    ),
    "idefics2": Kind(
        processor="Idefics2Processor",
        image_processor="Idefics2ImageProcessor",
        sizes={"size": {"longest_edge": 56, "shortest_edge": 28}},
        settings={"image_seq_len": 4},
        tokens={**IDEFICS, "image_boundary_token": "<fake_token_around_image>"},
        image="<image>",
        refused=SIDE_BY_SIDE,
    ),
    "llava": Kind(
        processor="LlavaProcessor",
        image_processor="LlavaImageProcessor",
        sizes={"size": {"shortest_edge": 28}, "crop_size": SQUARE},
        settings=LLAVA,
        tokens={"image_token": "<image>"},
        image="<image>\\n",
    ),
    "llava-next": Kind(
        processor="LlavaNextProcessor",
        image_processor="LlavaNextImageProcessor",
        sizes={"size": {"shortest_edge": 28}, "crop_size": SQUARE, "image_grid_pinpoints": PINPOINTS},
        settings=LLAVA,
        tokens={"image_token": "<image>"},
        image="<image>\\n",
    ),
    "llava-onevision": Kind(
        processor="LlavaOnevisionProcessor",
        image_processor="LlavaOnevisionImageProcessor",
        video_processor="LlavaOnevisionVideoProcessor",
        sizes={"size": SQUARE, "image_grid_pinpoints": PINPOINTS},
        settings={"num_image_tokens": 4, "vision_feature_select_strategy": "full"},
        tokens={"image_token": "<image>", "video_token": "<video>"},
        image="<image>\\n",
        refused=WITH_OLDER,
    ),
    "gemma3": Kind(
        processor="Gemma3Processor",
        image_processor="Gemma3ImageProcessor",
        sizes={"size": SQUARE},
        settings={"image_seq_length": 4},
        tokens=GEMMA,
        image="<start_of_image>",
        refused=SIDE_BY_SIDE,
    ),
    "pixtral": Kind(
        processor="PixtralProcessor",
        image_processor="PixtralImageProcessor",
        sizes={"size": {"longest_edge": 64}, "patch_size": {"height": 16, "width": 16}},
        tokens={"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"},
        image="[IMG]",
    ),
    "mllama": Kind(
        processor="MllamaProcessor",
        image_processor="MllamaImageProcessor",
        sizes={"size": SQUARE, "max_image_tiles": 4},
        tokens={"image_token": "<|image|>", "bos_token": "<|begin_of_text|>"},
        image="<|image|>",
    ),
    "llama4": Kind(
        processor="Llama4Processor",
        image_processor="Llama4ImageProcessor",
        sizes={"size": SQUARE, "max_patches": 4},
        tokens={"image_token": "<|image|>"},
        others=(
            "<|image_start|>",
            "<|image_end|>",
            "<|patch|>",
            "<|tile_x_separator|>",
            "<|tile_y_separator|>",
        ),
        image="<|image|>",
    ),
    "internvl": Kind(
        processor="InternVLProcessor",
        image_processor="GotOcr2ImageProcessor",
        video_processor="InternVLVideoProcessor",
        sizes={"size": SQUARE, "crop_to_patches": True, "max_patches": 4},
        settings={"image_seq_length": 4},
        tokens={
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "context_image_token": "<IMG_CONTEXT>",
            "video_token": "<video>",
        },
        image="<IMG_CONTEXT>\\n",
    ),
    "aya-vision": Kind(
        processor="AyaVisionProcessor",
        image_processor="GotOcr2ImageProcessor",
        sizes={"size": SQUARE, "crop_to_patches": True, "max_patches": 4},
        settings={"patch_size": 14, "img_size": 28, "downsample_factor": 1},
        tokens={"image_token": "<image>"},
        others=(
            "<|START_OF_IMG|>",
            "<|END_OF_IMG|>",
            "<|IMG_PATCH|>",
            "<|IMG_LINE_BREAK|>",
            "TILE_GLOBAL",
            *(f"TILE_{number}" for number in range(1, 10)),
        ),
        image="<image>",
    ),
    "cohere2-vision": Kind(
        processor="Cohere2VisionProcessor",
        image_processor="Cohere2VisionImageProcessor",
        sizes={"size": SQUARE, "max_patches": 4},
        tokens={
            "boi_token": "<|START_OF_IMG|>",
            "eoi_token": "<|END_OF_IMG|>",
            "image_token": "<|IMG_PATCH|>",
            "img_line_break_token": "<|IMG_LINE_BREAK|>",
        },
        image="<|IMG_PATCH|>",
    ),
    "lfm2-vl": Kind(
        processor="Lfm2VlProcessor",
        image_processor="Lfm2VlImageProcessor",
        sizes={"tile_size": 64, "min_image_tokens": 4, "max_image_tokens": 16, "max_num_patches": 64},
        tokens={
            "image_token": "<image>",
            "image_start_token": "<|image_start|>",
            "image_end_token": "<|image_end|>",
            "image_thumbnail_token": "<|img_thumbnail|>",
            "image_thumbnail": "<|img_thumbnail|>",
        },
        image="<image>",
    ),
    "aria": Kind(
        processor="AriaProcessor",
        image_processor="AriaImageProcessor",
        sizes={"max_image_size": 490, "min_image_size": 336, "split_image": True},
        settings={"size_conversion": {490: 4, 980: 8}},
        tokens={"image_token": "<|img|>"},
        image="<fim_prefix><|img|><fim_suffix>",
        others=("<fim_prefix>", "<fim_suffix>"),
    ),
    "ovis2": Kind(
        processor="Ovis2Processor",
        image_processor="Ovis2ImageProcessor",
        sizes={"size": SQUARE, "crop_to_patches": True, "max_patches": 4},
        settings={"image_seq_length": 4},
        tokens={"image_token": "<image>"},
        others=("<IMG_ATOM>", "<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"),
        call={"return_tensors": "pt"},
        image="<image>\\n",
    ),
    "chameleon": Kind(
        processor="ChameleonProcessor",
        image_processor="ChameleonImageProcessor",
        sizes={"size": {"shortest_edge": 28}, "crop_size": SQUARE},
        settings={"image_seq_length": 4},
        tokens={
            "image_token": "<image>",
            "boi_token": "<racm3:break>",
            "eoi_token": "<eoss>",
            "sep_token": "<reserved08706>",
        },
        image="<image>",
        refused=tuple(SHAPES),
    ),
    "janus": Kind(
        processor="JanusProcessor",
        image_processor="JanusImageProcessor",
        sizes={"size": SQUARE, "min_size": 14},
        settings={"num_image_tokens": 4},
        tokens={
            "image_token": "<image_placeholder>",
            "boi_token": "<begin_of_image>",
            "eoi_token": "<end_of_image>",
        },
        image="<image_placeholder>",
    ),
    "video-llama3": Kind(
        processor="VideoLlama3Processor",
        image_processor="VideoLlama3ImageProcessor",
        video_processor="VideoLlama3VideoProcessor",
        sizes={"patch_size": 14, "size": {"shortest_edge": 784, "longest_edge": 50176}},
        tokens={"image_token": "<image>", "video_token": "<video>"},
        image="<image>\\n",
    ),
    "perception-lm": Kind(
        processor="PerceptionLMProcessor",
        image_processor="PerceptionLMImageProcessor",
        video_processor="PerceptionLMVideoProcessor",
        sizes={"tile_size": 28, "max_num_tiles": 4, "vision_input_type": "thumb+tile"},
        settings={"patch_size": 14, "pooling_ratio": 1},
        tokens={"image_token": "<|image|>", "video_token": "<|video|>"},
        image="<|image|>",
    ),
}


REAL: dict[str, tuple[str, str | None, tuple[str, ...]]] = {
    "gemma3": ("gemma3", "chat_template.jinja", ("tool result",)),
    "qwen3-vl": ("qwen3", "chat_template.vl.jinja", ()),
    "qwen2.5-vl": ("qwen2.5", None, ()),
    "pixtral": ("mistral-tekken", "chat_template.ministral-3-reasoning.jinja", ("tool result",)),
}
"""Kinds whose vocabulary and template are among those of `TITO_FAMILIES`: a folder, a template in it, and the
conversations that it does not render."""


def real(name: str, families: Path, *, pil: bool = False) -> Any:
    """Return a kind's processor with its real vocabulary and template."""
    folder, template, _ = REAL[name]
    kind = KINDS[name]
    tokenizer = tokenizer_of(kind, (families / folder / "tokenizer.json").read_text())
    text = None if template is None else (families / folder / template).read_text()
    return processor_of(kind, pil=pil, tokenizer=tokenizer, template=text)


@cache
def _words() -> str:
    """Return a tokenizer, which is trained once, as its file; several line ends in a row are one token."""
    tokenizer = Tokenizer(models.BPE())
    pieces = Regex(r"\n+| ?[^\s]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = [inspect.getsource(module) for module in (string, textwrap, argparse)] + ["\n\n\n"] * 200
    trainer = trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer.to_str()


def tokenizer_of(kind: Kind, file: str | None = None) -> Any:
    """Return a tokenizer of transformers with the tokens of a kind, from the text of a tokenizer.json."""
    tokenizer = Tokenizer.from_str(file or _words())
    texts = dict.fromkeys((*MARKS, *kind.tokens.values(), *kind.others))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in texts])
    fast: Any = import_module("transformers").PreTrainedTokenizerFast
    named = dict(kind.tokens)
    ends = dict.fromkeys(("eos_token", "pad_token"), "<|im_end|>")
    begin = named.pop("bos_token", None)
    return fast(tokenizer_object=tokenizer, bos_token=begin, extra_special_tokens=named, **ends)


def processor_of(kind: Kind, *, pil: bool = False, tokenizer: Any = None, template: str | None = None) -> Any:
    """Return the processor of a kind; `pil` is the variant that needs no torch, and takes no videos."""
    library: Any = import_module("transformers")
    chosen = getattr(library, kind.processor)
    parts = {
        "image_processor": getattr(library, kind.image_processor + "Pil" * pil)(**kind.sizes),
        "tokenizer": tokenizer_of(kind) if tokenizer is None else tokenizer,
    }
    if kind.video_processor is not None and pil:  # video processors need torch, and it wants one
        chosen = type(kind.processor, (chosen,), {"check_argument_for_proper_class": lambda *_: None})
        parts["video_processor"] = None
    elif kind.video_processor is not None:
        parts["video_processor"] = getattr(library, kind.video_processor)()
    text = template or TEMPLATE.strip().replace("IMAGE", kind.image)
    processor = chosen(**parts, **kind.settings)
    processor.chat_template = text
    return processor
