"""Find the placeholder that a chat template writes for an image, among those that a model's data name.

The data name several tokens: for an image in a request, for its ids in the model, for its beginning and end.
Which one a template writes is found by asking the template.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tito_core import TemplateRefused, TokenizeFn
from tito_core.media.ranges import places

IMAGE = {"type": "image"}
TEXT = {"type": "text", "text": "What is it?"}


def by_name(names: Iterable[str]) -> list[str]:
    """Return the names of tokens, those first that name an image's placeholder.

    A template may write several tokens for an image: its beginning, its placeholder and its end.

    >>> by_name(["vision_start_token_id", "global_image_token", "image_token_id"])
    ['image_token_id', 'global_image_token', 'vision_start_token_id']
    """
    return sorted(names, key=lambda name: (not name.startswith("image_token"), "image" not in name))


def written_placeholder(
    tokenize_fn: TokenizeFn, candidates: Mapping[str, Sequence[int]]
) -> tuple[int, ...] | None:
    """Return the ids, of one of `candidates`, that a template writes exactly once for each image part.

    Args:
        tokenize_fn: Renders messages and returns ids.
        candidates: Ids by the name of their datum, such as `{"image_token_id": [151655]}`.

    Returns:
        The ids; those of the first name, in the order of `by_name`, if the template writes several. None if
        it writes none of them, or takes no images.

    >>> def tokenize(messages, *, add_generation_prompt):
    ...     kinds = (part["type"] for part in messages[0]["content"])
    ...     return [index for kind in kinds for index in ([3, 7, 4] if kind == "image" else [65])]
    >>> written_placeholder(tokenize, {"vision_start_token_id": [3], "image_token_id": [7], "boi_token": [8]})
    (7,)
    """
    try:
        asked = [
            list(tokenize_fn([{"role": "user", "content": parts}], add_generation_prompt=True))
            for parts in ([TEXT], [IMAGE, TEXT], [IMAGE, TEXT, IMAGE])
        ]
    except TemplateRefused:
        return None
    for name in by_name(candidates):
        run = tuple(candidates[name])
        counts = [sum(1 for _ in places(run, ids)) for ids in asked] if run else []
        if counts and [count - counts[0] for count in counts] == [0, 1, 2]:
            return run
    return None
