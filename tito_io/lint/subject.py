"""Find the templates that a PATH names: those of a model folder, a .jinja file, or a model on the hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from attrs import define, evolve, field, frozen

from tito_core import TitoError
from tito_io.cli.options import MODEL_KINDS, load_family, model_path
from tito_io.extras import install
from tito_io.families.family import Family
from tito_io.families.folder import Folder, FolderError
from tito_io.families.gguf.model import GgufModel
from tito_io.families.limits import TemplateLimits

SHOWN = 12
"""Missing tokens that a note names."""
MARK = "\ufeff"
"""The byte order mark that some editors write. Engines pass it to Jinja like any other character."""
REMEMBERED = 4
"""Tokenizers with added tokens that are kept; one may take hundreds of megabytes."""
LIMITS = TemplateLimits(characters=1 << 17, items=1 << 14, seconds=2.0, memory=1 << 28)
"""Limits of one render, far above what the short conversations of a lint need."""
KINDS = f"a .jinja file, a model on the hub such as Qwen/Qwen3-8B, {MODEL_KINDS}"
"""What can be linted."""
MARKED = (
    "the template begins with a byte order mark, which engines write at the start of every prompt, as the "
    "renders here do: save the file without it"
)
_HUB_ID = re.compile(r"(?!\.)[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_HEAD = re.compile(r"(?:Got: )?(?:\w+Error: )?(?:\[Errno -?\d+\] )?")
"""The beginning of an error of the hub's client, before its text."""
_WANTED = ("*.jinja", "additional_chat_templates/*", "tokenizer*.json", "*_tokens*.json", "*_config.json")
"""The files of a model that rendering and tokenizing need; weights are not downloaded."""


class LintError(TitoError, ValueError):
    """A path or an option that cannot be linted. The message names it and says what to do."""


@frozen
class LoadedSubject:
    """A template that is loaded.

    Attributes:
        family: The family with this template.
        notes: What was changed in order to lint it, in sentences.
        lacking: Special tokens that were added because the vocabulary lacks them.
    """

    family: Family
    notes: tuple[str, ...]
    lacking: tuple[str, ...]


@frozen(kw_only=True)
class Subject:
    """A template to lint.

    Attributes:
        path: The PATH as it was given.
        template: Its name in the folder, or its file.
        load: Returns what is linted; raises `FolderError` if a file is broken.
    """

    path: str
    template: str
    load: Callable[[], LoadedSubject]


@define
class LoadedFolder:
    """The folder that was loaded last. Its templates share the tokenizer: reading one takes half a second.

    Attributes:
        folders: The folder, by its path.
        families: The family by path and by the tokens that were added.
    """

    folders: dict[Path, Folder] = field(factory=dict)

    families: dict[tuple[Path, tuple[str, ...]], Family] = field(factory=dict)

    def family(self, folder: Path, template: str) -> Family:
        """Return a family with this template."""
        known = self.families.get((folder, ()))
        if known is not None:
            if folder not in self.folders:  # most models have one template, and a GGUF file is read in whole
                self.folders[folder] = read_folder(folder)
            return known.with_templates(self.folders[folder].chosen(template), LIMITS)
        family = load_family(folder, template=template, limits=LIMITS)
        self.folders, self.families = {}, {(folder, ()): family}
        return family

    def with_special_tokens(self, folder: Path, family: Family, tokens: tuple[str, ...]) -> Family:
        """Return the family with these tokens, too."""
        if len(self.families) > REMEMBERED:
            self.families = {(folder, ()): self.families[folder, ()]}
        known = self.families.get((folder, tokens))
        if known is None:
            known = self.families[folder, tokens] = family.with_special_tokens(tokens)
        return evolve(family, tokenizer=known.tokenizer)


@frozen(kw_only=True)
class SubjectOptions:
    """Which templates of a path to lint.

    Attributes:
        template: Only this one, by its name or file.
        tokenizer: The model for .jinja files, by a name that `model_path` takes.
        special: Special tokens to add if the vocabulary lacks them.
        rendered_as: The engine whose prompts are rendered; None: transformers alone.
        loaded: The folder that was loaded last, with each set of tokens that was added to it.
    """

    template: str | None = None
    tokenizer: Path | None = None
    special: tuple[str, ...] = ()
    rendered_as: str | None = None
    loaded: LoadedFolder = field(factory=LoadedFolder, init=False, eq=False, repr=False)


def subjects(path: str, options: SubjectOptions) -> Iterator[Subject]:
    """Yield the templates that a path names; raises `LintError` or `FolderError` if it names no template."""
    if not path:
        raise LintError(f"PATH is empty: give {KINDS}")
    place = Path(path)
    if place.suffix == ".jinja" and (place.is_file() or not place.is_dir()):
        yield _jinja_file(path, options)
        return
    folder = _download(path) if not place.exists() and _HUB_ID.fullmatch(path) else model_path(path, KINDS)
    for name in _template_names(folder, options.template):
        yield Subject(path=path, template=name, load=partial(_load, options, folder, name))


def read_folder(path: Path) -> Folder:
    """Return the templates of a model folder or of a GGUF file; raises `FolderError`."""
    return GgufModel.read(path).folder if path.is_file() else Folder.read(path)


def _template_names(folder: Path, only: str | None) -> Sequence[str]:
    """Return the templates of a folder: those with a name, and the other .jinja files."""
    if only is not None:
        return (only,)
    named = dict.fromkeys(sorted(read_folder(folder).templates))
    files = (file.name for file in sorted(folder.glob("*.jinja")) if file.name != "chat_template.jinja")
    names = (*named, *files)
    if not names:
        raise FolderError(f"{folder}: has no chat template; add chat_template.jinja, or pass a .jinja file")
    return names


def _jinja_file(path: str, options: SubjectOptions) -> Subject:
    file, tokenizer = Path(path), options.tokenizer
    if tokenizer is None:
        raise LintError(f"{path}: a .jinja file has no vocabulary; add --tokenizer MODEL")
    if not file.is_file():
        raise LintError(f"{path}: there is no such file")
    load = partial(_load, options, model_path(tokenizer), str(file.absolute()), given=path)
    return Subject(path=path, template=file.name, load=load)


def _load(options: SubjectOptions, folder: Path, template: str, *, given: str | None = None) -> LoadedSubject:
    """Return a family with this template and with the special tokens that its vocabulary lacks.

    A .jinja file by itself is named as `given`, and its markers are added to the vocabulary.
    """
    family = options.loaded.family(folder, template)
    if given is not None:
        # Errors name the template's file as it was given, not by its absolute path.
        sources = {name: evolve(one.source, origin=given) for name, one in family.templates.items()}
        family = family.with_templates(sources, LIMITS)
    source = family.templates["default"].source
    if not source.text.strip():
        raise LintError(f"{source.origin}: is empty; copy the template again")
    notes = [MARKED] if any(one.source.text.startswith(MARK) for one in family.templates.values()) else []
    wanted = (*markers(source.text), *options.special) if given is not None else options.special
    known = [token for token in wanted if family.tokenizer.token_to_id(token) is not None]
    missing = lacking(known, wanted)
    if missing:
        family = options.loaded.with_special_tokens(folder, family, missing)
        shown = " ".join(missing[:SHOWN]) + (" ..." if len(missing) > SHOWN else "")
        added = "added as special tokens, with ids that the model does not have"
        notes = [f"the vocabulary lacks {shown}: {added}", *notes]
    if options.rendered_as is not None:
        family = family.rendered_as(options.rendered_as)
        notes = [f"rendered as {family.rules.engine} renders", *notes]
    return LoadedSubject(family, tuple(notes), missing)


def _download(path: str) -> Path:
    """Return the cached folder of a model on the hub."""
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415  # an extra, and may be missing
    except ImportError as error:
        text = f"{path}: is not a local folder, and the hub needs huggingface_hub: {install('hub')}"
        raise LintError(text) from error
    try:
        return Path(snapshot_download(path, allow_patterns=list(_WANTED)))
    except Exception as error:  # offline, gated, misspelled: its errors share no root but this
        reason = _HEAD.sub("", (str(error).strip().splitlines() or [""])[0]) or "it gives no reason"
        raise LintError(f"{path}: is not a local folder, and the hub {_failure(error)}: {reason}") from error


def _failure(error: Exception) -> str:
    """Return what the hub did; an error without a response means that no answer came."""
    if isinstance(error, OSError) and getattr(error, "response", None) is None:
        return "cannot be reached (give the path of a local folder, or connect to the network)"
    return "refuses it"


_MARKER = re.compile(
    r"<\|[^\s|<>{}'\"]{1,64}\|>"  # <|im_start|>
    r"|<｜[^\s｜<>{}'\"]{1,64}｜>"  # noqa: RUF001  # some models' bars are wide ones
    r"|<(?:start|end)_of_[a-z]{1,32}>"
    r"|</?s>|<(?:bos|eos)>"
    r"|\[/?[A-Z][A-Z_]{2,31}\]"  # [INST], [/INST]
)
MOST = 512
"""More markers than any template has."""


def markers(source: str) -> tuple[str, ...]:
    """Return what looks like a special token in a template's source, each once, in order.

    Tokens that the template composes, such as `'<|' + role + '|>'`, are not found.

    >>> markers("<|im_start|>{{ m.role }}[INST] {{ x['AB'] }}<|im_start|>")
    ('<|im_start|>', '[INST]')
    """
    return tuple(dict.fromkeys(match.group() for match in _MARKER.finditer(source)))[:MOST]


def lacking(known: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted tokens that are not in the vocabulary, each once, in order."""
    have = frozenset(known)
    return tuple(dict.fromkeys(token for token in wanted if token not in have))
