"""Options of training rows refuse what is no member of their enumeration."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core import InputError
from tito_core.samples.options import (
    Cut,
    SampleOptions,
)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"max_length": 0}, "max_length is 0"),
        ({"max_length": True}, "max_length is True"),
        ({"max_length": "9"}, "max_length is '9'"),
        ({"owner": "first"}, "owner is 'first': give Owner.FIRST or Owner.LAST or Owner.LONGEST"),
        ({"truncated": Cut.INSIDE}, "truncated is .*: give TurnRule.KEEP or"),
        ({"rows": None}, "rows is None: give RowPer.LEAF or RowPer.CALL"),
    ],
    ids=str,
)
def test_a_wrong_option_is_refused_by_name(change: dict[str, Any], error: str) -> None:
    with pytest.raises(InputError, match=error):
        SampleOptions(**change)
