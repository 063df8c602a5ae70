"""The sandboxed Jinja environment for untrusted chat templates.

It has the options, tags, filters and functions of transformers' environment. In addition, no template reaches
the interpreter, nothing is random, and every operation stays within `TemplateLimits`.

Each operation is counted by the `RenderMeter` of its render. An operation of the interpreter cannot be
interrupted. So `result_size` refuses, before it begins, what would be large or take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from itertools import chain
from sys import getsizeof
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.runtime import Context, LoopContext, Macro, markup_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from markupsafe import Markup

from . import result_size
from .jinja_extensions import (
    ARGUMENTS,
    COUNTED,
    TICK,
    WEIGHED,
    DictFunction,
    GenerationBlock,
    Guards,
    TemplateNames,
    raise_exception,
    strftime_now,
    tojson,
)
from .limits import SCALARS, LimitReached, TemplateLimits
from .meter import STEP, meter
from .recorded_reads import RecordingDict

_SHALLOW = frozenset(
    {"attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list"}
    | {"map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice"}
)
"""Filters that read only the items of a value itself."""

_WALKED = frozenset({"groupby", "join", "list", "max", "min", "slice", "sort", "sum", "unique"})
"""Filters that read all items of an iterator, whose size is not known before."""

_LETTERS = (_WALKED - {"join"}) | {"batch", "map", "reject", "rejectattr", "select", "selectattr"}
"""Filters that take a text for a list of its letters."""

_COMPARING = frozenset(
    {"eq", "equalto", "ne", "lt", "lessthan", "gt", "greaterthan", "le", "ge", "in"}
    | {"==", "!=", "<", ">", "<=", ">="}
)
"""Tests that walk through their arguments."""

_MISSING = frozenset({"random", "urlize", "wordwrap"})
"""Filters that are left out: one is random, the others take too long on a long text."""

MANY = 16
"""Arguments of a call that are not looked at for their number."""

LONG = 1 << 12
"""Reading so many characters counts as a step."""

NODES = 1 << 14
"""The most parts of a template's syntax. The longest of 856 public templates has 2,945."""

BRANCHES = 1 << 11
"""The most conditions, loops, macros and blocks of a template. That template has 143."""

NAMES = 1 << 18
"""The most names of a template, times its branches. That template has 14,300."""

_BRANCHES = (nodes.Block, nodes.CallBlock, nodes.For, nodes.If, nodes.Macro)

_SCOPES = ("_loop_vars", "_block_vars")
"""Keyword arguments that Jinja's compiled code adds to every call."""

_DICT_NAMES = frozenset(dir(dict))
"""Attributes of dicts, which hide keys of the same name."""

_TEXT_NAMES = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}
"""Methods of strings that lead a template nowhere else."""

_LOOP_NAMES = frozenset(
    {"depth", "depth0", "first", "index", "index0", "last", "length", "revindex", "revindex0"}
)
"""Attributes of `loop` that are numbers or truth values."""

_MISSED = object()
"""What no template can hold."""


@pass_context  # so that jinja2 does not compute it when the template is compiled
def _tick(_: Context, size: int) -> bool:
    meter().tick(size)
    return True


@pass_context  # likewise
def _count(_: Context, value: Any) -> Any:
    return meter().count(value)


class _Formatter(SandboxedFormatter):
    """`str.format` in the sandbox, with widths limited."""

    def __init__(self, environment: Sandbox) -> None:
        super().__init__(environment)
        self._environment = environment
        self._limits = environment.limits
        self._length = 0

    def format_field(self, value: Any, format_spec: str) -> Any:
        meter().tick()
        result_size.spec(self._limits, format_spec)
        self._environment.examined(value)
        text = super().format_field(value, format_spec)
        self._length = self._limits.text(self._length + len(text))
        return text


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment for chat templates."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: TemplateLimits) -> None:
        """Make an environment whose templates stay within `limits`."""
        self.limits = limits
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, loopcontrols],
            finalize=self.examined,
        )
        del self.globals["lipsum"]
        self.globals |= {
            "dict": DictFunction(),
            "namespace": TemplateNames,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }
        self._limit_filters()

    def examined(self, value: Any) -> Any:
        """Return `value` if it is small enough to print, to compare or to hash."""
        if type(value) is str:
            if len(value) > LONG:
                meter().tick(0, len(value))
        elif type(value) not in SCALARS:
            meter().tick(0, self.limits.weigh(value))
        return value

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the texts that a template, a macro or a block printed."""
        return meter().count(self.limits.joined(pieces))

    def str_join(self, parts: Iterable[Any]) -> str:
        """Join the operands of `~`."""
        return meter().count(self.limits.joined(str(self.examined(part)) for part in parts))

    def markup_join(self, parts: Iterable[Any]) -> str:
        """Join the operands of `~` where Jinja escapes HTML."""
        checked = [self.examined(part) for part in parts]
        self.limits.text(sum(len(str(part)) for part in checked))
        return meter().count(markup_join(checked))

    def _limit_filters(self) -> None:
        self.filters |= {"tojson": tojson, "sum": _sum(self.filters["sum"])}
        self.filters = {name: _weighing(self, name, one) for name, one in self.filters.items()}
        self.filters |= {name: _absent(name) for name in _MISSING}
        self.filters |= {TICK: _tick, COUNTED: _count, WEIGHED: self.examined}
        self.filters[ARGUMENTS] = self._arguments
        tests: dict[str, Any] = self.tests
        self.tests = {**tests, **{name: _comparing(self, tests[name]) for name in _COMPARING}}

    def _arguments(self, values: Any) -> Any:
        values = self.limits.listed(values) if isinstance(values, Iterator) else values
        self.limits.count(len(values))
        return values

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Add `Guards` to a parsed template; make its code join the operands of `~` by our methods."""
        _require_short(source)
        guarded = Guards().visit(source).set_environment(self)
        code = super()._generate(guarded, *args, **kwargs)
        names = ("str_join", "markup_join")
        return "\n".join([code, *(f"{name} = environment.{name}" for name in names), ""])

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up `attribute` as jinja2 does, faster for what templates read most."""
        if type(obj) is dict and attribute not in _DICT_NAMES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if type(obj) is RecordingDict and attribute not in _DICT_NAMES:
            value = obj.get(attribute, _MISSED)
            return self.undefined(obj=obj, name=attribute) if value is _MISSED else value
        if type(obj) is LoopContext and attribute in _LOOP_NAMES:
            return getattr(obj, attribute)
        if type(obj) is str and attribute in _TEXT_NAMES:
            return getattr(obj, attribute)
        if type(obj) is TemplateNames and attribute[:1] != "_":
            value = getattr(obj, attribute, None)
            if value is not None and type(value) in SCALARS:  # values with methods are looked at by jinja2
                return value
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscript as jinja2 does, with a key small enough to be hashed and printed."""
        if type(argument) is str:  # what templates do most
            if type(obj) is dict and argument in obj:
                return obj[argument]
            if type(obj) is RecordingDict and (value := obj.get(argument, _MISSED)) is not _MISSED:
                return value
        return super().getitem(obj, self.examined(argument))

    def call_binop(self, _: Context, /, operator: str, left: Any, right: Any) -> Any:
        """Compute `left operator right` if the result is not too large."""
        if operator == "+":
            total = left + right
            if type(total) is str and len(total) <= self.limits.characters:
                return meter().count(total)
            return self._measured(total)
        meter().tick()
        result_size.OPERATORS[operator](self.limits, left, right)
        return self._measured(self.binop_table[operator](left, right))

    def _measured(self, result: Any) -> Any:
        return meter().count(self.limits.measured(result))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `obj` from a template, after its arguments have been weighed."""
        meter().tick()
        if (many := len(args) + len(kwargs)) > MANY:  # from `*values`, in a tuple that the callee may keep
            meter().tick(STEP * self.limits.count(many))
        if type(obj) is Macro:
            return super().call(context, obj, *args, **kwargs)
        scope = {name: kwargs.pop(name) for name in _SCOPES if name in kwargs}
        args, kwargs = self._weighed(obj, args, kwargs)
        result = self.limits.measured(super().call(context, obj, *args, **kwargs, **scope))
        return meter().count(result, 0 if type(result) in SCALARS else _beside(obj, result))

    def _weighed(
        self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with limits added and iterators as lists."""
        # The methods of text marked as HTML are wrapped by Python code.
        of_markup = isinstance(method, MethodType) and isinstance(method.__self__, Markup)
        if type(method) is BuiltinMethodType or of_markup:
            if method.__name__ == "join":
                args = tuple(self.limits.listed(one) if isinstance(one, Iterator) else one for one in args)
            self._expect(method, args, kwargs)
            if method.__name__ in {"split", "rsplit"} and len(args) < 2:  # noqa: PLR2004  # the second is maxsplit
                kwargs = {"maxsplit": self.limits.items, **kwargs}
        for value in (*args, *kwargs.values()):
            self.examined(value)
        return args, kwargs

    def _expect(self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        owner = method.__self__
        if isinstance(owner, str | list | tuple):
            self.examined(owner)
        if isinstance(owner, str | bytes | int) and method.__name__ in result_size.METHODS:
            self.limits.text(result_size.METHODS[method.__name__](self.limits, owner, *args, **kwargs))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a limited `format` or `format_map` for a string's, None for anything else."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None
        if isinstance(value.__self__, Markup):
            raise SecurityError("text marked as HTML has no format method here")
        return self._format(value.__self__, whole=value.__name__ == "format_map")

    def _format(self, text: str, *, whole: bool) -> Callable[..., str]:
        def bounded(*args: Any, **kwargs: Any) -> str:
            if whole:
                (kwargs,), args = args, ()
            return _Formatter(self).vformat(text, args, kwargs)

        return bounded


def _require_short(source: nodes.Template) -> None:
    """Refuse a template that takes long to compile: Jinja looks at all its names in each of its branches."""
    size = sum(1 for _ in source.find_all(nodes.Node))
    if size > NODES:
        raise LimitReached(f"a template of {size} parts, where {NODES} are allowed")
    branches = sum(1 for _ in source.find_all(_BRANCHES))
    if branches > BRANCHES:
        raise LimitReached(f"a template of {branches} branches, where {BRANCHES} are allowed")
    names = {name.name for name in source.find_all(nodes.Name)}
    if len(names) * branches > NAMES:
        raise LimitReached(f"{len(names)} names in {branches} branches, where {NAMES} together are allowed")


def _weighing(environment: Sandbox, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `function` with its value weighed before, and its result measured after."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0
    limits, expected = environment.limits, result_size.FILTERS.get(name)

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        meter().tick()
        value = args[first]
        if name in _WALKED and isinstance(value, Iterator):
            value = limits.listed(value)
        if name in _LETTERS and isinstance(value, str):
            limits.count(len(value))
        if name not in _SHALLOW:
            environment.examined(value)
        if expected is not None:
            limits.text(expected(limits, value, *args[first + 1 :], **kwargs))
        result = function(*args[:first], value, *args[first + 1 :], **kwargs)
        return _with_lists(name, meter().count(limits.measured(result)))

    return bounded


def _with_lists(name: str, result: Any) -> Any:
    """Count the new lists that the result of a filter holds or yields."""
    if name in ("batch", "slice"):
        return map(meter().count, result)
    if name == "groupby":
        for group in result:
            meter().count(group[1])
    return result


def _beside(method: Any, result: Any) -> int:
    """Return the bytes of what a call made beside its result: pieces of a text, names of a namespace."""
    owner = getattr(method, "__self__", None) if isinstance(method, BuiltinMethodType | MethodType) else None
    if isinstance(owner, str | bytes) and isinstance(result, list | tuple):
        return getsizeof(owner)
    if type(result) is TemplateNames:
        return getsizeof(object.__getattribute__(result, "_Namespace__attrs"))
    return 0


def _sum(add: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `sum`, which adds lists in linear time; `sum` of Python copies each partial sum."""

    @wraps(add)
    def bounded(environment: Sandbox, iterable: Any, attribute: Any = None, start: Any = 0) -> Any:
        if not isinstance(start, list | tuple):
            return add(environment, iterable, attribute, start)
        read = make_attrgetter(environment, attribute) if attribute is not None else None
        parts = [start, *(iterable if read is None else map(read, iterable))]
        if not all(type(part) is type(start) for part in parts):
            raise TypeError(f"can only add {type(start).__name__}s to a {type(start).__name__}")
        environment.limits.count(sum(map(len, parts)))
        return type(start)(chain.from_iterable(parts))

    return bounded


def _comparing(environment: Sandbox, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def bounded(*args: Any) -> Any:
        return function(*map(environment.examined, args))

    return bounded


def _absent(name: str) -> Callable[..., NoReturn]:
    def absent(*_: Any, **__: Any) -> NoReturn:
        raise SecurityError(f"the filter {name!r} is not available to chat templates")

    return absent
