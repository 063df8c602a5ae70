"""A small file cannot take much memory or time, whatever it stands for."""

from __future__ import annotations

import gzip
import json
import random
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
from tito_io.samples.lines import LINES, RATIOS, UNMEASURED, VALUES, lines

MEGABYTES = 300
"""What the process may take, the interpreter and the library included: lines of 16 MB are read."""
SECONDS = 30
"""Processor time; the slowest file is read in some four seconds."""
SMALL_MEGABYTES, SMALL_SECONDS = 200, 5
"""What a file of less than a megabyte may take."""

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
LISTS = b"[" + b"[]," * 5 * MILLION + b"0]\n"
DECOMPRESS = "compressed bytes: decompress "
BOMBS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "line.jsonl": ("", partial(bytes.ljust, b"{", 40 * MILLION), "has more than 16777216 bytes"),
    "object.jsonl": ("", partial(bytes.ljust, b"{\n", 40 * MILLION), "has more than 16777216 bytes"),
    "line.zst": (".zst", partial(zstd, b"x" * MILLION, 3000), "has more than 16777216 bytes"),
    "line.gz": (".gz", partial(gz, b"x" * MILLION, 1500), "has more than 16777216 bytes"),
    "object.gz": (".gz", partial(gz, b"{\n".ljust(MILLION), 1500), "has more than 16777216 bytes"),
    "blank.gz": (".gz", partial(gz, b"\n" * MILLION, 400), DECOMPRESS),
    "lines.gz": (".gz", partial(gz, b"{}\n" * MILLION, 40), DECOMPRESS),
    "spaces.gz": (".gz", partial(gz, (b" " * 9999 + b"\n") * 1000, 20), f"more than {RATIOS['.gz']}"),
    "lists.gz": (".gz", partial(gz, LISTS, 1), DECOMPRESS),
    "lists.zst": (".zst", partial(zstd, LISTS, 1), DECOMPRESS),
    "blank.zst": (".zst", partial(zstd, b"\n" * MILLION, 300), DECOMPRESS),
    "frames.zst": (
        ".zst",
        lambda: zstandard.compress(b" " * 15 * MILLION + b"\n") * 200,
        f"one byte stands for more than {RATIOS['.zst']}",
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
    small = path.stat().st_size < MILLION
    assert peak < (SMALL_MEGABYTES if small else MEGABYTES)
    assert seconds < (SMALL_SECONDS if small else SECONDS)


def test_bytes_are_measured_over_all_frames_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.samples.lines.UNMEASURED", 5_000)
    monkeypatch.setitem(RATIOS, ".zst", 20)
    frame = zstandard.compress(b" " * 999 + b"\n")
    assert len(frame) < 50
    assert sum(1 for _ in lines(put(tmp_path, frame * 5, "log.jsonl.zst"))) == 0
    with pytest.raises(InputError, match="one byte stands for more than 20"):
        list(lines(put(tmp_path, frame * 60, "log.jsonl.zst")))
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


def test_each_compressed_byte_allows_more_lines_and_values(tmp_path: Path) -> None:
    """Ids that do not repeat themselves, as a rollout has them, are not refused; nor is any plain file."""
    ids = random.Random(1).choices(range(150_000), k=VALUES)  # noqa: S311  # no secret
    line = b"[%b]\n" % b",".join(b"%d,%d" % (one, one) for one in ids)
    for content in (line, b"[%b]\n" % (b"[]," * VALUES + b"0"), b"\n" * (LINES + 9) + b"1\n"):
        assert sum(1 for _ in lines(put(tmp_path, content, "log.jsonl"))) == 1
    assert sum(1 for _ in lines(put(tmp_path, gzip.compress(line, 1), "log.jsonl.gz"))) == 1


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
    content = b"0123456789012345678901234567890123456789\n" * LINES
    path = put(tmp_path, zstandard.compress(content), "log.jsonl.zst")
    began = time.process_time()
    assert sum(1 for _ in lines(path)) == LINES
    plain = put(tmp_path, content)
    middle = time.process_time()
    assert sum(1 for _ in lines(plain)) == LINES
    assert middle - began < 3 * (time.process_time() - middle)
