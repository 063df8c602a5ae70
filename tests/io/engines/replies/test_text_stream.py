"""The text of ids that come in pieces."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.io.engines.scripted import MODEL
from tito_io.engines.replies.text_stream import TextStream


@settings(max_examples=25)
@given(st.text(max_size=12), st.integers(0, 4), st.data())
def test_text_in_pieces_is_the_whole_text(text: str, hold: int, data: st.DataObject) -> None:
    """Whatever the pieces and however much is held back, nothing is lost, doubled or half a character."""
    ids = MODEL.encode(text)
    stream, sent, place = TextStream(MODEL.decode, hold), "", 0
    while place < len(ids):
        size = data.draw(st.integers(1, 3))
        sent += stream.add(ids[place : place + size])
        place += size
        assert text.startswith(sent)
        assert len(sent) <= max(len(MODEL.decode(ids[:place])) - hold, 0)
    assert sent + stream.end(text) == text


def test_each_piece_decodes_a_short_window() -> None:
    lengths: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        lengths.append(len(ids))
        return MODEL.decode(ids)

    stream = TextStream(decode)
    for index in MODEL.encode("word " * 200):
        stream.add([index])
    assert max(lengths) <= 2
