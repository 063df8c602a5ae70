"""Other files: GGUF, model folders, options, profiles, certificates, scripts, vectors; and plain data."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import orjson

from tests.core import example
from tests.gguf_file import write_gguf
from tests.io.samples.sample_files import dumped, recorded
from tests.io.serve.test_rows import committed
from tito_core import InputError, Policy, TitoError, Trajectory
from tito_core.data import from_data, to_data
from tito_core.samples import RoutedExperts, SampleOptions
from tito_core.seams.probe import probe
from tito_core.seams.profile import Profile
from tito_io.cli.config import ConfigFile
from tito_io.cli.group import COMMANDS
from tito_io.conform import vector
from tito_io.engines.replies.experts import npy_experts
from tito_io.families.fast.certificate import Certificate
from tito_io.families.folder import Folder
from tito_io.families.gguf.metadata import check_whole
from tito_io.families.gguf.model import GgufModel
from tito_io.families.kept_files import KeptFiles
from tito_io.families.profile_cache import ProfileCache
from tito_io.integrations.nemo_gym import read_capture
from tito_io.lint.gate import REWRITTEN, Baseline
from tito_io.rollout import script
from tito_io.serve.commit import decode, encode
from tito_io.serve.session import SessionHead

from .stored import CALLS, folder, in_file
from .target import Parser, Target

LETTERS = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 323), 323)]
GGUF: Mapping[str, Any] = {
    "general.architecture": "tito",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": [*LETTERS, "ab", "<|im_end|>"],
    "tokenizer.ggml.token_type": [1] * (len(LETTERS) + 1) + [3],
    "tokenizer.ggml.merges": ["a b"],
    "tokenizer.ggml.eos_token_id": len(LETTERS) + 1,
    "tokenizer.chat_template": "{{ messages }}",
}


def _gguf(tensors: Sequence[int] = ()) -> bytes:
    return write_gguf(folder() / "seed.gguf", GGUF, tensors=tensors).read_bytes()


def _in_folder(name: str) -> Parser:
    """Return the parser of a model folder that has one file."""

    def parse(data: bytes) -> object:
        place = folder() / "model"
        place.mkdir(exist_ok=True)
        (place / name).write_bytes(data)
        try:
            return Folder.read(place)
        finally:
            (place / name).unlink()

    return parse


def _options(path: Path) -> object:
    """Read a file of options as `tito --config FILE rollout` does."""
    config = ConfigFile.read(path, COMMANDS, lambda _: ())
    return config.defaults("rollout", ROLLOUT)


ROLLOUT = click.Command(
    "rollout",
    params=[
        click.Option(["--turns"], type=int),
        click.Option(["--json"], is_flag=True),
        click.Option(["--forgive"], multiple=True),
    ],
)


def _kept(data: bytes) -> object:
    """Find a profile in a file of the cache: with the head that belongs to `data`, and as it is."""
    cache, files = ProfileCache(folder()), KeptFiles(folder(), "profile")
    for content in (files.head("k", data) + b"\n" + data, data):
        (folder() / "k.json").write_bytes(content)
        profile = cache.find("k")
        if profile is not None and to_data(from_data(to_data(profile), Profile)) != to_data(profile):
            raise AssertionError("a profile does not come back as it was written")
    return None


def _loaded(kind: type[Any]) -> Parser:
    """Return the parser of plain data; what it reads must be written and read again as the same."""

    def parse(data: bytes) -> object:
        try:
            plain = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError("not JSON") from error
        value: object = from_data(plain, kind)
        written = json.dumps(to_data(value))
        if json.dumps(to_data(from_data(json.loads(written), kind))) != written:
            raise AssertionError(f"{kind.__name__} does not come back as it was written")
        return value

    return parse


def _dumped(value: object) -> bytes:
    return orjson.dumps(to_data(value))


def _vectors(path: Path) -> object:
    return list(vector.read(path.parent))


def _vector() -> bytes:
    return vector.line(next(iter(vector.make_vectors()))).encode()


def _npy() -> bytes:
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 1, 1), }\n"
    file = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"\x01\x02"
    return b64encode(file)


def _in_own_folder(read: Callable[[Path], object], name: str) -> Parser:
    place = folder() / "vectors"
    place.mkdir(exist_ok=True)
    return in_file(read, f"vectors/{name}")


def _baseline(path: Path) -> object:
    return Baseline.read(path, (REWRITTEN,))


BASELINE = b'[{"path":"p","template":"default","cases":[{"rendering":"r","after":"a","shape":["s"],'
BASELINE += b'"verdict":"refused","reason":"x","history_rewritten":true}]}]'
EXPERTS = RoutedExperts(data=bytes([1, 2]), dtype="uint8", shape=(2, 1))
TRAJECTORY = Trajectory([CALLS[0].step]).append(CALLS[1].step)
ROW = encode(committed(CALLS[0].step, 1), None)
HEAD = SessionHead(created=1.0, defaults={"temperature": 1.0})
KINDS: tuple[Any, ...] = (CALLS[1], CALLS[0].step, TRAJECTORY, Policy(), EXPERTS, SampleOptions())
TOML = b'[rollout]\nturns = 5\njson = true\nforgive = ["a", "b"]\n'
TARGETS = (
    Target(
        name="gguf",
        parsers={
            "model": (in_file(GgufModel.read, "a.gguf"), _gguf()),
            "tensors": (in_file(check_whole, "a.gguf"), _gguf(tensors=(64, 5))),
        },
        errors=(TitoError,),
        json=False,
    ),
    Target(
        name="folder",
        parsers={
            "config": (
                _in_folder("tokenizer_config.json"),
                b'{"chat_template": [{"name": "a", "template": "x"}]}',
            ),
            "stops": (_in_folder("generation_config.json"), b'{"eos_token_id": [1, 2]}'),
            "added": (_in_folder("added_tokens.json"), b'{"<a>": 3}'),
            "special": (_in_folder("special_tokens_map.json"), b'{"eos_token": {"content": "a"}}'),
            "template": (_in_folder("chat_template.jinja"), b"{{ messages }}"),
        },
        errors=(TitoError,),
    ),
    Target(
        name="options",
        parsers={"toml": (in_file(_options, "tito.toml"), TOML)},
        errors=(click.UsageError,),
        json=False,
    ),
    Target(
        name="kept",
        parsers={
            "profile": (_kept, _dumped(probe(example.tokenize, [example.CLOSE]))),
            "certificate": (Certificate.read, b'{"texts": 1, "characters": 2, "difference": null}'),
            "turn": (lambda data: decode(data, {}), ROW),
            "session": (SessionHead.of, HEAD.encoded()),
        },
        errors=(TitoError,),
    ),
    Target(
        name="data",
        parsers={
            **{type(value).__name__: (_loaded(type(value)), _dumped(value)) for value in KINDS},
            "Profile": (_loaded(Profile), _dumped(probe(example.tokenize, [example.CLOSE]))),
        },
        errors=(TitoError,),
    ),
    Target(
        name="scripts",
        parsers={
            "script": (
                in_file(script.load, "script.jsonl"),
                b'{"system":"s","tools":[{}]}\n{"user":"u","tool":"t"}\n',
            ),
            "capture": (
                in_file(read_capture, "a.tokens.jsonl"),
                dumped(*recorded("Calls of a rollout are one conversation")),
            ),
            "baseline": (in_file(_baseline, "baseline.json"), BASELINE),
            "vectors": (_in_own_folder(_vectors, "valid.jsonl"), _vector()),
        },
        errors=(TitoError,),
    ),
    Target(
        name="npy",
        parsers={"experts": (lambda data: npy_experts(data.decode("latin-1")), _npy())},
        errors=(ValueError,),
        json=False,
    ),
)
