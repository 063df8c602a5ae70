"""Render messages with a family in this process, for engines that have no route that does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread
import attrs

from tito_core import InputError, Message

from .protocol import Rendering

if TYPE_CHECKING:  # an adapter that has no model folder loads no tokenizer library
    from tito_io.families.family import Bound, Family
    from tito_io.families.rendering import RenderingFamily
    from tito_io.families.tokenizer_family import TokenizerBound, TokenizerFamily

F = TypeVar("F", bound="RenderingFamily[Any]")


def check_family(family: object) -> None:
    """Raise `InputError` for a folder's name in the place of a family.

    >>> check_family("MODEL_FOLDER")
    Traceback (most recent call last):
    tito_core.errors.InputError: family is 'MODEL_FOLDER': give a family, such as Family.load('MODEL_FOLDER')
    """
    if isinstance(family, str | PathLike):
        name = str(family)
        raise InputError(f"family is {name!r:.60}: give a family, such as Family.load({name!r:.60})")


def renders_as(engine: object) -> str | None:
    """Return the name under which the table of rules has an engine, by its attribute; None without one."""
    return getattr(engine, "renders_as", None)


def family_as(family: F, engine: object) -> F:
    """Return a family that renders as an engine does, by its attribute `renders_as`; else as transformers.

    >>> from tito_io.embedded.vocabulary import family
    >>> family_as(family(), object()).rules.engine
    'transformers 5.23'
    """
    return family.rendered_as(renders_as(engine) or "transformers")


def template_of(family: Family | TokenizerFamily, rendering: Rendering) -> Bound | TokenizerBound:
    """Return a family's template with the tools and arguments of a `rendering`: a `TokenizeFn`."""
    bound = family.tokenize_fn(tools=rendering.tools or None, **rendering.template_args)
    return bound if rendering.opening is None else attrs.evolve(bound, opening=rendering.opening)


def template_words(engine: object, rendering: Rendering) -> tuple[str, ...]:
    """Return the words that an engine's template looks for in messages; none without its model folder."""
    family: Family | TokenizerFamily | None = getattr(engine, "family", None)
    return () if family is None else template_of(family, rendering).template_words


async def family_ids(
    family: Family | TokenizerFamily,
    messages: Sequence[Message],
    rendering: Rendering,
    *,
    add_generation_prompt: bool,
) -> list[int]:
    """Return the ids of messages, rendered in a thread: other turns go on meanwhile.

    Raises `TemplateRefused` where the template rejects the messages.
    """
    render = partial(template_of(family, rendering), add_generation_prompt=add_generation_prompt)
    return list(await anyio.to_thread.run_sync(render, messages))
