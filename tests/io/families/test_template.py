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

from tito_core import TemplateRefused
from tito_io.families.folder import Source
from tito_io.families.limits import LimitReached, TemplateLimits
from tito_io.families.meter import RenderMeter
from tito_io.families.template import ChatTemplate

NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001  # templates print the wall clock, which has no zone
TIGHT = TemplateLimits(characters=200_000, items=20_000, seconds=0.2)
GROW = "{%% set ns = namespace(x=%s, y=%s) %%}{%% for i in range(100) %%}%s{%% endfor %%}"
TREES = GROW % ("[1]", "[1]", "{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}")


def render(source: str, limits: TemplateLimits = TIGHT, **variables: Any) -> str:
    template = ChatTemplate.compile(Source(source, "chat_template.jinja"), limits)
    messages = [{"role": "user", "content": "hello"}]
    return template.render({"messages": messages, "tools": None, **variables}, now=NOON)


def refusal(source: str, limits: TemplateLimits = TIGHT) -> str:
    with pytest.raises(TemplateRefused) as caught:
        render(source, limits)
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ .__mro__ }}",
        "{{ ''['__class__'].mro() }}",
        "{{ (''|attr('__class__')).mro() }}",
        "{{ '{0.__class__.__mro__}'.format('x') }}",
        "{{ '{a.__class__.__mro__}'.format_map({'a': ''}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ raise_exception.__globals__.os }}",
        "{{ strftime_now.__code__.co_consts }}",
        "{{ self._TemplateReference__context.parent }}",
        "{{ self.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'a': 1}) }}",
        "{{ messages[0].pop('role') }}",
        "{{ [1].sort() }}",
        "{{ dict.mro() }}",
        "{{ dict.__class__.mro() }}",
        "{{ range.__self__.x }}",
        "{{ (messages | map(attribute='__class__') | first).x }}",
        "{{ (messages | map('attr', '__class__') | first).mro() }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns.__html__ = range %}",
        "{% set ns = namespace({'_Namespace__attrs': 1}) %}",
        "{% for x in (1,) %}{{ loop.__init__.__globals__ }}{% endfor %}",
        "{% for x in (1,) %}{{ loop._iterable.x }}{% endfor %}",
        "{% macro f() %}{% endmacro %}{{ f._environment.x }}",
        "{% macro f() %}{{ caller.__call__.x }}{% endmacro %}{% call f() %}{% endcall %}",
        "{% include '/etc/passwd' %}",
        "{% import '/etc/passwd' as x %}",
        "{% extends '/etc/passwd' %}",
        "{{ [1, 2] | random }}",
        "{{ lipsum() }}",
        "{{ 'x.org' | urlize }}",
        "{{ 'x' | wordwrap }}",
        "{{ ('{}' | safe).format(1) }}",
    ],
)
def test_nothing_leads_out_of_the_sandbox(source: str) -> None:
    assert any(word in refusal(source) for word in ("SecurityError", "Undefined", "TypeError", "No filter"))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("\n{{ raise_exception('no ' ~ messages[0].role) }}", "line 2: raise_exception: no user"),
        ("{{ raise_exception(nothing) }}", "line 1: raise_exception: "),
        ("{{ nothing.at.all }}", "line 1: UndefinedError: 'nothing' is undefined"),
        ("\n\n{% for x in messages %}\n{{ x + 1 }}{% endfor %}", "line 4: TypeError: unsupported operand"),
        ("{{ 1 / 0 }}", "line 1: ZeroDivisionError"),
        ("{{ [1].index(2) }}", "line 1: ValueError"),
        ("{{ {[1]: 2} }}", "line 1: TypeError: unhashable"),
        ("{{ strftime_now(1) }}", "line 1: TypeError"),
        ("{{ (none | list) }}", "line 1: TypeError"),
        ("{{ range | tojson }}", "line 1: TypeError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "line 1: RecursionError"),
        ("{% block a %}{{ self.a() }}{% endblock %}", "line 1: RecursionError"),
        ("{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}", "line 1: RecursionError"),
        ("{{ ''.__class__() }}", "line 1: SecurityError"),
        ("{{ 'x' * 10 ** 10 }}", "line 1: LimitReached: a text of 10000000000 characters"),
    ],
)
def test_a_refusal_says_where_and_why(source: str, reason: str) -> None:
    patient = attrs.evolve(TIGHT, seconds=20)  # a recursion in a large heap may take some tenths of a second
    assert f"chat_template.jinja, {reason}" in refusal(source, patient)


def test_a_long_reason_is_cut() -> None:
    assert len(refusal("{{ raise_exception('x' * 100000) }}")) < 2_000


LARGE = [
    "{{ 'x' * 10 ** 10 }}",
    "{{ 10 ** 10 * 'x' }}",
    "{{ (10 ** 10 * [0]) | length }}",
    "{{ (10 ** 10 * (0,)) | length }}",
    "{{ 10 ** 100000 }}",
    "{% for i in range(10 ** 9) %}{% endfor %}",
    "{% for i in range(100000) %}" + "y" * 1000 + "{% endfor %}",
    "{% set x %}{% for i in range(100000) %}" + "y" * 1000 + "{% endfor %}{% endset %}",
    "{% macro f() %}{% for i in range(100000) %}"
    + "y" * 1000
    + "{% endfor %}{% endmacro %}{{ f() | length }}",
    GROW % ("'x'", "1", "{% set ns.x = ns.x ~ ns.x %}"),
    GROW % ("'x'", "1", "{% set ns.x = ns.x + ns.x %}"),
    GROW % ("'x'", "1", "{% set ns.x = '%s%s' % (ns.x, ns.x) %}"),
    GROW % ("'x'", "1", "{% set ns.x = '{0}{0}'.format(ns.x) %}"),
    GROW % ("'x'", "1", "{% set ns.x = [ns.x, ns.x] | join %}"),
    GROW % ("'x'", "1", "{% set ns.x = ns.x.replace('x', 'xx') %}"),
    GROW % ("'x'", "1", "{% set ns.x = ns.x | replace('x', 'xx') %}"),
    GROW % ("'x'", "1", "{% set ns.x = ns.x | tojson | tojson %}"),
    GROW % ("'x'", "1", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
    GROW % ("[1]", "1", "{% set ns.x = ns.x + ns.x %}"),
    GROW % ("(1,)", "1", "{% set ns.x = ns.x + ns.x %}"),
    GROW % ("10", "1", "{% set ns.x = ns.x * ns.x %}"),
    "{% autoescape true %}" + GROW % ("'x'", "1", "{% set ns.x = ns.x ~ ns.x %}") + "{% endautoescape %}",
    "{{ 'x' | center(10 ** 10) }}",
    "{{ 'x' | center(10000000000) }}",
    "{{ 'x'.center(10 ** 10) }}",
    "{{ 'x'.ljust(10 ** 10) }}",
    "{{ 'x'.rjust(10 ** 10) }}",
    "{{ '1'.zfill(10 ** 10) }}",
    "{{ '\t'.expandtabs(10 ** 9) }}",
    "{{ '{:>9999999999}'.format('x') }}",
    "{{ '{:>{w}}'.format('x', w=9999999999) }}",
    "{{ '{x:>9999999999}'.format_map({'x': 'x'}) }}",
    "{% for f in ['{:>9999999999}'] | map(attribute='format') %}{{ f('x') }}{% endfor %}",
    "{{ '%9999999999d' % 1 }}",
    "{{ '%.9999999999f' % 1.5 }}",
    "{{ '%*d' % (9999999999, 1) }}",
    "{{ '%(a)9999999999d' % {'a': 1} }}",
    "{{ '%9999999999d' | format(1) }}",
    "{{ 'x\n' | indent(10 ** 10) }}",
    "{{ ('x\n' * 9000) | indent('y' * 9000) }}",
    "{{ ('y' * 9000).join(['x'] * 9000) }}",
    "{{ (['x'] * 9000) | join('y' * 9000) }}",
    "{{ (['x' * 9000] * 9000) | select | join }}",
    "{{ ''.join((['x' * 9000] * 9000) | select) }}",
    "{{ ('x' * 9000).replace('x', 'y' * 9000) }}",
    "{{ ('x' * 9000) | replace('x', 'y' * 9000) }}",
    "{{ ('x' * 9000).translate({120: 'y' * 9000}) }}",
    "{{ [1] | batch(10 ** 10, 1) | list }}",
    "{{ [1] | slice(10 ** 10) | list }}",
    "{{ [1] | tojson(indent=10 ** 10) }}",
    "{{ ([1] * 9000) | tojson(separators=('y' * 9000, ':')) }}",
    "{{ (1).to_bytes(10 ** 10, 'big') }}",
    "{{ ('x ' * 90000).split() }}",
    "{{ ('x ' * 90000).split(' ') }}",
    "{{ ('x ' * 90000) | list }}",
    "{{ ('\n' * 90000).splitlines() }}",
    TREES + "{{ ns.x }}",
    TREES + "{{ 'a' ~ ns.x }}",
    TREES + "{{ '%s' % ns.x }}",
    TREES + "{{ '{}'.format(ns.x) }}",
    TREES + "{{ '{0[0]}'.format([ns.x]) }}",
    TREES + "{{ ns.x | tojson }}",
    TREES + "{{ ns.x | string }}",
    TREES + "{{ [ns.x] | join }}",
    TREES + "{{ [ns.x] | map('string') | list }}",
    TREES + "{{ ns.x == ns.y }}",
    TREES + "{{ ns.x in [ns.y] }}",
    TREES + "{{ ns.x is eq ns.y }}",
    TREES + "{{ [ns.x] | selectattr(0, 'equalto', ns.y) | list }}",
    TREES + "{{ [ns.x].index(ns.y) }}",
    TREES + "{{ [ns.x, ns.y] | sort }}",
    TREES + "{{ [ns.x, ns.y] | max }}",
    TREES + "{{ [1][ns.x].foo }}",
    TREES + "{{ raise_exception(ns.x) }}",
    TREES + "{{ cycler(ns.x).next() }}",
    TREES + "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(ns.x) }}",
    TREES + "{% for x in [ns.x, ns.y] %}{{ loop.changed(x) }}{% endfor %}",
    GROW % ("(1,)", "1", "{% set ns.x = (ns.x, ns.x) %}") + "{{ {ns.x: 1} }}",
    GROW % ("(1,)", "1", "{% set ns.x = (ns.x,) + (ns.x,) %}") + "{{ {ns.x: 1} }}",
    GROW % ("(1,)", "1", "{% set ns.x = (ns.x,) * 2 %}") + "{{ {ns.x: 1} }}",
    GROW % ("{}", "1", "{% set ns.x = {'a': ns.x, 'b': ns.x} %}") + "{{ ns.x.values() }}",
    GROW % ("{}", "1", "{% set ns.x = dict(a=ns.x, b=ns.x) %}") + "{{ ns.x }}",
    GROW % ("namespace()", "1", "{% set ns.x = namespace(a=ns.x, b=ns.x) %}") + "{{ ns.x }}",
    "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
]
LONG = [
    "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "{% for i in range(100000) %}{% for j in range(100000) if j < 0 %}{% endfor %}{% endfor %}",
    "{% set r = range(20000) %}{% for i in range(100000) if (r | sum) < 0 %}{% endfor %}",
    "{% for i in range(100000) %}{% set x = range(20000) | sum %}{% endfor %}",
    "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "{% macro f() %}{{ caller() }}{{ caller() }}{% endmacro %}"
    + "{% call f() %}" * 18
    + "{{ f.name }}"
    + "{% endcall %}" * 18,
    "{% set s = 'x' * 190000 %}{% for i in range(100000) %}{% set t = s[1:] ~ s[:3] %}{% endfor %}",
]


@pytest.mark.parametrize("source", LARGE)
def test_nothing_large_is_made(source: str) -> None:
    began = time.thread_time()
    said = refusal(source, attrs.evolve(TIGHT, seconds=3))
    assert any(word in said for word in ("LimitReached", "OverflowError"))
    assert "processor time" not in said
    assert time.thread_time() - began < 5


@pytest.mark.parametrize("source", LONG)
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
        ("{{ 'No. 99999999999: %s' % 'a' }}", "No. 99999999999: a"),
        ("{{ '{} 99999999999'.format('a') }}", "a 99999999999"),
        ("{{ 2 ** 100 }}", str(2**100)),
        ("{{ messages == messages and messages[0] in messages and messages is eq messages }}", "True"),
        ("{{ [[1, [2]], (3, 4)] }}{{ {(1, 2): 3}[(1, 2)] }}", "[[1, [2]], (3, 4)]3"),
        (
            "{{ 'a,b'.split(',') }}{{ 'a,b,c'.rsplit(',', 1) }}{{ 'a b'.split() }}",
            "['a', 'b']['a,b', 'c']['a', 'b']",
        ),
        ("{% for x in [1] %}{{ 'a,b'.split(',', maxsplit=0) }}{{ ','.join(['a']) }}{% endfor %}", "['a,b']a"),
        ("{{ dict(self=1) if false else namespace(self=1).self }}", "1"),
        ("{% macro f(context, obj) %}{{ obj }}{% endmacro %}{{ f(context=2, obj=1) }}", "1"),
        ("{{ [1] | map('string') == [1] | map('string') }}{{ 1 in [1, 2] | select }}", "FalseTrue"),
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
