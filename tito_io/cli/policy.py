"""The kernel's choices for turns that end unusually, as options: `--truncated` and `--odd-stop`."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar

import click

from tito_core import OddStop, Policy, Truncated

from .options import choices

F = TypeVar("F", bound=Callable[..., Any])


def _choice(option: str, default: Enum, help: str) -> Callable[[F], F]:  # noqa: A002  # click's name
    """Return an option that takes the names of an enum in lower case, described by their values."""
    words = {one.name.lower(): one.value for one in type(default)}
    return click.option(
        option,
        type=click.Choice(list(words)),
        default=default.name.lower(),
        show_default=True,
        help=f"{help} {choices(words)}",
    )


truncated = _choice("--truncated", Truncated.CLOSE, "What follows a turn that ended without a stop token.")
odd_stop = _choice(
    "--odd-stop",
    OddStop.KEEP,
    "What follows a turn that ended with another stop token than the template writes.",
)


def policy_of(*, truncated: str, odd_stop: str) -> Policy:
    """Return the policy that the options name.

    >>> policy_of(truncated="close", odd_stop="keep").odd_stop.name
    'KEEP'
    """
    return Policy(truncated=Truncated[truncated.upper()], odd_stop=OddStop[odd_stop.upper()])
