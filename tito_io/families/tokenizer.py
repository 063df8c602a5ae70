"""The tokenizer of a model folder, its added tokens as transformers has them.

One difference, on purpose: transformers gives a token that no file has an id for a new id, one that the
model has never seen. Here that is a `FolderError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import AddedToken, Tokenizer

from .folder import Folder, FolderError

_OPTIONS = frozenset({"single_word", "lstrip", "rstrip", "normalized", "special"})


def special_tokens(folder: Folder) -> dict[str, str]:
    """Return the named tokens (`bos_token`, `eos_token`, ...) that templates get as variables."""
    return {name: _content(token) for name, token in _named(folder.config).items()}


def load_tokenizer(folder: Folder) -> Tokenizer:
    """Load `tokenizer.json` and add what the other files say about tokens."""
    tokenizer = _load(folder)
    try:
        declared, further = _declared(folder, tokenizer), _further(folder.config)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{folder.path}: a token of its configuration is malformed: {error!r}") from error
    _add(folder, tokenizer, declared, further)
    for index, token in declared.items():
        if tokenizer.token_to_id(token.content) != index:
            raise FolderError(
                f"{folder.path}: says that {token.content!r} is {index}, and its vocabulary says"
                f" {tokenizer.token_to_id(token.content)}; the files are of different models"
            )
    return tokenizer


def _load(folder: Folder) -> Tokenizer:
    file = folder.path / "tokenizer.json"
    if not file.is_file():
        raise FolderError(f"{file}: is missing; save the tokenizer in the fast format")
    if folder.config.get("fix_mistral_regex"):
        raise FolderError(
            f"{folder.path}: asks for fix_mistral_regex; save tokenizer.json with the fix in it"
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more precise
        raise FolderError(f"{file}: is no tokenizer: {error}; copy the file anew") from error
    tokenizer.no_truncation()  # a file may hold the truncation and padding of its training
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = bool(folder.config.get("split_special_tokens", False))
    return tokenizer


def _declared(folder: Folder, tokenizer: Tokenizer) -> dict[int, AddedToken]:
    """Return the tokens that the files beside `tokenizer.json` give an id, or else those in it, by id."""
    decoder = folder.config.get("added_tokens_decoder")
    if decoder is not None:
        found = {int(index): _added(token, special=False) for index, token in decoder.items()}
    else:
        special = set(map(_content, (*_named(folder.config).values(), *_extra(folder.config))))
        found = {index: _older(text, text in special) for text, index in folder.added.items()}
        found |= tokenizer.get_added_tokens_decoder()
    return dict(sorted(found.items()))


def _older(text: str, special: bool) -> AddedToken:
    return AddedToken(text, normalized=not special, special=special)


def _further(config: Mapping[str, Any]) -> dict[str, AddedToken]:
    """Return the special tokens that the configuration mentions, by their text."""
    return {
        _content(token): _added(token, special=True) for token in (*_named(config).values(), *_extra(config))
    }


def _add(
    folder: Folder,
    tokenizer: Tokenizer,
    declared: Mapping[int, AddedToken],
    further: Mapping[str, AddedToken],
) -> None:
    """Add the declared tokens, and the others that are words of the vocabulary until now."""
    named = {_content(token) for token in _named(folder.config).values()}
    known = {token.content for token in (*tokenizer.get_added_tokens_decoder().values(), *declared.values())}
    missing = {text: token for text, token in further.items() if text not in known}
    for text in missing:
        if tokenizer.token_to_id(text) is None:
            raise FolderError(f"{folder.path}: names the token {text!r}, which tokenizer.json does not have")
    for token in declared.values():
        token.special = token.special or token.content in named
    tokenizer.add_tokens([*declared.values(), *missing.values()])


def _named(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configured tokens that have a name, whatever form they are written in."""
    found = {name: token for name, token in config.items() if name.endswith("_token") and _is_token(token)}
    extra = config.get("extra_special_tokens")
    return {**found, **extra} if isinstance(extra, Mapping) else found


def _is_token(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "content" in value)


def _extra(config: Mapping[str, Any]) -> list[Any]:
    """Return the configured special tokens that have no name."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    return list(extra) if isinstance(extra, list) else []


def _content(token: Any) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _added(token: Any, *, special: bool) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=not special)
    options = {"special": special, **{name: bool(on) for name, on in token.items() if name in _OPTIONS}}
    return AddedToken(token["content"], **options)
