"""Each request of `requests.jsonl` becomes what stands there, or is refused in the words that stand there.

A line has the name of a dialect, a request's `body`, and what comes of it:

- `parsed`: the values of `ParsedRequest` that are not the defaults; without it the request is refused.
- `ignored`: what is accepted without effect, and refused by a strict dialect that is not told to ignore it.
- `error`: the error of a strict dialect, and without `parsed` of every one; `lenient` where that is another.
- `rule`: what the line is an example of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

from tito_core import InputError
from tito_io.dialects import Anthropic, Chat, Dialect, Google, ParsedRequest, Responses

DIALECTS: dict[str, Any] = {"chat": Chat, "anthropic": Anthropic, "responses": Responses, "google": Google}
LINES = Path(__file__).with_name("requests.jsonl").read_bytes().splitlines()
ROWS: list[dict[str, Any]] = list(map(orjson.loads, LINES))


def name(row: dict[str, Any]) -> str:
    """Return what a line is an example of."""
    told = row.get("rule") or row.get("error") or "ignored"
    return f"{row['dialect']}: {told[:60]}"


def values(parsed: ParsedRequest) -> Any:
    """Return what of a request is not the default, as JSON has it, but for what the lines have elsewhere."""
    plain = attrs.evolve(ParsedRequest(messages=()), body=parsed.body, ignored=parsed.ignored)
    found = {one.name: getattr(parsed, one.name) for one in attrs.fields(ParsedRequest)}
    changed = {key: value for key, value in found.items() if value != getattr(plain, key)}
    return orjson.loads(orjson.dumps(changed, default=dict))


def outcome(dialect: Dialect, row: dict[str, Any]) -> Any:
    """Return the values of a line's request, or the text of the error."""
    try:
        parsed = dialect.parse(row["body"])
    except InputError as error:
        return str(error)
    assert list(parsed.ignored) == row.get("ignored", [])
    return values(parsed)


@pytest.mark.parametrize("row", ROWS, ids=name)
def test_a_request_becomes_what_its_line_says(row: dict[str, Any]) -> None:
    dialect, refused = DIALECTS[row["dialect"]], row.get("error")
    parsed = row.get("parsed", row.get("lenient", refused))
    assert outcome(dialect(), row) == parsed
    assert outcome(dialect(strict=True), row) == (refused or parsed)
    if "ignored" in row:
        assert outcome(dialect(ignoring=frozenset(row["ignored"]), strict=True), row) == parsed
