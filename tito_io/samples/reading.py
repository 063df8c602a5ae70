"""How a file of stored trajectories is to be read."""

from __future__ import annotations

from enum import Enum

import attrs

from tito_core import InputError

from .forms import FORMS


class Group(Enum):
    """Which lines are one conversation."""

    ID = "those that follow each other with one id; where lines have none, all that follow each other"
    FILE = "all lines of the file"
    LINE = "each line by itself"


@attrs.frozen(kw_only=True)
class ReadOptions:
    """How to read a file; raises `InputError` for a form that there is none of."""

    form: str | None = attrs.field(default=None)
    """The name of the lines' form; None to go by the first line that can be read."""
    group: Group = Group.ID
    id_field: str | None = None
    """Where lines have their conversation's id, in objects in objects with dots between; None for the
    form's own places."""

    @form.validator
    def _is_known(self, _: object, value: str | None) -> None:
        if value is not None and value not in FORMS:
            raise InputError(f"form is {value!r:.40}: give one of {', '.join(FORMS)}")
