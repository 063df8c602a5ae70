"""What a PATH names: the templates of a model folder, a template by itself, or a model on the hub."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from attrs import frozen

from tito_core import TitoError
from tito_io.extras import install
from tito_io.families.family import Family
from tito_io.families.folder import Folder, FolderError
from tito_io.families.limits import TemplateLimits

MARK = "\ufeff"
"""What some editors begin a file with. Engines hand it to the template's reader like any letter."""
LIMITS = TemplateLimits(characters=1 << 17, items=1 << 14, seconds=2.0)
"""What one render may use: far above the short conversations that a template is asked about here."""
MARKED = (
    "the template begins with a byte order mark, which engines write at the start of every prompt, and so do "
    "the renders here; save the file without one"
)
_HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_HEAD = re.compile(r"(?:Got: )?(?:\w+Error: )?(?:\[Errno -?\d+\] )?")
"""What stands before the words of an error of the hub's client."""
_WANTED = ("*.jinja", "additional_chat_templates/*", "tokenizer*.json", "*_tokens*.json", "*_config.json")
"""The files of a model that text and ids need; the weights stay where they are."""


class LintError(TitoError, ValueError):
    """A path that cannot be linted. The message names it and says what to do."""


@frozen(kw_only=True)
class Subject:
    """A template to look into."""

    path: str
    """As it was given."""
    template: str
    """Its name in the folder, or its file."""
    load: Callable[[], tuple[Family, tuple[str, ...]]]
    """Returns the family and notes on it; raises `FolderError` where something is broken."""


@frozen(kw_only=True)
class SubjectOptions:
    """What about a path is to be linted."""

    template: str | None = None
    tokenizer: Path | None = None
    special: tuple[str, ...] = ()


def subjects(path: str, wanted: SubjectOptions) -> Iterator[Subject]:
    """Yield the templates that a path names; raises `LintError` or `FolderError` where there are none."""
    if not path:
        raise LintError("PATH is empty; name a model folder, a .jinja file, or a model on the hub")
    place = Path(path)
    if place.suffix == ".jinja" and (place.is_file() or not place.is_dir()):
        yield _bare(path, wanted)
        return
    if place.is_file():
        raise LintError(f"{path}: is no model folder and no .jinja file")
    folder = place if place.is_dir() else _fetched(path)
    for name in _names(folder, wanted.template):
        yield Subject(path=path, template=name, load=_loader(folder, name, wanted.special))


def _names(folder: Path, wanted: str | None) -> Sequence[str]:
    """Return the templates of a folder: those with a name, and the other files that are templates."""
    if wanted is not None:
        return (wanted,)
    named = dict.fromkeys(sorted(Folder.read(folder).templates))
    files = (file.name for file in sorted(folder.glob("*.jinja")) if file.name != "chat_template.jinja")
    found = (*named, *files)
    if not found:
        raise FolderError(f"{folder}: has no chat template; add chat_template.jinja, or pass a .jinja file")
    return found


def _loader(
    folder: Path, name: str, special: tuple[str, ...]
) -> Callable[[], tuple[Family, tuple[str, ...]]]:
    def load() -> tuple[Family, tuple[str, ...]]:
        return _noted(_loaded(folder, name), special)

    return load


def _bare(path: str, wanted: SubjectOptions) -> Subject:
    tokenizer = wanted.tokenizer
    if tokenizer is None:
        raise LintError(f"{path}: a template by itself has no vocabulary; add --tokenizer MODEL_FOLDER")
    file = Path(path)
    if not file.is_file():
        raise LintError(f"{path}: there is no such file")
    if not tokenizer.is_dir():
        raise LintError(f"{path}: --tokenizer {tokenizer} is no folder; pass a local model folder")

    def load() -> tuple[Family, tuple[str, ...]]:
        family = _loaded(tokenizer, str(file.absolute()))
        source = family.templates["default"].source.text
        return _noted(family, (*markers(source), *wanted.special))

    return Subject(path=path, template=file.name, load=load)


def _loaded(folder: Path, template: str) -> Family:
    """Return a family with this template; raises `LintError` where there is nothing in it."""
    family = Family.load(folder, template=template, limits=LIMITS)
    source = family.templates["default"].source
    if not source.text.strip():
        raise LintError(f"{source.origin}: is empty; copy the template anew")
    return family


def _noted(family: Family, wanted: tuple[str, ...]) -> tuple[Family, tuple[str, ...]]:
    """Add the markers that the vocabulary lacks, and say what is odd."""
    found, lacked = _with_markers(family, wanted)
    marked = any(one.source.text.startswith(MARK) for one in family.templates.values())
    return found, (*lacked, *([MARKED] if marked else []))


def _with_markers(family: Family, wanted: tuple[str, ...]) -> tuple[Family, tuple[str, ...]]:
    missing = lacking(family.tokenizer.get_vocab(with_added_tokens=True), wanted)
    if not missing:
        return family, ()
    shown = " ".join(missing[:12]) + (" ..." if len(missing) > 12 else "")  # noqa: PLR2004  # a line's worth
    note = f"the vocabulary lacks {shown}: added as special tokens, so the ids here are a stand-in's"
    return family.with_special_tokens(missing), (note,)


def _fetched(path: str) -> Path:
    """Return the cached folder of a model on the hub; only what text and ids need is fetched."""
    if not _HUB_ID.fullmatch(path) or path.startswith((".", "/")):
        raise LintError(f"{path}: is no folder, no .jinja file, and no hub id such as Qwen/Qwen3-8B")
    try:
        from huggingface_hub import snapshot_download  # noqa: PLC0415  # an extra, and may be missing
    except ImportError as error:
        raise LintError(
            f"{path}: is no local folder, and the hub needs huggingface_hub: {install('hub')}"
        ) from error
    try:
        return Path(snapshot_download(path, allow_patterns=list(_WANTED)))
    except Exception as error:  # offline, gated, misspelled: its errors share no root but this
        first = _HEAD.sub("", (str(error).strip().splitlines() or [""])[0]) or "it does not say why"
        raise LintError(f"{path}: is no local folder, and the hub does not give it: {first}") from error


_MARKER = re.compile(
    r"<\|[^\s|<>{}'\"]{1,64}\|>"  # <|im_start|>
    r"|<｜[^\s｜<>{}'\"]{1,64}｜>"  # noqa: RUF001  # some models' bars are wide ones
    r"|<(?:start|end)_of_[a-z]{1,32}>"
    r"|</?s>|<(?:bos|eos)>"
    r"|\[/?[A-Z][A-Z_]{2,31}\]"  # [INST], [/INST]
)
MOST = 512
"""More markers than any model has; a source with more is none."""


def markers(source: str) -> tuple[str, ...]:
    """Return what looks like a special token in a template's source, each once, in order.

    One that the template puts together, such as `'<|' + role + '|>'`, does not show.

    >>> markers("<|im_start|>{{ m.role }}[INST] {{ x['AB'] }}<|im_start|>")
    ('<|im_start|>', '[INST]')
    """
    found = dict.fromkeys(match.group() for match in _MARKER.finditer(source))
    return tuple(found)[:MOST]


def lacking(known: Iterable[str], wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the wanted tokens that are not known, each once, in order."""
    have = frozenset(known)
    return tuple(dict.fromkeys(token for token in wanted if token not in have))
