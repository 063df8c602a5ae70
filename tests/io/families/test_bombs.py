"""Short templates that would take minutes or gigabytes end soon and in little memory.

All run in one process of their own, whose memory and processor time have hard limits. So a template that gets
through ends that process, and not the tests.
"""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.io.families.template_texts import TEXTS

pytestmark = pytest.mark.xdist_group("bombs")  # one worker, so that the templates are tried once
SECONDS = 0.25
"""Processor time that one render is allowed, where it is refused for that."""
LONGEST = 12.0
"""Processor time that it may really take: the longest single operation included, on a slow machine."""
PATIENT = 30.0
"""Processor time of those that are refused for their memory, or not at all."""
MEMORY = 1 << 26
"""Bytes that the values of one render may take together, where these are refused for their memory."""
LARGEST = 500
"""Megabytes of the process: the interpreter, the values of one render, and those of one operation."""


def keeping(values: str) -> str:
    """Return a template that keeps values of each round of a loop."""
    return str(TEXTS["keeping"]).replace("VALUES", values)


RENDERS = {
    **TEXTS["bombs"],
    "long-path": "{{ ([{'a': {}}] * 1000000) | map(attribute='a" + ".a" * 1000 + "') | list }}",
    "compared": "{% set x = [[1] * 1000] * 1000 %}{% set y = [[1] * 1000] * 1000 %}" + "{{ x == y }}" * 2000,
    "contained": "{% set x = 'a' * 33000000 %}" + "{{ 'b' in x }}" * 3000,
    "printed": "{% set x = [0] * 1000000 %}" + "{{ (x ~ '') | length }}" * 1000,
    "kept-short-texts": "{% for j in range(1000) %}"
    + keeping(", ".join(["'a' * 200 ~ i"] * 50))
    + "{% endfor %}",
    "kept-literals": keeping(", ".join(["[]"] * 5000)),
    "kept-constants": keeping("[" + "0, " * 10000 + "]"),
}
"""Templates that are refused when they render. Several held the interpreter for minutes, or gigabytes."""
COMPILED = {
    "terms": "{{ " + "1+" * 100000 + "1 }}",
    "comparisons": "{{ a" + "<a" * 100000 + " }}",
    "names-in-branches": "".join(f"{{{{v{i}}}}}" for i in range(3000)) + "{%if a%}{%endif%}" * 1500,
    "macros": "".join(f"{{%macro m{i}()%}}{{%endmacro%}}" for i in range(8000)),
    "blocks": "".join(f"{{%block b{i}%}}{{%endblock%}}" for i in range(8000)),
    "literals": "{{ [" + "[]," * 80000 + "] }}",
    "digits": "{{ 0x" + "f" * 200000 + " // 7 }}",
    "long": " " * 300000,
}
"""Templates that are refused when they are compiled."""
LINEAR = {"quadratic-sum"}
"""Templates that render: what took quadratic time takes linear time. Quadratic, this one takes minutes."""

_CHILD = """
import json, resource, sys, time
from datetime import datetime
from tests.memory import peak_megabytes
from tests.io.families.test_bombs import COMPILED, LINEAR, MEMORY, PATIENT, RENDERS, SECONDS
from tito_core import TemplateRefused
from tito_io.families.folder import FolderError, Source
from tito_io.families.limits import TemplateLimits
from tito_io.families.template import ChatTemplate

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
for name, source in {**RENDERS, **COMPILED}.items():
    used = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 40, resource.RLIM_INFINITY))
    kept = "kept" in name
    seconds = PATIENT if kept or name in LINEAR else SECONDS
    limits = TemplateLimits(seconds=seconds, memory=MEMORY) if kept else TemplateLimits(seconds=seconds)
    try:
        template = ChatTemplate.compile(Source(source, "bomb.jinja"), limits)
        said = f"rendered {len(template.render({'messages': []}, now=datetime.min))}"
    except (TemplateRefused, FolderError) as error:
        said = str(error)
    template = None
    print(json.dumps([name, time.process_time() - used, peak_megabytes(), said[:300]]), flush=True)
"""


@cache
def results() -> dict[str, tuple[float, int, str]]:
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines()]
    if len(lines) < len(RENDERS) + len(COMPILED):
        lines.append([f"after {lines[-1][0]}", 0.0, 0, ran.stderr[-2000:]])
    return {name: (seconds, peak, said) for name, seconds, peak, said in lines}


@pytest.mark.parametrize("name", [*RENDERS, *COMPILED])
def test_a_bomb_ends_soon_and_in_little_memory(name: str) -> None:
    assert name in results(), list(results().items())[-1]
    seconds, peak, said = results()[name]
    assert seconds < (3 * LONGEST if "kept" in name else LONGEST)
    assert peak < LARGEST
    assert "kept" not in name or "bytes together" in said
    assert "MemoryError" not in said


def test_all_are_refused_but_those_that_take_linear_time() -> None:
    rendered = {name for name, (_, _, said) in results().items() if said.startswith("rendered")}
    assert rendered == LINEAR
