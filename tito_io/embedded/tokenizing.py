"""`POST /tokenize` and `/detokenize`: what a prompt would be, sampled or not, however long."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from .body import Body, token_ids
from .engine import Engine
from .errors import invalid
from .events import JSON
from .rendering import Rendering
from .vocabulary import vocabulary


async def tokenize(engine: Engine, request: Request) -> Response:
    """Answer with the ids of messages or of a text."""
    body = await Body.read(request)
    if body.get("messages") is None and body.text("prompt") is None:
        raise invalid("missing", "body.prompt", "Field required", dict(body.values))
    engine.check_model(body)
    ids = _ids(engine, body)
    pieces = [vocabulary().tokenizer.id_to_token(identifier) for identifier in ids]
    answer = {"count": len(ids), "max_model_len": engine.max_model_len, "tokens": ids}
    return JSON({**answer, "token_strs": pieces if body.flag("return_token_strs") else None})


async def detokenize(engine: Engine, request: Request) -> Response:
    """Answer with the text of ids, special tokens too; an id that does not exist has none."""
    body = await Body.read(request)
    ids = token_ids(body.need("tokens"), "body.tokens")
    engine.check_model(body)
    return JSON({"prompt": engine.family.decode([one for one in ids if one < engine.family.vocab_size])})


def _ids(engine: Engine, body: Body) -> list[int]:
    if body.get("messages") is not None:
        return Rendering.read(body).ids(engine.family)
    return engine.family.encode(body.text("prompt") or "")
