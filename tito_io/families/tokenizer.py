"""Load the tokenizer of a model folder, with the added tokens that transformers would add.

One difference, on purpose: transformers gives a new id to a token that has none in any file. The model has
never seen that id, so here it is a `FolderError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from tokenizers import AddedToken, Encoding, Tokenizer

from tito_core import InputError

from .folder import LARGEST_TOKENIZER, Folder, FolderError, content

PANIC = "PanicException"
"""What the library raises where its own code fails, as at a regular expression that takes too long. It is no
`Exception`, and no module exports it."""
_OPTIONS = frozenset({"single_word", "lstrip", "rstrip", "normalized", "special"})


def encoded(tokenizer: Tokenizer, text: str) -> Encoding:
    """Return the ids of a text, with the characters that each covers; raises `InputError` where it has none.

    No token is added around it.
    """
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except TypeError as error:  # what the library raises for a text that UTF-8 cannot represent
        raise InputError(f"text: cannot be encoded; does it have half a surrogate pair? {error}") from error
    except BaseException as error:
        if type(error).__name__ != PANIC:
            raise
        raise InputError(
            f"text: the tokenizer fails on it: {error}; is a pattern in tokenizer.json too slow?"
        ) from error


def vocabulary_size(tokenizer: Tokenizer) -> int:
    """Return the number of tokens, with the added ones."""
    return tokenizer.get_vocab_size(with_added_tokens=True)


def special_tokens(folder: Folder) -> dict[str, str]:
    """Return a `folder`'s named tokens (`bos_token`, `eos_token`, ...), which templates get as variables."""
    return {name: _content(token) for name, token in _named(folder.config).items()}


def load_tokenizer(folder: Folder) -> tuple[Tokenizer, str]:
    """Load `tokenizer.json` of a `folder`, and add the tokens that its other files declare.

    Returns the tokenizer and a hash of all files that it was made from.
    """
    file = folder.path / "tokenizer.json"
    if not file.is_file():
        raise FolderError(f"{file}: is missing; save the tokenizer in the fast format (tokenizer.json)")
    file_content = content(file, LARGEST_TOKENIZER)
    tokenizer = _load(folder, file_content)
    try:
        further = _further(folder.config)
        declared = _declared(folder, tokenizer, further)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FolderError(f"{folder.path}: a token in the configuration is malformed: {error!r}") from error
    _add(folder, tokenizer, declared, further)
    for index, token in declared.items():
        if tokenizer.token_to_id(token.content) != index:
            raise FolderError(
                f"{folder.path}: {token.content!r} is {index} in the configuration, and in tokenizer.json"
                f" {tokenizer.token_to_id(token.content)}; the files belong to different models"
            )
    settings = json.dumps([dict(folder.config), dict(folder.added)])
    return tokenizer, sha256(file_content + settings.encode()).hexdigest()


def _load(folder: Folder, file_content: bytes) -> Tokenizer:
    file = folder.path / "tokenizer.json"
    if folder.config.get("fix_mistral_regex"):
        raise FolderError(
            f"{folder.path}: asks for fix_mistral_regex; save tokenizer.json with the fix in it"
        )
    try:
        tokenizer = Tokenizer.from_buffer(file_content)
    except BaseException as error:  # the library raises nothing more precise
        if not (isinstance(error, Exception) or type(error).__name__ == PANIC):
            raise
        raise FolderError(f"{file}: not a tokenizer file: {error}; copy the file anew") from error
    tokenizer.no_truncation()  # a file may keep the truncation and padding of the training run
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = bool(folder.config.get("split_special_tokens", False))
    return tokenizer


def _declared(
    folder: Folder, tokenizer: Tokenizer, special: Mapping[str, AddedToken]
) -> dict[int, AddedToken]:
    """Return tokens by id: those that the other files give an id, else those of `tokenizer.json`."""
    decoder = folder.config.get("added_tokens_decoder")
    if decoder is not None:
        return dict(sorted((int(index), _added(token, special=False)) for index, token in decoder.items()))
    tokens = {
        index: AddedToken(text, normalized=text not in special, special=text in special)
        for text, index in folder.added.items()
    }
    return dict(sorted((tokens | tokenizer.get_added_tokens_decoder()).items()))


def _further(config: Mapping[str, Any]) -> dict[str, AddedToken]:
    """Return the special tokens of the configuration by their text; those that have a name come first."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    tokens = (*_named(config).values(), *(extra if isinstance(extra, list) else ()))
    return {_content(token): _added(token, special=True) for token in tokens}


def _add(
    folder: Folder,
    tokenizer: Tokenizer,
    declared: Mapping[int, AddedToken],
    further: Mapping[str, AddedToken],
) -> None:
    """Add the declared tokens, and the special tokens that were plain entries of the vocabulary."""
    named = {_content(token) for token in _named(folder.config).values()}
    known = {token.content for token in (*tokenizer.get_added_tokens_decoder().values(), *declared.values())}
    missing = {text: token for text, token in further.items() if text not in known}
    for text in missing:
        if tokenizer.token_to_id(text) is None:
            raise FolderError(f"{folder.path}: names the token {text!r}, which is not in tokenizer.json")
    for token in declared.values():
        token.special = token.special or token.content in named
    tokenizer.add_tokens([*declared.values(), *missing.values()])


def _named(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configured tokens that have a name: texts, or objects with a `content`."""
    named = {name: token for name, token in config.items() if name.endswith("_token") and _is_token(token)}
    extra = config.get("extra_special_tokens")
    return {**named, **extra} if isinstance(extra, Mapping) else named


def _is_token(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and "content" in value)


def _content(token: Any) -> str:
    return token if isinstance(token, str) else str(token["content"])


def _added(token: Any, *, special: bool) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=special, normalized=not special)
    options = {"special": special, **{name: bool(on) for name, on in token.items() if name in _OPTIONS}}
    return AddedToken(token["content"], **options)
