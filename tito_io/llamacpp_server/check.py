"""Compare the ids of a family with those of llama.cpp's own tokenizer, which its server gives by `/tokenize`.

They differ for a few texts on purpose: llama.cpp does not normalize text (NFC), and approximates some rules
for characters beyond ASCII. For plain ASCII they are the same, unless the family is that of another model.
"""

from __future__ import annotations

import httpx2

from tito_core import InputError, TemplateRefused
from tito_core.seams.seam import common_prefix
from tito_io.families.family import Family

from .process import LlamaCppServer, ServerStartError

SECONDS = 60.0
TEXTS = (
    "The quick brown fox jumps over the lazy dog. It's what we'll do, isn't it? I'D SAY SO.",
    "def area(width, height):\n    if width < 0:\n        return None\n\n    return width * height  # m^2\n",
    '{"city": "Oslo", "days": [1, 22, 333, 4444, 55555], "unit": null}\r\n',
    "camelCase HTTPServer snake_case x2y 3.14159 1e-9 0x7f A/B a@b.example https://example.org/?q=1&r=2\n",
    "  two,   three,    four\t\ttabs \n \n\n\n  and ends   ",
    "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ -> != === ... --- ***",
)
MESSAGES = (
    {"role": "user", "content": "What is 12 + 30?"},
    {"role": "assistant", "content": "It is 42."},
    {"role": "user", "content": "Thanks."},
)


def difference(family: Family, server: LlamaCppServer) -> str | None:
    """Return in words where the ids of plain ASCII differ; None where they do not.

    Raises:
        ServerStartError: The server does not answer.
    """
    for text in [*TEXTS, *_rendered(family)]:
        ours, theirs = family.encode(text), server_ids(server, text)
        if ours != theirs:
            at = common_prefix(ours, theirs)
            return (
                f"{family.path} gives other ids for plain ASCII than llama.cpp's own tokenizer: at {at} of"
                f" {len(ours)} and {len(theirs)} ids, {ours[at : at + 3]} and {theirs[at : at + 3]}"
            )
    return None


def check_ids(family: Family, server: LlamaCppServer) -> None:
    """Raise `InputError` where the family's ids of plain ASCII are not those of the server."""
    found = difference(family, server)
    if found is not None:
        raise InputError(
            f"{found}: the vocabulary was read wrongly; give the model's own folder with --family"
        )


def server_ids(server: LlamaCppServer, text: str) -> list[int]:
    """Return the ids that llama.cpp's own tokenizer gives a text; special tokens in it are read as such."""
    sent = {"content": text, "add_special": False, "parse_special": True}
    headers = {"Authorization": f"Bearer {server.api_key}"}
    try:
        answer = httpx2.post(f"{server.url}/tokenize", json=sent, headers=headers, timeout=SECONDS)
        return list(answer.raise_for_status().json()["tokens"])
    except (httpx2.HTTPError, KeyError, ValueError) as error:
        raise ServerStartError(f"{server.url}/tokenize: no ids came back ({type(error).__name__})") from error


def _rendered(family: Family) -> list[str]:
    """Return a conversation as the template writes it, with special tokens; none where it is refused."""
    try:
        text = family.text([dict(message) for message in MESSAGES], add_generation_prompt=True)
    except TemplateRefused:
        return []
    return [text] if text.isascii() else []
