"""Tiny model folders to lint, each with a template of one quirk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.io.families.family_folder import tiny_folder, tiny_tokenizer
from tito_io.lint.report import LintReport
from tito_io.lint.run import LintSettings, lint_subject
from tito_io.lint.subject import SubjectOptions, subjects

END, START, EOS = (tiny_tokenizer().get_vocab()[token] for token in ("<|im_end|>", "<|im_start|>", "<eos>"))
CALLS = (
    "{% for c in m.tool_calls or [] %}"
    "<call>{{ c.function.name }} {{ c.function.arguments }}</call>{% endfor %}"
)
THOUGHT = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}"
LAST = (
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
)


def chatml(*, before: str = "", thought: str = THOUGHT, close: str = "<|im_end|>\n") -> str:
    """Return a template in the ChatML form; `before` runs first, and `thought` writes reasoning."""
    body = "<|im_start|>{{ m.role }}\n" + thought + "{{ m.content or '' }}" + CALLS + close
    return (
        f"{before}{{% for m in messages %}}{body}{{% endfor %}}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


EXACT = chatml()
STRIPS = chatml(before=LAST, thought=f"{{% if loop.index0 > ns.last %}}{THOUGHT}{{% endif %}}")
NO_TOOLS = chatml(
    before="{% for m in messages if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endfor %}"
)
HOISTS = (
    "{% for m in messages if m.role == 'system' %}<|im_start|>system\n{{ m.content }}<|im_end|>\n{% endfor %}"
    + chatml().replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}", 1)
)
SWITCHED = chatml() + "{% if add_generation_prompt and enable_thinking is defined %}<think>{% endif %}"
WITH_TOOLS = chatml(before="{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}")


def folder(path: Path, template: str | None = EXACT, stop: int | None = END, **files: Any) -> Path:
    """Write a model folder with a template whose turns stop with `<|im_end|>`."""
    stops = {} if stop is None else {"generation_config__json": {"eos_token_id": stop}}
    return tiny_folder(path, template, **stops, **files)


def lint(path: Path, template: str | None = None, **settings: Any) -> LintReport:
    """Return the report of a folder's first template."""
    return lint_subject(
        next(iter(subjects(str(path), SubjectOptions(template=template)))), LintSettings(**settings)
    )
