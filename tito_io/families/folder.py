"""Read the files of a Hugging Face model folder that decide text and ids. Nothing is downloaded or run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from attrs import frozen

from tito_core import InputError, TitoError
from tito_io.fields import json_kind

from .stop_ids import LARGEST_ID, eos_ids

_DEFAULT = "chat_template.jinja"
_NAMED_TEMPLATES = "additional_chat_templates"
_DEFAULTS = ("default", "tool_use")
LARGEST_SETTINGS = 1 << 25
"""Bytes of a JSON file with settings. Those of 100,000 added tokens have a third of it."""
LARGEST_TEMPLATE = 1 << 20
"""Bytes of a template."""
LARGEST_TOKENIZER = 1 << 27
"""Bytes of a tokenizer.json. The largest vocabularies in use have a quarter of it."""


class FolderError(TitoError, ValueError):
    """A model folder that cannot be used. The message names the file and says what to do."""


def local_path(path: str | Path, what: str) -> Path:
    """Return a path; raises `InputError` for a value of another type. `what` is what to give.

    >>> local_path(None, "a local model folder")
    Traceback (most recent call last):
    tito_core.errors.InputError: path is None: give a local model folder, as a string or a Path
    """
    if not isinstance(path, str | PathLike):
        raise InputError(f"path is {path!r:.60}: give {what}, as a string or a Path")
    return Path(path)


@frozen
class Source:
    """A chat template's source.

    Attributes:
        text: The template.
        origin: The file that holds it, as errors name it.
    """

    text: str
    origin: str


@frozen(eq=False)
class Folder:
    """The contents of a model folder.

    Attributes:
        path: The folder.
        config: `tokenizer_config.json`, with what `special_tokens_map.json` adds to it.
        added: `added_tokens.json`: ids by token.
        stops: The end-of-sequence ids of `generation_config.json`.
        templates: Chat templates by name.
    """

    path: Path
    config: Mapping[str, Any]
    added: Mapping[str, int]
    stops: tuple[int, ...]
    templates: Mapping[str, Source]

    @classmethod
    def read(cls, path: str | Path) -> Folder:
        """Read the folder at `path`; raises `FolderError` for what is missing or malformed."""
        folder = local_path(path, "a local model folder")
        if not folder.is_dir():
            raise FolderError(f"{folder}: is not a folder; give a local model folder, nothing is downloaded")
        config = settings(folder / "tokenizer_config.json")
        if "added_tokens_decoder" not in config:  # older folders spread it over more files
            config = {**config, **settings(folder / "special_tokens_map.json")}
        added = settings(folder / "added_tokens.json")
        return cls(
            folder,
            config,
            added,
            generation_stops(folder / "generation_config.json"),
            _templates(folder, config),
        )

    def chosen(self, wanted: str | None) -> Mapping[str, Source]:
        """Return the templates that renders use: `wanted`, or those that transformers would use."""
        if wanted is not None:
            return {"default": self.templates.get(wanted) or self._file(wanted)}
        chosen = {name: self.templates[name] for name in _DEFAULTS if name in self.templates}
        if not chosen and self.templates:
            raise FolderError(
                f"{self.path}: has no default template; choose one of {', '.join(sorted(self.templates))}"
            )
        if not chosen:
            raise FolderError(f"{self.path}: has no chat template: add chat_template.jinja to the folder")
        return chosen

    def _file(self, wanted: str) -> Source:
        """Return the template in a file of the folder, or in a file anywhere."""
        for file in (self.path / wanted, Path(wanted)):
            if file.suffix == ".jinja" and file.is_file():
                return _source(file, self.path)
        known = sorted({*self.templates, *(file.name for file in self.path.glob("*.jinja"))} - {_DEFAULT})
        raise FolderError(f"{self.path}: has no template {wanted}; it has {', '.join(known) or 'none'}")


def content(file: Path, largest: int) -> bytes:
    """Return the bytes of a file; raises `FolderError` for a device, a pipe, or more than `largest` bytes."""
    if not file.is_file():
        raise FolderError(f"{file}: is not a file; copy the file anew")
    try:
        with file.open("rb") as opened:
            read = opened.read(largest + 1)
    except OSError as error:
        raise FolderError(f"{file}: cannot be read: {error.strerror}") from error
    if len(read) > largest:
        raise FolderError(f"{file}: has more than {largest} bytes, which no such file needs; copy it anew")
    return read


def _text(file: Path, largest: int) -> str:
    try:
        return content(file, largest).decode()
    except UnicodeDecodeError as error:
        raise FolderError(f"{file}: not a UTF-8 text, at byte {error.start}; copy the file anew") from error


def settings(file: Path) -> dict[str, Any]:
    """Return the JSON object in `file`; an empty one if the file does not exist. Raises `FolderError`."""
    if not file.exists():
        return {}
    text = _text(file, LARGEST_SETTINGS)
    try:
        value = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise FolderError(f"{file}: not valid JSON: {error}; copy the file anew") from error
    except ValueError as error:  # Python reads no numbers of more than 4,300 digits
        raise FolderError(
            f"{file}: has a number of thousands of digits, and ids end at {LARGEST_ID}; copy the file anew"
        ) from error
    if not isinstance(value, dict):
        raise FolderError(f"{file}: must hold an object, not {json_kind(value)}; copy the file anew")
    return value


def generation_stops(file: Path) -> tuple[int, ...]:
    """Return the end-of-sequence ids of a `generation_config.json`; none if the file does not exist."""
    try:
        return eos_ids(settings(file).get("eos_token_id"))
    except InputError as error:
        raise FolderError(f"{file}: {error}; correct the file") from error


def _source(file: Path, folder: Path) -> Source:
    """Return the template in a file; a link in the folder must not lead out of it.

    A template is printed into prompts and pages. A stranger's folder could link to any text on this machine.
    """
    if any(place.is_symlink() for place in (file, file.parent) if folder in place.parents):
        real, target = folder.resolve(), file.resolve()
        # In the cache of the Hugging Face hub, links lead to `blobs`.
        own = (real, real.parent.parent / "blobs") if real.parent.name == "snapshots" else (real,)
        if not any(target.is_relative_to(place) for place in own):
            raise FolderError(
                f"{file}: is a link that leads out of the folder; copy the file there, or name {target} "
                "as the template"
            )
    return Source(_text(file, LARGEST_TEMPLATE), str(file))


def _templates(folder: Path, config: Mapping[str, Any]) -> dict[str, Source]:
    """Return the templates by name. If there are files, the configuration's templates do not count."""
    files = {file.stem: file for file in sorted((folder / _NAMED_TEMPLATES).glob("*.jinja"))}
    default = folder / _DEFAULT
    if default.is_file():
        files = {"default": default, **files}
    return {name: _source(file, folder) for name, file in files.items()} or _configured(folder, config)


def _configured(folder: Path, config: Mapping[str, Any]) -> dict[str, Source]:
    """Return the templates inside `tokenizer_config.json`: a string, strings by name, or a list of both."""
    value, file = config.get("chat_template"), folder / "tokenizer_config.json"
    named = _by_name(value)
    if named is None or not all(isinstance(text, str) for text in named.values()):
        raise FolderError(
            f"{file}: chat_template must be a string, or a list of {{name, template}}; correct it"
        )
    return {str(name): Source(text, f"{file}#chat_template:{name}") for name, text in named.items()}


def _by_name(value: Any) -> Mapping[Any, Any] | None:
    if value is None or isinstance(value, str):
        return {} if value is None else {"default": value}
    if isinstance(value, Sequence) and all(isinstance(one, Mapping) for one in value):
        return {one.get("name"): one.get("template") for one in value}
    return value if isinstance(value, Mapping) else None
