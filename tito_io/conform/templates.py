r"""Chat templates of the vectors, each with one habit of real templates.

A comment such as `{#- begin loop.index0 -#}` marks where a message's own words begin, and `end` where
they end. Renderers ignore comments; the oracle writes marks in their place. Every tag strips the white space
around it, and all white space that is written stands in string literals, so that no setting of Jinja matters.
"""

from __future__ import annotations

BEGIN, END = "{#- begin loop.index0 -#}", "{#- end loop.index0 -#}"
ARGUMENTS = (
    "{{- call.function.arguments if call.function.arguments is string"
    " else call.function.arguments | tojson -}}"
)
CALLS = (
    "{%- for call in message.tool_calls or [] -%}"
    """{{- '<tool_call>{"name": "' + call.function.name + '", "arguments": ' -}}"""
    f"{ARGUMENTS}{{{{- '}}</tool_call>' -}}}}"
    "{%- endfor -%}"
)
THOUGHT = (
    "{%- if message.reasoning_content -%}"
    "{{- '<think>' + message.reasoning_content + '</think>' -}}"
    "{%- endif -%}"
)
TEXT = (
    "{%- if message.content is string -%}{{- message.content -}}{%- else -%}"
    "{%- for part in message.content or [] -%}{{- part.text -}}{%- endfor -%}{%- endif -%}"
)
TOOLS = r"{%- if tools -%}{{- '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' -}}{%- endif -%}"


def chatml(
    *,
    opening: str = TOOLS,
    before: str = "",
    header: str = r"{{- '<|im_start|>' + message.role + '\n' -}}",
    inside: str = "",
    words: str = THOUGHT + TEXT + CALLS,
    close: str = r"{{- '<|im_end|>\n' -}}",
    prompt: str = r"{{- '<|im_start|>assistant\n' -}}",
) -> str:
    """Return a template that writes ChatML but for what is given.

    Args:
        opening: What it writes first.
        before: What it writes before each message.
        header: What opens a message.
        inside: What it writes between the header and the message's words.
        words: The message's words.
        close: What closes a message.
        prompt: The generation prompt.
    """
    return (
        f"{opening}{{%- for message in messages -%}}"
        f"{before}{header}{inside}{_words(words)}{close}"
        f"{{%- endfor -%}}{{%- if add_generation_prompt -%}}{prompt}{{%- endif -%}}"
    )


def _words(words: str) -> str:
    """Mark a message's words; those of a new message are its content alone."""
    return BEGIN + words + END


LAST_USER = (
    "{%- set ns = namespace(asked=-1) -%}{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}{%- set ns.asked = loop.index0 -%}{%- endif -%}{%- endfor -%}"
)
MARKED_ROLE = "{{- '<|' + message.role + '|>' -}}"
RAISE_UNLESS_ALTERNATING = (
    "{%- if message.role != ('assistant' if loop.index0 % 2 else 'user') -%}"
    "{{- raise_exception('roles must alternate') -}}{%- endif -%}"
)
COUNT = "{{- '[' ~ loop.index0 ~ ']' -}}"
NAMES = (
    "{%- for earlier in messages -%}{%- for call in earlier.tool_calls or [] -%}"
    "{%- if call.id == message.tool_call_id and not ns.name -%}"
    "{%- set ns.name = call.function.name -%}{%- endif -%}"
    "{%- endfor -%}{%- endfor -%}"
)

TEMPLATES: dict[str, str] = {
    "chatml": chatml(),
    "bos": chatml(opening="{{- '<bos>' -}}" + TOOLS),
    "default-system": chatml(
        opening=TOOLS + "{%- if not messages or messages[0].role != 'system' -%}"
        r"{{- '<|im_start|>system\nBe good.<|im_end|>\n' -}}{%- endif -%}"
    ),
    "drops-reasoning": chatml(
        opening=TOOLS + LAST_USER,
        words="{%- if loop.index0 > ns.asked -%}" + THOUGHT + "{%- endif -%}" + TEXT + CALLS,
    ),
    "opens-thinking": chatml(prompt=r"{{- '<|im_start|>assistant\n<think>\n' -}}"),
    "empty-thought": chatml(
        opening=TOOLS + LAST_USER,
        inside="{%- if message.role == 'assistant' and loop.last and loop.index0 > ns.asked"
        r" and not message.reasoning_content -%}{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}",
    ),
    "grouped-results": chatml(
        header=r"{%- if message.role == 'tool' -%}"
        r"{%- if not loop.previtem or loop.previtem.role != 'tool' -%}{{- '<|im_start|>user' -}}{%- endif -%}"
        r"{{- '\n<result>\n' -}}{%- else -%}{{- '<|im_start|>' + message.role + '\n' -}}{%- endif -%}",
        close=r"{%- if message.role == 'tool' -%}{{- '\n</result>' -}}"
        r"{%- if not loop.nextitem or loop.nextitem.role != 'tool' -%}{{- '<|im_end|>\n' -}}{%- endif -%}"
        r"{%- else -%}{{- '<|im_end|>\n' -}}{%- endif -%}",
    ),
    "two-closes": chatml(close="{{- '<|eom|>' if message.tool_calls else '<|im_end|>' -}}"),
    "close-of-text": chatml(close=r"{{- '\n<|im_end|>\n' -}}"),
    "plain-close": chatml(
        close=r"{{- '\n\n' -}}", header="{{- message.role + ': ' -}}", prompt="{{- 'assistant: ' -}}"
    ),
    "repeated-close": chatml(
        header=MARKED_ROLE, close="{{- '<|e|><|n|><|e|>' -}}", prompt="{{- '<|assistant|>' -}}", opening=""
    ),
    "double-close": chatml(
        header=MARKED_ROLE, close="{{- '<|e|><|e|>' -}}", prompt="{{- '<|assistant|>' -}}", opening=""
    ),
    "late-close": chatml(
        header=MARKED_ROLE,
        close="{%- if not loop.last -%}{{- '<|e|>' -}}{%- endif -%}",
        prompt="{{- '<|e|><|assistant|>' -}}",
        opening="",
    ),
    "markers": chatml(header=MARKED_ROLE, close="", prompt="{{- '<|assistant|>' -}}", opening=""),
    "trims": chatml(words=THOUGHT + "{{- (message.content or '') | trim -}}" + CALLS),
    "alternates": chatml(
        opening="{{- '<bos>' -}}", before=RAISE_UNLESS_ALTERNATING, words="{{- message.content | trim -}}"
    ),
    "brackets": chatml(
        opening="{{- '<bos>' -}}",
        header="{%- if message.role != 'assistant' -%}"
        "{{- '[RESULT]' if message.role == 'tool' else '[INST]' -}}{%- endif -%}",
        close="{%- if message.role == 'assistant' -%}{{- '<|e|>' -}}{%- else -%}"
        "{{- '[/RESULT]' if message.role == 'tool' else '[/INST]' -}}{%- endif -%}",
        prompt="",
    ),
    "tools-with-question": chatml(
        opening=LAST_USER,
        inside=r"{%- if tools and loop.index0 == ns.asked -%}{{- (tools | tojson) + '\n' -}}{%- endif -%}",
    ),
    "channels": (
        "{%- for message in messages -%}"
        "{%- if message.role == 'assistant' and message.tool_calls -%}"
        "{{- '<|start|>assistant' -}}{#- begin loop.index0 -#}"
        "{%- set call = message.tool_calls[0] -%}"
        "{{- ' to=' + call.function.name + '<|channel|>commentary<|message|>' -}}"
        + ARGUMENTS
        + "{#- end loop.index0 -#}{{- '<|call|>' -}}"
        "{%- elif message.role == 'assistant' -%}"
        "{{- '<|start|>assistant' -}}{#- begin loop.index0 -#}"
        "{{- '<|channel|>final<|message|>' + message.content -}}{#- end loop.index0 -#}"
        "{{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' -}}"
        "{%- else -%}"
        "{{- '<|start|>' + message.role + '<|message|>' -}}"
        "{#- begin loop.index0 -#}{{- message.content -}}{#- end loop.index0 -#}{{- '<|end|>' -}}"
        "{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|start|>assistant' -}}{%- endif -%}"
    ),
    "mapping-arguments": chatml(
        words=TEXT + "{%- for call in message.tool_calls or [] -%}{{- '<tool_call>' + call.function.name -}}"
        "{%- for name, value in call.function.arguments | items -%}"
        "{{- '[' + name + '=' + (value | tojson) + ']' -}}"
        "{%- endfor -%}{{- '</tool_call>' -}}{%- endfor -%}"
    ),
    "parts": chatml(
        words="{%- if message.content is string -%}{{- raise_exception('content must be a list of parts') -}}"
        "{%- endif -%}" + TEXT + CALLS
    ),
    "names-results": chatml(
        inside="{%- if message.role == 'tool' -%}{%- set ns = namespace(name='') -%}"
        + NAMES
        + r"{{- ns.name + ': ' -}}{%- endif -%}"
    ),
    "switch": chatml(
        opening=TOOLS + "{%- set ns = namespace(off=false) -%}{%- for message in messages -%}"
        "{%- if message.role in ('system', 'user') and '/no_think' in message.content -%}"
        "{%- set ns.off = true -%}{%- endif -%}{%- endfor -%}",
        prompt=r"{{- '<|im_start|>assistant\n' + ('' if ns.off else '<think>') -}}",
    ),
    "argument": chatml(
        prompt=r"{{- '<|im_start|>assistant\n' -}}"
        "{%- if enable_thinking is defined and not enable_thinking -%}"
        r"{{- '<think>\n\n</think>\n\n' -}}{%- endif -%}"
    ),
    "counts": chatml(before=COUNT),
    "counts-results": chatml(
        opening=TOOLS + "{%- set ns = namespace(results=0) -%}",
        inside="{%- if message.role == 'tool' -%}{{- '[' ~ ns.results ~ ']' -}}"
        "{%- set ns.results = ns.results + 1 -%}{%- endif -%}",
    ),
    "measures": chatml(
        before="{%- if loop.previtem and loop.previtem.role == 'assistant' -%}"
        "{{- '[' ~ (loop.previtem.content or '') | length ~ ' letters]' -}}{%- endif -%}"
    ),
    "quotes": chatml(
        prompt="{%- if messages[-2] is defined and messages[-2].role == 'assistant' -%}"
        r"{{- 'you said: ' + (messages[-2].content or '') + '\n' -}}{%- endif -%}"
        r"{{- '<|im_start|>assistant\n' -}}"
    ),
    "moving-system": chatml(
        opening=LAST_USER,
        header="{%- if message.role != 'system' -%}"
        r"{{- '<|im_start|>' + message.role + '\n' -}}{%- endif -%}",
        inside="{%- if loop.index0 == ns.asked and messages[0].role == 'system' -%}"
        r"{{- messages[0].content + '\n\n' -}}{%- endif -%}",
        words="{%- if message.role != 'system' -%}" + THOUGHT + TEXT + CALLS + "{%- endif -%}",
        close=r"{%- if message.role != 'system' -%}{{- '<|im_end|>\n' -}}{%- endif -%}",
    ),
    "drops-late-system": (
        TOOLS + "{%- for message in messages -%}{%- if message.role != 'system' or loop.first -%}"
        r"{{- '<|im_start|>' + message.role + '\n' -}}"
        + _words(THOUGHT + TEXT + CALLS)
        + r"{{- '<|im_end|>\n' -}}{%- endif -%}{%- endfor -%}"
        r"{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
    ),
    "drops-results": (
        TOOLS + "{%- for message in messages -%}{%- if message.role != 'tool' -%}"
        r"{{- '<|im_start|>' + message.role + '\n' -}}"
        + _words(THOUGHT + TEXT + CALLS)
        + r"{{- '<|im_end|>\n' -}}{%- endif -%}{%- endfor -%}"
        r"{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
    ),
    "window": (
        "{%- for message in messages -%}{%- if loop.revindex <= 2 -%}"
        r"{{- '<|im_start|>' + message.role + '\n' -}}"
        + _words(THOUGHT + TEXT + CALLS)
        + r"{{- '<|im_end|>\n' -}}{%- endif -%}{%- endfor -%}"
        r"{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
    ),
}
"""The templates by name."""

SPECIAL = (
    *("<bos>", "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eom|>"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>"),
    *("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|e|>", "<|n|>"),
    *("[INST]", "[/INST]", "[RESULT]", "[/RESULT]"),
    *("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"),
)
"""Special tokens of all templates."""

MERGED = (
    *("assistant", "system", "user", "tool", "final", "commentary", "result"),
    *("How", "ever", "However", "Hel", "lo", "Hello", " there", " world", "world"),
    *("The", " the", " answer", " is", " it", " to", " you", "ing", " a", " I", "'s"),
    *(".\n", "\n\n", "...", "! ", '": "', '": ', '", "', '{"', '"}', "}]", "12", "123", "34", "  "),
)
"""Tokens of several bytes."""

_CHATML_STOPS, _MARKED_STOPS = ("<|im_end|>", "<|endoftext|>"), ("<|e|>",)
STOPS: dict[str, tuple[str, ...]] = dict.fromkeys(TEMPLATES, _CHATML_STOPS) | {
    "two-closes": ("<|im_end|>", "<|eom|>"),
    "plain-close": ("\n\n",),
    "repeated-close": _MARKED_STOPS,
    "double-close": _MARKED_STOPS,
    "late-close": _MARKED_STOPS,
    "brackets": _MARKED_STOPS,
    "markers": ("<|user|>", "<|tool|>", "<|e|>"),
    "channels": ("<|return|>", "<|call|>"),
}
"""Tokens that end turns, by template."""
