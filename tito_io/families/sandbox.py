"""The sandboxed Jinja environment for untrusted chat templates.

It has the options, tags, filters and functions of transformers' environment. In addition, no template reaches
the interpreter, nothing is random, and every operation stays within `TemplateLimits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Context, Macro, markup_join
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from markupsafe import Markup

from . import result_size
from .jinja_extensions import (
    TICK,
    WEIGHED,
    DictFunction,
    GenerationBlock,
    Guards,
    TemplateNames,
    meter,
    raise_exception,
    strftime_now,
    tojson,
)
from .limits import SCALARS, TemplateLimits

_SHALLOW = frozenset(
    {"attr", "batch", "count", "d", "default", "first", "items", "last", "length", "list"}
    | {"map", "reject", "rejectattr", "reverse", "select", "selectattr", "slice"}
)
"""Filters that read only the items of a value itself."""

_WALKED = frozenset({"groupby", "join", "max", "min", "sort", "sum", "unique"})
"""Filters that add or compare the items of an iterator, whose size is not known before."""

_COMPARING = frozenset(
    {"eq", "equalto", "ne", "lt", "lessthan", "gt", "greaterthan", "le", "ge", "in"}
    | {"==", "!=", "<", ">", "<=", ">="}
)
"""Tests that walk through their arguments."""

_MISSING = frozenset({"random", "urlize", "wordwrap"})
"""Filters that are left out: one is random, the others take too long on a long text."""

_SCOPES = ("_loop_vars", "_block_vars")
"""Keyword arguments that Jinja's compiled code adds to every call."""

_DICT_NAMES = frozenset(dir(dict))
"""Attributes of dicts, which hide keys of the same name."""

_TEXT_NAMES = frozenset(name for name in dir(str) if name[0] != "_") - {"format", "format_map"}
"""Methods of strings that lead a template nowhere else."""


@pass_context
def _tick(context: Context, value: bool) -> bool:
    meter(context).tick()
    return value


class _Formatter(SandboxedFormatter):
    """`str.format` in the sandbox, with widths limited."""

    def __init__(self, environment: Sandbox) -> None:
        super().__init__(environment)
        self._limits = environment.limits
        self._length = 0

    def format_field(self, value: Any, format_spec: str) -> Any:
        result_size.spec(self._limits, format_spec)
        self._limits.printable(value)
        text = super().format_field(value, format_spec)
        self._length = self._limits.text(self._length + len(text))
        return text


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja environment for chat templates."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, limits: TemplateLimits) -> None:
        """Make an environment whose templates stay within `limits`."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationBlock, loopcontrols],
            finalize=limits.printable,
        )
        self.limits = limits
        del self.globals["lipsum"]
        self.globals |= {
            "dict": DictFunction(),
            "namespace": TemplateNames,
            "raise_exception": raise_exception,
            "strftime_now": strftime_now,
        }
        self._limit_filters()

    def concat(self, pieces: Iterable[str]) -> str:
        """Join the texts that a template, a macro or a block printed."""
        return self.limits.joined(pieces)

    def str_join(self, parts: Iterable[Any]) -> str:
        """Join the operands of `~`."""
        return self.limits.joined(str(self.limits.printable(part)) for part in parts)

    def markup_join(self, parts: Iterable[Any]) -> str:
        """Join the operands of `~` where Jinja escapes HTML."""
        checked = [self.limits.printable(part) for part in parts]
        self.limits.text(sum(len(str(part)) for part in checked))
        return markup_join(checked)

    def _limit_filters(self) -> None:
        self.filters["tojson"] = tojson
        self.filters = {name: _weighing(self.limits, name, one) for name, one in self.filters.items()}
        self.filters |= {name: _absent(name) for name in _MISSING}
        self.filters |= {TICK: _tick, WEIGHED: self.limits.printable}
        tests: dict[str, Any] = self.tests
        self.tests = {**tests, **{name: _comparing(self.limits, tests[name]) for name in _COMPARING}}

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        """Add `Guards` to a parsed template; make its code join the operands of `~` by our methods."""
        guarded = Guards().visit(source).set_environment(self)
        code = super()._generate(guarded, *args, **kwargs)
        names = ("str_join", "markup_join")
        return "\n".join([code, *(f"{name} = environment.{name}" for name in names), ""])

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Look up `attribute` as jinja2 does, faster for dicts and strings, which templates read most."""
        if type(obj) is dict and attribute not in _DICT_NAMES:
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        if type(obj) is str and attribute in _TEXT_NAMES:
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Subscript as jinja2 does, with a key small enough to be hashed and printed."""
        if type(argument) not in SCALARS:
            self.limits.weigh(argument)
        return super().getitem(obj, argument)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute `left operator right` if the result is not too large."""
        if operator == "+":
            return self._added(left, right)
        meter(context).tick()
        result_size.OPERATORS[operator](self.limits, left, right)
        return self.limits.measured(self.binop_table[operator](left, right))

    def _added(self, left: Any, right: Any) -> Any:
        total = left + right
        return (
            total
            if type(total) is str and len(total) <= self.limits.characters
            else self.limits.measured(total)
        )

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `obj` from a template, after its arguments have been weighed."""
        meter(context).tick()
        if type(obj) is Macro:
            return super().call(context, obj, *args, **kwargs)
        scope = {name: kwargs.pop(name) for name in _SCOPES if name in kwargs}
        args, kwargs = self._weighed(obj, args, kwargs)
        return self.limits.measured(super().call(context, obj, *args, **kwargs, **scope))

    def _weighed(
        self, method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with limits added and iterators as lists."""
        if type(method) is BuiltinMethodType:
            if method.__name__ == "join":
                args = tuple(self.limits.listed(one) if isinstance(one, Iterator) else one for one in args)
            self._expect(method, args, kwargs)
            if method.__name__ in {"split", "rsplit"} and len(args) < 2:  # noqa: PLR2004  # the second is maxsplit
                kwargs = {"maxsplit": self.limits.items, **kwargs}
        for value in (*args, *kwargs.values()):
            if type(value) not in SCALARS:
                self.limits.weigh(value)
        return args, kwargs

    def _expect(self, method: BuiltinMethodType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        owner = method.__self__
        if isinstance(owner, list | tuple):
            self.limits.weigh(owner)
        elif isinstance(owner, str | bytes | int) and method.__name__ in result_size.METHODS:
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


def _weighing(limits: TemplateLimits, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter `function` with its value weighed before, and its result measured after."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0
    expected = result_size.FILTERS.get(name)

    @wraps(function)
    def bounded(*args: Any, **kwargs: Any) -> Any:
        value = args[first]
        if name in _WALKED and isinstance(value, Iterator):
            value = limits.listed(value)
        if name not in _SHALLOW and type(value) is not str:
            limits.weigh(value)
        if expected is not None:
            limits.text(expected(limits, value, *args[first + 1 :], **kwargs))
        return limits.measured(function(*args[:first], value, *args[first + 1 :], **kwargs))

    return bounded


def _comparing(limits: TemplateLimits, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def bounded(*args: Any) -> Any:
        return function(*map(limits.printable, args))

    return bounded


def _absent(name: str) -> Callable[..., NoReturn]:
    def absent(*_: Any, **__: Any) -> NoReturn:
        raise SecurityError(f"the filter {name!r} is not available to chat templates")

    return absent
