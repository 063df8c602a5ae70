"""Write a very small language model with random weights, its own vocabulary and its own chat template.

Run by an engine's own interpreter, which has torch and transformers: `python tiny_model.py FOLDER`. The model
says nothing sensible, which is its use: almost none of what it samples survives decoding and encoding.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from importlib import import_module
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

SIZE = 3072
CONTEXT = 8192
MARKERS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
END, TEXT_END = "<|im_end|>", "<|endoftext|>"

WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Where texts are split before merging, as in most vocabularies of today."""

TEMPLATE = """\
{%- macro turn(role, text) %}{{ '<|im_start|>' + role + '\\n' + text + '<|im_end|>\\n' }}{% endmacro %}
{%- set ns = namespace(asked=-1) %}
{%- for message in messages if message.role == 'user' %}
    {%- set ns.asked = ns.asked + 1 %}
{%- endfor %}
{%- set users = namespace(seen=-1) %}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- if tools %}
    {%- set listed %}{% for tool in tools %}{{ '\\n' + tool | tojson }}{% endfor %}{% endset %}
    {{- turn('system', (system ~ '\\n\\n' if system else '') + 'Tools:' + listed) }}
{%- elif system %}
    {{- turn('system', system) }}
{%- endif %}
{%- for message in messages %}
    {%- set text = message.content if message.content is string else '' %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}
            {{- raise_exception('A system message comes first or not at all.') }}
        {%- endif %}
    {%- elif message.role == 'user' %}
        {%- set users.seen = users.seen + 1 %}
        {{- turn('user', text) }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content and users.seen == ns.asked %}
            {{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- text }}
        {%- for call in message.tool_calls or [] %}
            {%- set said = call.function.arguments %}
            {{- '\\n' if text or not loop.first else '' }}
            {{- '<tool_call>\\n{"name": ' + call.function.name | tojson + ', "arguments": ' }}
            {{- (said if said is string else said | tojson) + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + text + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- raise_exception('No template for the role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thinking %}{{ '<think>\\n' }}{% endif %}
{%- endif %}
"""
"""Calls and results as Qwen writes them; reasoning before the latest question is dropped."""


def vocabulary(folder: Path) -> dict[str, int]:
    """Train a vocabulary on Python's own sources; return the ids of markers and tags."""
    bytewise = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), behavior="isolated"), bytewise]
    )
    tokenizer.decoder = decoders.ByteLevel()
    sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-h]*.py"))
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE - len(MARKERS) - len(TAGS), initial_alphabet=bytewise.alphabet(), show_progress=False
    )
    tokenizer.train([str(path) for path in sources], trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in MARKERS])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in TAGS])
    tokenizer.save(str(folder / "tokenizer.json"))
    ids: dict[str, int] = tokenizer.get_vocab()
    return {text: ids[text] for text in (*MARKERS, *TAGS)}


def weights(folder: Path, ids: dict[str, int]) -> None:
    """Write random weights, wide enough apart that what was said before matters."""
    torch: Any = import_module("torch")
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        tie_word_embeddings=False,
        bos_token_id=ids[TEXT_END],
        eos_token_id=ids[END],
        pad_token_id=ids[TEXT_END],
    )
    model = transformers.Qwen3ForCausalLM(config).to(torch.float32)
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=[ids[END], ids[TEXT_END]], pad_token_id=ids[TEXT_END], do_sample=True
    )
    model.save_pretrained(folder)


def write(folder: Path) -> None:
    """Write the whole folder."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = vocabulary(folder)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": TEXT_END,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(index): {"content": text, "special": text in MARKERS, "normalized": False}
            | {"lstrip": False, "rstrip": False, "single_word": False}
            for text, index in ids.items()
        },
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    weights(folder, ids)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
