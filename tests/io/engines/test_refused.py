"""Ollama and LM Studio are refused by name and by what they answer."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from tests.io.engines.scripted import MODEL, PROMPT
from tito_io.cli.group import tito
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.names import ENGINES
from tito_io.engines.protocol import Sampling, UnsupportedError
from tito_io.engines.refused import OWNERS
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.engines.vllm import VLLM

INSTEAD = r"use llama\.cpp's server with the same GGUF file: `--gguf FILE`"
OLLAMA = httpx2.Response(200, text="Ollama is running")
LM_STUDIO = httpx2.Response(200, json={"error": "Unexpected endpoint or method. (GET /)"})


def engine(kind: Any, root: httpx2.Response, *cards: dict[str, Any]) -> tuple[Any, list[str]]:
    """Return an engine at a server with these models, and the paths that are asked for."""
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json={"object": "list", "data": list(cards)})
        return root if request.url.path == "/" else httpx2.Response(404, json={"detail": "Not Found"})

    options = {"family": MODEL} if kind is LlamaCpp else {}
    return kind("http://mock:11434/v1", transport=httpx2.MockTransport(answer), **options), asked


def card(owner: str) -> dict[str, Any]:
    return {"id": "qwen3:8b", "object": "model", "created": 1, "owned_by": owner}


@pytest.mark.parametrize(
    ("name", "said"),
    [("ollama", "Ollama returns no sampled ids"), ("LM-Studio", "LM Studio takes prompts as text alone")],
)
def test_a_name_is_refused_with_what_is_missing_and_what_to_use(name: str, said: str) -> None:
    with pytest.raises(UnsupportedError, match=f"--engine {name}: {said}.*{INSTEAD}"):
        make_engine(name, EngineOptions(base_url="http://127.0.0.1:11434"))
    for command in (["rollout"], ["serve"]):
        result = CliRunner().invoke(tito, [*command, "--engine", name])
        assert result.exit_code == 2
        assert said in " ".join(result.output.split())


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [VLLM, LlamaCpp])
@pytest.mark.parametrize(
    ("root", "owner", "name"),
    [(OLLAMA, "library", "Ollama"), (LM_STUDIO, "organization_owner", "LM Studio")],
)
async def test_an_address_that_answers_as_one_is_refused(
    kind: Any, root: httpx2.Response, owner: str, name: str
) -> None:
    made, asked = engine(kind, root, card(owner))
    with pytest.raises(
        UnsupportedError, match=f"GET http://mock:11434/: this is {name}, which .*{INSTEAD}"
    ) as caught:
        await made.from_ids(PROMPT, Sampling(max_tokens=4))
    assert caught.value.parameter == "base_url"
    assert asked == ["/v1/models", "/"]


@pytest.mark.anyio
@pytest.mark.parametrize("owner", [*sorted(OWNERS), None])
async def test_a_server_of_a_known_owner_is_not_asked(owner: str | None) -> None:
    made, asked = engine(VLLM, OLLAMA, {**card(""), "owned_by": owner})
    assert (await made.served()).name == "qwen3:8b"
    assert asked == ["/v1/models"]


@pytest.mark.anyio
@pytest.mark.parametrize("root", [httpx2.Response(404), httpx2.Response(200, text="<html>")])
async def test_another_server_of_an_unknown_owner_is_used(root: httpx2.Response) -> None:
    made, asked = engine(VLLM, root, card("me"))
    assert (await made.served()).name == "qwen3:8b"
    assert asked == ["/v1/models", "/"]


def test_an_unknown_name_lists_the_engines() -> None:
    with pytest.raises(Exception, match=f"name one of {', '.join(ENGINES)}"):
        make_engine("tgi", EngineOptions())
