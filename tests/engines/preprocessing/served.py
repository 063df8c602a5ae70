"""Ask running servers what they make of chat requests: the text of the prompt that each renders."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2
from tokenizers import Tokenizer

from tests.engines.dynamo import Deployment, described, mocker
from tests.engines.llamacpp import llamacpp
from tests.engines.server import Server
from tests.engines.sglang import environment, sglang
from tests.engines.vllm import model, vllm
from tests.environment import Say
from tito_io.engines.openai_fields import wire_messages

from .oracle import REASONING, Answer, Ask
from .shapes import Conversation

Lent = AbstractContextManager[Server | Deployment]
Reply = dict[str, Any]


@attrs.frozen
class Engine:
    """How an engine is started with a chat template, and asked for a prompt.

    Attributes:
        start: Starts it: what tells how far it is, an empty folder, the template and its special tokens.
        route: The path of requests.
        prompt: Returns the ids or the text of the prompt in a reply.
        asks: What requests have beside messages, tools and the template's variables.
        takes_templates: Whether the template comes with a request, so that one server renders them all.
    """

    start: Callable[[Say, Path, str, Mapping[str, Any]], Lent]
    route: str
    prompt: Callable[[Reply], list[int] | str]
    asks: Mapping[str, Any] = attrs.field(factory=dict)
    takes_templates: bool = False


def _vllm(say: Say, folder: Path, _: str, __: Mapping[str, Any]) -> Lent:
    return vllm(say, folder / "vllm.log", "--trust-request-chat-template")


def _sglang(say: Say, folder: Path, template: str, _: Mapping[str, Any]) -> Lent:
    # not by `--chat-template`, which makes each backslash and n of a file a line break
    weights = model(environment(say), say)
    return sglang(say, folder / "sglang.log", folder=_with_template(weights, folder, template))


def _dynamo(say: Say, folder: Path, template: str, special: Mapping[str, Any]) -> Lent:
    copy = _with_template(described(say), folder, template)
    config = copy / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **special}))  # a request's do not count
    return mocker(say, folder / "logs", folder=copy)


def _llamacpp(say: Say, folder: Path, template: str, _: Mapping[str, Any]) -> Lent:
    return llamacpp(say, folder / "llamacpp.log", f"chat_template={template!r}")


def _with_template(original: Path, folder: Path, template: str) -> Path:
    """Return a copy of a model folder with another template."""
    copy = folder / "model"
    shutil.copytree(original, copy)
    (copy / "chat_template.jinja").write_text(template)
    return copy


ENGINES: Mapping[str, Engine] = {
    "vllm": Engine(
        _vllm, "/v1/chat/completions/render", lambda reply: reply["token_ids"], takes_templates=True
    ),
    "sglang": Engine(
        _sglang,
        "/v1/chat/completions",
        lambda reply: reply["choices"][0]["prompt_token_ids"],
        {"max_tokens": 1, "return_prompt_token_ids": True},
    ),
    "dynamo": Engine(
        _dynamo,
        "/v1/chat/completions",
        lambda reply: reply["nvext"]["prompt_token_ids"],
        {"max_tokens": 1, "nvext": {"extra_fields": ["prompt_token_ids"]}},
    ),
    "llamacpp": Engine(_llamacpp, "/apply-template", lambda reply: reply["prompt"]),
}


@attrs.define
class Served:
    """An engine with the server that renders one template; for another it is started anew.

    Attributes:
        name: The engine.
        say: Tells how far it is.
        stack: What ends the server and its folder.
        client: Sends requests.
        vocabulary: That of the tiny model.
        template: The template that it was started with.
        base_url: Where it listens; None if it does not start with the template.
    """

    name: str
    say: Say
    stack: ExitStack
    client: httpx2.Client
    vocabulary: Tokenizer
    template: str | None = None
    base_url: str | None = None

    def ask(self, template: str, one: Conversation, variables: Mapping[str, Any]) -> Answer:
        """Return the text of the prompt of a conversation, or the error."""
        engine = ENGINES[self.name]
        wanted = "" if engine.takes_templates else template
        if wanted != self.template:
            self.template, self.base_url = wanted, self._start(engine, wanted, variables)
        if self.base_url is None:
            return {"error": "the engine does not start with this template"}
        messages = wire_messages(one.messages, REASONING[self.name])
        body = {"model": "tiny", "messages": messages, "chat_template_kwargs": dict(variables), **engine.asks}
        body |= {"tools": one.tools} if one.tools else {}
        body |= {"chat_template": template} if engine.takes_templates else {}
        reply = self.client.post(self.base_url + engine.route, json=body)
        if not reply.is_success:
            return {"error": reply.text}
        return {"text": self._text(engine.prompt(reply.json()))}

    def _start(self, engine: Engine, template: str, special: Mapping[str, Any]) -> str | None:
        self.stack.close()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        try:
            return self.stack.enter_context(engine.start(self.say, Path(folder), template, special)).base_url
        except RuntimeError as error:
            self.say(f"{self.name} does not start: {error}")
            return None

    def _text(self, prompt: list[int] | str) -> str:
        """Return the text of a prompt; the vocabulary is one of bytes, so ids lose nothing."""
        if isinstance(prompt, str):
            return prompt
        return str(self.vocabulary.decode(prompt, skip_special_tokens=False))


@contextmanager
def served(engine: str, say: Say) -> Iterator[Ask]:
    """Lend a running engine, to be asked as an `oracle` is."""
    vocabulary = Tokenizer.from_file(str(described(say) / "tokenizer.json"))
    with httpx2.Client(trust_env=False, timeout=60) as client, ExitStack() as stack:
        yield Served(engine, say, stack, client, vocabulary).ask
