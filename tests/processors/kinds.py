"""Processors of transformers, made from the configurations in `kinds.toml`; nothing is downloaded.

All share a tokenizer that is trained here, with the tokens that the kind names. Sizes are tiny.
"""

from __future__ import annotations

import argparse
import inspect
import string
import textwrap
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from .shapes import SHAPES

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


FILE = Path(__file__).with_suffix(".toml")
CONVERSATIONS = {
    "side by side": ("two in the first turn", "two in one"),
    "with older": ("third turn", "two in one", "same twice", "after a cut turn", "after reasoning"),
    "all": tuple(SHAPES),
}
"""What is refused, by its name in the file."""


def _kind(fields: dict[str, Any]) -> Kind:
    settings = fields.pop("settings", {})
    if sizes := settings.get("size_conversion"):  # TOML has no numbers for keys
        settings["size_conversion"] = {int(size): count for size, count in sizes.items()}
    refused = CONVERSATIONS.get(fields.pop("refused", ""), ())
    return Kind(**{**fields, "others": tuple(fields.get("others", ()))}, settings=settings, refused=refused)


KINDS = {name: _kind(fields) for name, fields in tomllib.loads(FILE.read_text(encoding="utf-8")).items()}


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
