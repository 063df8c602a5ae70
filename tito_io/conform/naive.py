"""A naive program for `tito conform`: it renders and tokenizes the whole conversation before each turn."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import Any

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from tito_io.conform.toy_tokenizer import ToyTokenizer


@cache
def compiled(template: str) -> Template:
    """Return a template, compiled."""
    environment = ImmutableSandboxedEnvironment()
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment.from_string(template)


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """Return the ids of a fresh render. They are wrong wherever the model sampled other ids for the text."""
    variables = {"messages": question["messages"], "tools": question["tools"], "add_generation_prompt": True}
    try:
        text = compiled(question["template"]).render({**question["template_arguments"], **variables})
    except (TemplateError, TypeError) as error:
        return {"refusal": f"the template raises {type(error).__name__}"}
    return {"ids": ToyTokenizer.of(question["tokenizer"]).encode(text)}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps({"id": asked["id"], **answer(asked)}) + "\n")
        sys.stdout.flush()
