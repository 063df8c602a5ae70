"""Errors of what runs in a process of its own advise nothing that only a user of the gateway can do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import tito_io
from tests.frameworks.scripted import scripted
from tito_core import InputError
from tito_io.client import TokenClient
from tito_io.dialects import Anthropic, Chat, Responses
from tito_io.dialects.protocol import Dialect
from tito_io.integrations.model_calls import ModelCalls

OF_THE_GATEWAY = re.compile(r"\bgateway\b|tito serve|(?<![\w-])--[a-z]")
IN_PROCESS = ("client", "dialects", "families", "integrations")
HELLO = {"role": "user", "content": "Hello."}


def texts(file: Path) -> Iterator[str]:
    """Yield a module's strings, but for those that stand alone: they document."""
    tree = ast.parse(file.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


@pytest.mark.parametrize("folder", IN_PROCESS)
def test_no_text_names_the_gateway_or_an_option_of_a_command(folder: str) -> None:
    files = list((Path(tito_io.__file__).parent / folder).rglob("*.py"))
    found = {text for file in files for text in texts(file) if OF_THE_GATEWAY.search(text)}
    assert files
    assert found == set()


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        (Chat(strict=True), {"messages": [HELLO], "web_search_options": {}}),
        (Chat(strict=True), {"messages": [HELLO], "stream_options": {"odd": 1}}),
        (Responses(strict=True), {"input": "Hello.", "client_metadata": {}}),
        (Responses(strict=True), {"input": "Hello.", "prompt": {"id": "p"}}),
        (Responses(strict=True), {"input": "Hello.", "context_management": [{"type": "compaction"}]}),
        (Responses(strict=True), {"input": [{"type": "item_reference", "id": "i"}]}),
        (Anthropic(strict=True), {"messages": [HELLO], "max_tokens": 9, "container": "c"}),
    ],
)
def test_a_wrong_request_of_an_sdk_gets_advice_that_it_can_follow(
    dialect: Dialect, body: dict[str, Any]
) -> None:
    with pytest.raises(InputError) as caught:
        anyio.run(ModelCalls(TokenClient(scripted("Hello."))).answer, dialect, body)
    assert not OF_THE_GATEWAY.search(str(caught.value))
