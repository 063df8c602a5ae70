"""A small file cannot take much memory or time, whatever it stands for."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import zstandard

from tests.io.samples.sample_files import put
from tito_core import InputError
from tito_io.samples.lines import RATIO, UNMEASURED, lines

MEGABYTES = 300
"""What the process may take, the interpreter and the library included: lines of 16 MB are read."""
SECONDS = 30
"""Processor time; the slowest file is read in some four seconds."""

_CHILD = """
import json, resource, sys
from pathlib import Path
from tests.memory import peak_megabytes
from tito_core import InputError
from tito_io.samples.lines import lines

resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
count, said = 0, "read to its end"
try:
    for line in lines(Path(sys.argv[1]), max_line=1 << 24):
        count += 1
except InputError as error:
    said = str(error)
used = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([count, said, peak_megabytes(), used.ru_utime + used.ru_stime]))
"""


def squeezed(parts: Callable[[bytes], bytes], finish: Callable[[], bytes], piece: bytes, times: int) -> bytes:
    return b"".join([*(parts(piece) for _ in range(times)), finish()])


def zstd(piece: bytes, times: int, level: int = 3) -> bytes:
    squeezer = zstandard.ZstdCompressor(level=level).compressobj()
    return squeezed(squeezer.compress, squeezer.flush, piece, times)


def gz(piece: bytes, times: int) -> bytes:
    """Return members that follow each other, each of one piece."""
    return gzip.compress(piece) * times


MILLION = 1 << 20
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "line.jsonl": ("", partial(bytes.ljust, b"{", 40 * MILLION), "has more than 16777216 bytes"),
    "object.jsonl": ("", partial(bytes.ljust, b"{\n", 40 * MILLION), "has more than 16777216 bytes"),
    "line.zst": (".zst", partial(zstd, b"x" * MILLION, 3000), f"one byte stands for more than {RATIO}"),
    "line.gz": (".gz", partial(gz, b"x" * MILLION, 1500), "has more than 16777216 bytes"),
    "object.gz": (".gz", partial(gz, b"{\n".ljust(MILLION), 1500), "has more than 16777216 bytes"),
    "blank.zst": (".zst", partial(zstd, b"\n" * MILLION, 300), f"one byte stands for more than {RATIO}"),
    "frames.zst": (
        ".zst",
        lambda: zstandard.compress(b" " * 15 * MILLION + b"\n") * 200,
        f"one byte stands for more than {RATIO}",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_little(tmp_path: Path, name: str) -> None:
    suffix, make, said = BOMBS[name]
    path = put(tmp_path, make(), f"log.jsonl{suffix}")
    assert path.stat().st_size < 41 * MILLION
    ran = subprocess.run(
        [sys.executable, "-c", _CHILD, str(path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
        check=True,
    )
    _, text, peak, seconds = json.loads(ran.stdout)
    assert said in text
    assert str(path) in text
    assert peak < MEGABYTES
    assert seconds < SECONDS


def test_bytes_are_measured_over_all_frames_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.samples.lines.UNMEASURED", 5_000)
    monkeypatch.setattr("tito_io.samples.lines.CHUNK", 16)
    monkeypatch.setattr("tito_io.samples.lines.RATIO", 20)
    frame = zstandard.compress(b" " * 999 + b"\n")
    assert len(frame) < 50
    assert sum(1 for _ in lines(put(tmp_path, frame * 5, "log.jsonl.zst"))) == 0
    with pytest.raises(InputError, match="one byte stands for more than 20"):
        list(lines(put(tmp_path, frame * 10, "log.jsonl.zst")))
    fair = zstandard.compress(b"".join(b"%d\n" % number for number in range(4_000)))
    assert sum(1 for _ in lines(put(tmp_path, fair, "log.jsonl.zst"))) == 4_000


def test_a_window_of_gigabytes_is_refused(tmp_path: Path) -> None:
    known = zstandard.ZstdCompressionParameters(window_log=30, write_content_size=False)
    squeezer = zstandard.ZstdCompressor(compression_params=known).compressobj()
    path = put(tmp_path, squeezed(squeezer.compress, squeezer.flush, b"{}\n", 1), "log.jsonl.zst")
    with pytest.raises(InputError, match="cannot be decompressed"):
        list(lines(path))


@pytest.mark.parametrize("name", ["log.jsonl", "log.jsonl.gz", "log.jsonl.zst"])
def test_a_line_may_be_as_long_as_the_limit_and_no_longer(tmp_path: Path, name: str) -> None:
    text = b"1234567\n" * 3
    packed = {"log.jsonl": text, "log.jsonl.gz": gzip.compress(text)}.get(name) or zstandard.compress(text)
    path = put(tmp_path, packed, name)
    assert [one.raw for one in lines(path, max_line=8)] == [b"1234567\n"] * 3
    with pytest.raises(InputError, match=r"line 1: has more than 7 bytes; write one .* or raise --max-line"):
        list(lines(path, max_line=7))


def test_what_repeats_itself_like_a_conversation_is_in_proportion(tmp_path: Path) -> None:
    """Each of 200 lines repeats half a megabyte of the line before it."""
    text = b"".join(b"%d " % (number * 7919 % 100003) for number in range(90_000))
    content = b"".join(b"[%s%d]\n" % (text, number) for number in range(200))
    assert len(content) > UNMEASURED
    pressed = zstandard.ZstdCompressor(level=19).compress(content)
    assert len(content) > 100 * len(pressed)
    assert sum(1 for _ in lines(put(tmp_path, pressed, "log.jsonl.zst"))) == 200


def test_many_small_reads_copy_nothing_twice(tmp_path: Path) -> None:
    """Ten megabytes out of one frame, in short lines."""
    path = put(tmp_path, zstandard.compress(b"0123456789\n" * MILLION), "log.jsonl.zst")
    began = time.process_time()
    assert sum(1 for _ in lines(path)) == MILLION
    plain = put(tmp_path, b"0123456789\n" * MILLION)
    middle = time.process_time()
    assert sum(1 for _ in lines(plain)) == MILLION
    assert middle - began < 3 * (time.process_time() - middle)
