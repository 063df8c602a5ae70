"""A stranger's template renders, or is refused with a reason; it never gets out, and never gets large."""

from __future__ import annotations

import subprocess
import sys
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.io.families.template_texts import TEXTS
from tito_core import TemplateRefused
from tito_io.families.folder import Source
from tito_io.families.limits import LimitReached, TemplateLimits
from tito_io.families.meter import RenderMeter
from tito_io.families.template import ChatTemplate

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001  # templates print the wall clock, which has no zone
TIGHT = TemplateLimits(characters=200_000, items=20_000, seconds=0.2)


def render(source: str, limits: TemplateLimits = TIGHT, **variables: Any) -> str:
    template = ChatTemplate.compile(Source(source, "chat_template.jinja"), limits)
    messages = [{"role": "user", "content": "hello"}]
    return template.render({"messages": messages, "tools": None, **variables}, now=NOON)


def refusal(source: str, limits: TemplateLimits = TIGHT) -> str:
    with pytest.raises(TemplateRefused) as caught:
        render(source, limits)
    return str(caught.value)


@pytest.mark.parametrize("source", TEXTS["escapes"])
def test_nothing_leads_out_of_the_sandbox(source: str) -> None:
    assert any(word in refusal(source) for word in ("SecurityError", "Undefined", "TypeError", "No filter"))


@pytest.mark.parametrize(("source", "reason"), TEXTS["reasons"])
def test_a_refusal_says_where_and_why(source: str, reason: str) -> None:
    patient = attrs.evolve(TIGHT, seconds=20)  # a recursion in a large heap may take some tenths of a second
    assert f"chat_template.jinja, {reason}" in refusal(source, patient)


def test_a_long_reason_is_cut() -> None:
    assert len(refusal("{{ raise_exception('x' * 100000) }}")) < 2_000


WIDE = "{% for i in range(100000) %}" + "y" * 1000 + "{% endfor %}"
LARGE = [
    *TEXTS["large"],
    *(TEXTS["trees"] + after for after in TEXTS["after_trees"]),
    *(WIDE, f"{{% set x %}}{WIDE}{{% endset %}}"),
    f"{{% macro f() %}}{WIDE}{{% endmacro %}}{{{{ f() | length }}}}",
]


@pytest.mark.parametrize("source", LARGE)
def test_nothing_large_is_made(source: str) -> None:
    began = time.thread_time()
    said = refusal(source, attrs.evolve(TIGHT, seconds=3))
    assert any(word in said for word in ("LimitReached", "OverflowError"))
    assert "processor time" not in said
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("source", TEXTS["long"])
def test_nothing_goes_on_for_ever(source: str) -> None:
    began = time.thread_time()
    assert "LimitReached: more processor time" in refusal(source)
    assert time.thread_time() - began < 5


def test_splitting_stops_at_the_limit() -> None:
    tracemalloc.start()
    try:
        assert "a list of" in refusal("{{ ('ab ' * 1000000).split() }}", TemplateLimits(items=1 << 16))
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.whole
def test_the_default_limits_fit_into_little_memory() -> None:
    script = (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))\n"
        "from tests.io.families.test_template import *\n"
        "for source in LARGE:\n"
        "    if 'namespace' not in source or \"x='x'\" in source:\n"
        "        try: print('made', len(render(source, TemplateLimits(seconds=1))))\n"
        "        except TemplateRefused as error: print('refused', str(error)[:60])\n"
    )
    root = Path(__file__).parents[3]
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("refused") > 40


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ 'x' * 1000 }}", "x" * 1000),
        ("{% for i in range(1000) %}x{% endfor %}", "x" * 1000),
        ("{{ range(10000) | sum }}", "49995000"),
        *TEXTS["ordinary"],
        ("{{ ' meter' in self }}{{ meter is defined }}", None),
    ],
)
def test_ordinary_work_is_not_in_the_way(source: str, text: str | None) -> None:
    if text is None:
        refusal(source)
    else:
        assert render(source) == text


@pytest.mark.parametrize(
    "value", ["x" * 11, ["x"] * 5, {"a": "x" * 9}, [[[]]] * 4, (1,) * 10, {1: 2}.items()]
)
def test_a_value_weighs_its_text_and_its_parts(value: Any) -> None:
    assert TemplateLimits().weigh(value) > 0
    with pytest.raises(LimitReached):
        TemplateLimits(characters=10 if value != {1: 2}.items() else 4).weigh(value)
    with pytest.raises(LimitReached):
        TemplateLimits(items=0 if isinstance(value, str) else 1).weigh(value)


def test_processor_time_is_not_wall_time() -> None:
    meter = RenderMeter(TemplateLimits(seconds=0.05), NOON)
    time.sleep(0.2)
    for _ in range(1000):
        meter.tick()


def test_a_meter_runs_out() -> None:
    meter = RenderMeter(TemplateLimits(seconds=0.01), NOON)
    began = time.thread_time()
    while time.thread_time() - began < 0.02:
        pass
    with pytest.raises(LimitReached):
        [meter.tick() for _ in range(100)]  # type: ignore[func-returns-value]  # it is called for its error


def test_an_outage_is_no_refusal() -> None:
    class Empty:
        def render(self, _: object) -> str:
            raise MemoryError

    template = attrs.evolve(ChatTemplate.compile(Source("x", "x")), compiled=Empty())  # type: ignore[arg-type]  # a stand-in
    with pytest.raises(MemoryError):
        template.render({}, now=NOON)


def test_one_template_renders_in_many_threads_at_once() -> None:
    source = (
        "{% set s = namespace(n=0) %}{% for i in range(300) %}{% set s.n = s.n + k %}{% endfor %}{{ s.n }}"
    )
    template = ChatTemplate.compile(Source(source, "x"))
    with ThreadPoolExecutor(4) as pool:
        texts = pool.map(lambda k: template.render({"k": k}, now=NOON), range(20))
        assert list(texts) == [str(300 * k) for k in range(20)]


def test_a_template_remembers_nothing() -> None:
    template = ChatTemplate.compile(
        Source("{% set c = cycler(1, 2) %}{{ c.next() }}{{ x }}{% set x = 1 %}", "x")
    )
    assert [template.render({}, now=NOON) for _ in range(2)] == ["1", "1"]


def test_the_clock_stands_still_within_a_render() -> None:
    assert render("{{ strftime_now('%H:%M:%S.%f') }}") == "12:00:00.000000"
