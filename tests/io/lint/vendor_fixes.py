"""Broken templates and their fixed ones, written here after causes that vendors have named in their fixes."""

from __future__ import annotations

import attrs

from tests.io.lint.lint_folders import CALLS, EXACT, HOISTS, THOUGHT, chatml

REFUSED, HISTORY, ADVICE, DIFF, MISSED = "refused cases", "changed history", "advice", "`--diff`", "no"
"""How the broken template is found: cases are refused, or histories change, that the fixed one keeps; there
is advice that the fixed one does not need; only a comparison shows it; nothing does."""


SPEAKS = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
SAID = "{{ m.content or '' }}"


@attrs.frozen
class Fix:
    """A vendor's kind of fix.

    Attributes:
        cause: What was wrong.
        seen: The models or tools that had it.
        broken: The template before.
        found_by: How lint tells it from the fixed one.
        fixed: The template after.
        why: Why it is not found, or found by comparison only.
    """

    cause: str
    seen: str
    broken: str
    found_by: str
    fixed: str = EXACT
    why: str = ""


def called(arguments: str) -> str:
    """Return a template that writes the arguments of calls so."""
    return EXACT.replace("{{ c.function.arguments }}", arguments)


def looping(close: str) -> str:
    """Return a template with tool results in the model's turn, which `close` ends before others speak."""
    result = (
        "<result>{{ m.content }}</result>"
        "{% if not loop.last and loop.nextitem.role not in ('tool', 'assistant') %}" + close + "{% endif %}"
    )
    opener = (
        "{% if m.role != 'assistant' or loop.first or loop.previtem.role != 'tool' %}"
        "<|im_start|>{{ m.role }}\n{% endif %}"
    )
    end = "{% if m.tool_calls %}<pad>{% else %}<|im_end|>\n{% endif %}"
    message = opener + THOUGHT + "{{ m.content or '' }}" + CALLS + end
    speaks = f"{{% if messages[-1].role != 'tool' %}}{SPEAKS}{{% endif %}}"
    return (
        "{% for m in messages %}{% if m.role == 'tool' %}"
        f"{result}{{% else %}}{message}{{% endif %}}{{% endfor %}}{speaks}"
    )


TEXT_OR_OBJECT = "{{ a if a is string else a | tojson }}".replace("a ", "c.function.arguments ")
LAST_USER = (
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
)

FIXES = (
    Fix(
        cause="the turn is not closed after tool results",
        seen="Gemma 4",
        broken=looping(""),
        found_by=ADVICE,
        fixed=looping("<|im_end|>\n"),
    ),
    Fix(
        cause="a turn with calls and without content is an error",
        seen="gpt-oss",
        broken=EXACT.replace(SAID, "{{ m.content + '' }}"),
        found_by=ADVICE,
    ),
    Fix(
        cause="arguments that are JSON text are quoted once more",
        seen="Qwen3, Hermes",
        broken=called("{{ c.function.arguments | tojson }}"),
        found_by=ADVICE,
        fixed=called(TEXT_OR_OBJECT),
    ),
    Fix(
        cause="arguments that are JSON text are an error",
        seen="Qwen3-Coder, MiniMax-M2",
        broken=called("{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}"),
        found_by=ADVICE,
        fixed=called(TEXT_OR_OBJECT),
    ),
    Fix(
        cause="reasoning is dropped between tool calls",
        seen="Qwen3, GLM-4.5",
        broken=chatml(thought=f"{{% if loop.last %}}{THOUGHT}{{% endif %}}"),
        found_by=HISTORY,
        fixed=chatml(before=LAST_USER, thought=f"{{% if loop.index0 > ns.last %}}{THOUGHT}{{% endif %}}"),
    ),
    Fix(
        cause="the thought that the generation prompt opens is missing in history",
        seen="DeepSeek-R1",
        broken=EXACT.replace(SPEAKS, SPEAKS.replace("{% endif %}", "<think>\n{% endif %}")),
        found_by=HISTORY,
    ),
    Fix(
        cause="the last turn is closed with another token",
        seen="gpt-oss",
        broken=chatml(
            close="{{ '<eos>' if loop.last and m.role == 'assistant' and not add_generation_prompt"
            " else '<|im_end|>' }}\n"
        ),
        found_by=REFUSED,
    ),
    Fix(
        cause="a later system message is moved to the front", seen="Llama 3", broken=HOISTS, found_by=REFUSED
    ),
    Fix(
        cause="tool results are dropped",
        seen="Phi-3",
        broken=EXACT.replace("{% for m in messages %}", "{% for m in messages if m.role != 'tool' %}"),
        found_by=REFUSED,
    ),
    Fix(
        cause="roles must alternate, and tool results do not",
        seen="Gemma 2, Mistral",
        broken="{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{% endfor %}" + EXACT,
        found_by=REFUSED,
    ),
    Fix(
        cause="several calls are an error",
        seen="Llama 3.1",
        broken="{% for m in messages if m.tool_calls and m.tool_calls | length > 1 %}"
        "{{ raise_exception('one call') }}{% endfor %}" + EXACT,
        found_by=REFUSED,
    ),
    Fix(
        cause="the time of day stands in the prompt",
        seen="Llama 3.2",
        broken="{{ strftime_now('%H:%M') }}" + EXACT,
        found_by=ADVICE,
    ),
    Fix(
        cause="the generation prompt is always written",
        seen="Llama 2",
        broken=EXACT.replace(SPEAKS, "<|im_start|>assistant\n"),
        found_by=DIFF,
        why="a turn in history looks the same",
    ),
    Fix(
        cause="white space around an answer is left out",
        seen="Gemma 3, Qwen3",
        broken=EXACT.replace(SAID, "{{ (m.content or '') | trim }}"),
        found_by=DIFF,
        why="the answers of a lint have none",
    ),
    Fix(
        cause="a default system text is added",
        seen="Qwen2.5",
        broken="{% if messages[0].role != 'system' %}<|im_start|>system\nHelp.<|im_end|>\n{% endif %}"
        + EXACT,
        found_by=DIFF,
        why="it changes the opening, and no id after it",
    ),
    Fix(
        cause="only the first of several calls is written",
        seen="Nemotron Nano",
        broken=EXACT.replace("in m.tool_calls or []", "in (m.tool_calls or [])[:1]"),
        found_by=MISSED,
        why="a lint samples what the template writes, so that no second call is lost; `tito audit` shows it",
    ),
    Fix(
        cause="arguments are escaped for HTML",
        seen="renders with Jinja's own `tojson`",
        broken=called("{{ c.function.arguments | replace('<', '\\u003c') }}"),
        found_by=MISSED,
        why="the arguments of a lint have no such sign; `tito audit` shows it",
    ),
    Fix(
        cause="a null content is written as None",
        seen="Gemma 4",
        broken=EXACT.replace(SAID, "{{ 'None' if m.content is none else m.content or '' }}"),
        found_by=MISSED,
        why="keys that are null are left out before a template sees them",
    ),
    Fix(
        cause="the beginning of the text is written twice",
        seen="Llama 3, Gemma",
        broken=EXACT,
        found_by=MISSED,
        why="the second one is added by an engine that encodes the text with special tokens",
    ),
)
