"""Every chat template of every real family renders as in transformers, and its ids are the same.

TITO_FAMILIES names a folder of unpacked model folders; TITO_GOLDEN, if it is set, the folder with
`renders.json.gz`, which otherwise may lie in `golden/` beside the families.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import attrs
import pytest
from tokenizers import AddedToken, Tokenizer

from tests.io.families.family_folder import expected, freeze, load, reference, tiny_folder, write
from tests.model_folders import FAMILIES, NAMES, needs_families
from tests.profiles import of_each_kind
from tito_core import Refusal, TemplateRefused
from tito_io.families import Family, TokenizerFamily
from tito_io.families.folder import Folder
from tito_io.families.template import ChatTemplate
from tito_io.families.tokenizer import special_tokens

GOLDEN = Path(os.environ.get("TITO_GOLDEN", FAMILIES / "golden")) / "renders.json.gz"

needs_golden = pytest.mark.skipif(
    not (NAMES and GOLDEN.exists()), reason="neither TITO_FAMILIES nor TITO_GOLDEN has renders.json.gz"
)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch.setattr)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
    function = {"name": name, "description": f"The tool {name}: <fast> & good", "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = [
    tool(
        "get_weather",
        city={"type": "string", "description": "Città"},
        unit={"type": "string", "enum": ["C", "F"]},
    ),
    tool("search", query={"type": "string"}, filters={"type": "array", "items": {"type": "object"}}),
    tool("now"),
]
SYSTEM = {"role": "system", "content": "You help.\nBe brief."}
USER = {"role": "user", "content": "What is the weather in Paris, in °C? 你好 "}
AGAIN = {"role": "user", "content": [{"type": "text", "text": "And in Rome?"}]}
REPLY = {"role": "assistant", "content": "It is <b>sunny</b>.\n\n- yes \n"}
THOUGHT = {"role": "assistant", "reasoning_content": "First I look.\n", "content": "Sunny."}
INLINE = {"role": "assistant", "content": "<think>\nFirst I look.\n</think>\n\nSunny."}
ARGUMENTS: dict[str, Any] = {"city": "Pàris", "unit": "C", "deep": {"a": [1, 2.5, None, True]}}


def calls(*names: str, text: bool, **message: Any) -> dict[str, Any]:
    """Return an assistant turn with tool calls, arguments as a mapping or as text."""
    arguments = json.dumps(ARGUMENTS, ensure_ascii=False) if text else ARGUMENTS
    made = [
        {"id": f"abcdefgh{index}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for index, name in enumerate(names)
    ]
    return {"role": "assistant", "content": "", "tool_calls": made, **message}


def answer(index: int, name: str, content: Any = '{"degrees": 21}') -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": f"abcdefgh{index}", "name": name, "content": content}


def called(*, text: bool) -> dict[str, list[dict[str, Any]]]:
    one, two = calls("get_weather", text=text), calls("get_weather", "search", text=text, content="I look.")
    results = [answer(0, "get_weather"), answer(1, "search", "found ")]
    thought = calls("now", text=text, reasoning_content="Which tool?")
    return {
        "call": [SYSTEM, USER, one],
        "result": [USER, one, answer(0, "get_weather")],
        "results": [SYSTEM, USER, two, *results],
        "after": [USER, two, *results, REPLY, USER],
        "thought": [USER, thought, answer(0, "now", "12:00"), THOUGHT, USER, thought],
        "null": [USER, {**one, "content": None}, answer(0, "get_weather", [{"type": "text", "text": "21"}])],
    }


CONVERSATIONS: dict[str, list[dict[str, Any]]] = {
    "user": [USER],
    "system": [SYSTEM, USER],
    "developer": [{**SYSTEM, "role": "developer"}, USER],
    "reply": [SYSTEM, USER, REPLY],
    "turns": [USER, REPLY, USER, THOUGHT, AGAIN],
    "reasoning": [SYSTEM, USER, THOUGHT, USER],
    "inline": [USER, INLINE, USER, INLINE],
    "users": [USER, USER],
    "late system": [USER, REPLY, SYSTEM, USER],
    "assistant first": [REPLY, USER],
    "unknown role": [USER, {"role": "narrator", "content": "So."}],
    **{f"{name}, mapping": messages for name, messages in called(text=False).items()},
    **{f"{name}, text": messages for name, messages in called(text=True).items()},
}
OPTIONS: list[dict[str, Any]] = [
    {},
    {"add_generation_prompt": True},
    {"tools": TOOLS, "add_generation_prompt": True},
    {"tools": TOOLS[:1], "enable_thinking": False, "thinking": False, "reasoning_effort": "high"},
    {"add_generation_prompt": True, "enable_thinking": True, "thinking": True, "clear_thinking": False},
]


class Side:
    """One family on both sides; texts are encoded once."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder.read(path)
        self.family = load(path)
        self.tokenizer = reference(path)
        self.equal = 0
        self.texts: set[str] = set()

    def with_template(self, name: str) -> Family:
        template = ChatTemplate.compile(self.folder.chosen(name)["default"])
        return attrs.evolve(self.family, templates={"default": template})

    def compare(self, family: Family, messages: list[dict[str, Any]], **options: Any) -> None:
        """Compare a text, or the reason why there is none."""
        want = self._reference(family.templates["default"].source.text, messages, options)
        if isinstance(want, str):
            assert family.text(messages, **options) == want
            self.equal += 1
            self.texts.add(want)
            return
        with pytest.raises(TemplateRefused) as refused:
            family.text(messages, **options)
        assert options.get("continue_final_message") or str(want) in str(refused.value)

    def _reference(
        self, source: str, messages: list[dict[str, Any]], options: dict[str, Any]
    ) -> str | Exception:
        try:
            text = self.tokenizer.apply_chat_template(
                messages, chat_template=source, tokenize=False, **options
            )
        except Exception as error:  # noqa: BLE001  # it raises whatever the template raised
            return error
        return str(text)

    def compare_ids(self) -> None:
        for text in sorted(self.texts):
            assert self.family.encode(text) == self.tokenizer(text, add_special_tokens=False)["input_ids"]


def cells() -> Iterator[tuple[list[dict[str, Any]], dict[str, Any]]]:
    for messages in CONVERSATIONS.values():
        for options in OPTIONS:
            yield messages, options


@needs_families
@pytest.mark.parametrize("folder", NAMES)
def test_a_family_renders_as_in_transformers(folder: str) -> None:
    side = Side(FAMILIES / folder)
    for file in sorted((FAMILIES / folder).glob("*.jinja")):
        family = side.with_template(file.name)
        for messages, options in cells():
            side.compare(family, messages, **options)
        asked = {"chat_template": file.read_text(), "tools": TOOLS, "add_generation_prompt": True}
        whole = expected(side.tokenizer, CONVERSATIONS["system"], **asked)
        assert whole is None or whole[1] == family.tokenize_fn(tools=TOOLS)(
            CONVERSATIONS["system"], add_generation_prompt=True
        )
    side.compare_ids()
    assert side.equal > 50


def tokenized(family: Family | TokenizerFamily, messages: list[dict[str, Any]], **options: Any) -> Any:
    """Return the ids, or the line in which the template refuses."""
    try:
        return family.ids(messages, **options)
    except TemplateRefused as refused:
        return re.sub(r"^.*?, line (\d+): \w+", r"line \1", str(refused))


@needs_families
@pytest.mark.parametrize("folder", of_each_kind(NAMES))
def test_a_tokenizer_in_memory_is_the_family_of_its_folder(folder: str) -> None:
    """Ids, refusals, closes and stop ids are the same, for every template of the folder."""
    tokenizer, refused, same = reference(FAMILIES / folder), 0, 0
    for file in sorted((FAMILIES / folder).glob("*.jinja")):
        ours, theirs = load(FAMILIES / folder, file.name), Family.of(tokenizer, template=file.read_text())
        for messages, options in product(CONVERSATIONS.values(), OPTIONS[1:4]):
            want = tokenized(ours, messages, **options)
            assert tokenized(theirs, messages, **options) == want
            refused, same = refused + isinstance(want, str), same + isinstance(want, list)
        assert theirs.stop_ids == ours.stop_ids
        for tools in (None, TOOLS):
            assert theirs.suffix(tools=tools) == ours.suffix(tools=tools)
    assert same > 30
    assert refused or folder not in {"gemma3", "mistral-tekken", "qwen3.5"}


def extended(family: Family | TokenizerFamily, tools: list[dict[str, Any]] | None) -> Any:
    """Return the ids of a sampled turn and a question after it, or why there are none."""
    prompt = family.ids([USER], tools=tools, add_generation_prompt=True)
    ids = [*prompt, *family.encode("Sun"), *family.encode("ny.")]
    turn = {"role": "assistant", "content": "Sunny."}
    bridge = family.bridge(tools=tools)
    found = bridge.extend(ids, [USER], turn=turn, history=[USER], truncated=True)
    return found if isinstance(found, Refusal) else found.ids.tolist()


@needs_families
@pytest.mark.parametrize("folder", of_each_kind(NAMES))
def test_bridges_and_profiles_are_the_same_from_memory_and_from_files(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TITO_CACHE", str(tmp_path))
    tokenizer = reference(FAMILIES / folder)
    ours, theirs = load(FAMILIES / folder), Family.of(tokenizer)
    for tools in (None, TOOLS):
        want = extended(ours, tools)
        assert extended(theirs, tools) == want
        assert theirs.profile(tools=tools).profile == ours.profile(tools=tools).profile
        for later in (attrs.evolve(ours), attrs.evolve(theirs)):
            assert later.profile(tools=tools).profile == ours.profile(tools=tools).profile
            assert extended(later, tools) == want
    assert len(list((tmp_path / "profiles").iterdir())) == 4


@needs_families
def test_a_familys_open_messages_end_as_in_transformers() -> None:
    for folder in ("qwen3", "glm4.5", "llama3"):
        side = Side(FAMILIES / folder)
        family = side.with_template("chat_template.jinja")
        for messages in CONVERSATIONS.values():
            side.compare(family, messages, continue_final_message=True)
        side.compare_ids()
        assert side.equal > 5


@needs_families
def test_templates_without_a_vocabulary_render_as_in_transformers(tmp_path: Path) -> None:
    extra = FAMILIES / "extra_templates"
    templates = json.loads((extra / "meta.json").read_text())["templates"]
    tokenizer = Tokenizer.from_file(str(FAMILIES / "qwen3" / "tokenizer.json"))
    markers = sorted({marker for template in templates for marker in template["special_tokens"]})
    tokenizer.add_special_tokens([AddedToken(marker, special=True, normalized=False) for marker in markers])
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    config = json.loads((FAMILIES / "qwen3" / "tokenizer_config.json").read_text())
    write(tmp_path, {"tokenizer_config.json": config, "chat_template.jinja": "x"})
    side = Side(tmp_path)
    for template in templates:
        family = side.with_template(str(extra / template["file"]))
        named = {name: template[short] for name, short in (("bos_token", "bos"), ("eos_token", "eos"))}
        given = {name: token for name, token in named.items() if token is not None}
        for messages, options in cells():
            side.compare(family, messages, **options, **given)
    side.compare_ids()
    assert side.equal > 500


@needs_golden
def test_golden_renders_are_met(tmp_path: Path) -> None:
    golden = json.loads(gzip.decompress(GOLDEN.read_bytes()))
    tiny = load(tiny_folder(tmp_path, "x"))  # what is compared is text: the vocabularies may stay on the disk
    families: dict[tuple[str, str], Family] = {}
    for case in golden["renders"]:
        key = case["family"], case["template"]
        if key not in families:
            folder = Folder.read(FAMILIES / key[0])
            template = ChatTemplate.compile(folder.chosen(key[1])["default"])
            named = special_tokens(folder)
            families[key] = attrs.evolve(tiny, templates={"default": template}, special_tokens=named)
        meet(families[key], golden["tools"], case)
    assert len(golden["renders"]) > 500


def meet(family: Family, tools: list[dict[str, Any]], case: dict[str, Any]) -> None:
    options = {"tools": tools, "add_generation_prompt": case["add_generation_prompt"], **case["kwargs"]}
    if "error" not in case:
        assert family.text(case["messages"], **options) == case["text"]
        return
    with pytest.raises(TemplateRefused, match=case["error"].replace("TemplateError", "raise_exception")):
        family.text(case["messages"], **options)
