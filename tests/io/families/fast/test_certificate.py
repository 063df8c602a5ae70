"""A certificate says how far a comparison came, and other files are not accepted as certificates."""

from __future__ import annotations

import json
from itertools import count

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_io.families.fast.certificate import Certificate, compared


@given(at=st.integers(0, 5))
def test_a_comparison_ends_at_the_first_difference(at: int) -> None:
    pieces = [(f"kind {index}", f"text {index}") for index in range(6)]
    found = compared(lambda text: None if text == f"text {at}" else [1], lambda _: [1], pieces)
    assert found == Certificate(texts=at + 1, characters=6 * (at + 1), difference=f"kind {at}")


def test_an_answer_that_changes_the_second_time_is_a_difference() -> None:
    times = count()
    found = compared(lambda _: [next(times)], lambda _: [0], [("words", "a")])
    assert found.difference == "words"


@pytest.mark.parametrize("difference", [None, "code points"])
def test_a_certificate_comes_back_whole(difference: str | None) -> None:
    one = Certificate(texts=3, characters=40, difference=difference)
    assert Certificate.read(json.dumps(attrs.asdict(one)).encode()) == one


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"null", b"[]", b"{}", b"[" * 100_000, b"\xff"),
        b'{"texts": true, "characters": 1, "difference": null}',
        b'{"texts": -1, "characters": 1, "difference": null}',
        b'{"texts": 1, "characters": 1, "difference": false}',
        b'{"texts": 1, "characters": 1, "difference": null, "more": 1}',
    ],
)
def test_what_is_no_certificate(body: bytes) -> None:
    assert Certificate.read(body) is None
