"""A tokenizer or processor in memory gives the ids that it gives itself, and is asked in its own way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any, ClassVar

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import ProcessorMixin

from tests.io.families.family_folder import expected, freeze, load, reference, tiny_folder, tiny_tokenizer
from tests.io.families.test_family import CHATML, CONVERSATIONS, OPTIONS, TEMPLATES, TOOLS, USER
from tito_core import InputError, Rendered, TemplateRefused, TokenizeError, TokenizeFn, answer
from tito_core.questions import ask
from tito_io.engines.family_render import template_of
from tito_io.engines.protocol import Rendering
from tito_io.families import Family, FolderError, TokenizerFamily

REPLY = {"role": "assistant", "content": "hello  \n", "reasoning": "hm"}


class TextProcessor(ProcessorMixin):
    """A processor without images, as real ones treat text: it answers with batches."""

    def __init__(self, tokenizer: Any, chat_template: str | None = None) -> None:
        super().__init__(tokenizer, chat_template=chat_template)  # type: ignore[no-untyped-call]  # theirs

    def __call__(self, text: Any, **options: Any) -> Any:
        for name in ("images", "videos", "audio", "return_tensors"):
            options.pop(name, None)
        return self.tokenizer([text] if isinstance(text, str) else text, **options)


def processor_of(tokenizer: Any, template: str | None = None) -> Any:
    return TextProcessor(tokenizer=tokenizer, chat_template=template)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder whose tokenizer puts <bos> around texts, which renders must not get."""
    path = tiny_folder(tmp_path_factory.mktemp("folders") / "tiny", CHATML)
    tokenizer = tiny_tokenizer()
    tokenizer.post_processor = TemplateProcessing(single="<bos> $0", special_tokens=[("<bos>", 0)])
    tokenizer.save(str(path / "tokenizer.json"))
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Any:
    return reference(folder)


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    freeze(monkeypatch.setattr)


@pytest.mark.parametrize("name", TEMPLATES)
def test_text_and_ids_are_those_of_the_tokenizer(name: str, tokenizer: Any) -> None:
    family = Family.of(tokenizer, template=TEMPLATES[name])
    for messages in CONVERSATIONS.values():
        for options in OPTIONS.values():
            want = expected(tokenizer, messages, chat_template=TEMPLATES[name], **options)
            if want is not None:
                assert (family.text(messages, **options), family.ids(messages, **options)) == want
                continue
            with pytest.raises(TemplateRefused):
                family.ids(messages, **options)


def test_it_offers_what_a_loaded_family_offers(folder: Path, tokenizer: Any) -> None:
    family, loaded = Family.of(tokenizer), load(folder)
    assert family.stop_ids == loaded.stop_ids == (1,)
    assert family.vocab_size == loaded.vocab_size
    assert family.suffix(tools=TOOLS) == loaded.suffix(tools=TOOLS)
    text = family.text([USER, REPLY], tools=TOOLS)
    assert text == loaded.text([USER, REPLY], tools=TOOLS)
    assert family.decode(family.encode(text)) == text
    assert family.text([USER, REPLY], continue_final_message=True).endswith("hello  \n")
    asked: TokenizeFn = family.tokenize_fn(tools=TOOLS)
    assert asked([USER], add_generation_prompt=True) == loaded.ids(
        [USER], tools=TOOLS, add_generation_prompt=True
    )


OPENING = {"role": "assistant", "content": '{"river":'}


@pytest.mark.parametrize("kept", ["folder", "memory"])
def test_the_beginning_of_an_answer_stands_where_else_a_generation_prompt_does(
    kept: str, folder: Path, tokenizer: Any
) -> None:
    family = load(folder) if kept == "folder" else Family.of(tokenizer)
    given = {"tools": tuple(TOOLS), "opening": OPENING}
    plain, opened = (template_of(family, Rendering(**one)) for one in ({**given, "opening": None}, given))
    whole = family.text([USER, OPENING], tools=TOOLS, continue_final_message=True)
    assert whole.endswith('{"river":')
    assert opened([USER], add_generation_prompt=True) == family.encode(whole)
    shown = opened.rendered([USER], None, add_generation_prompt=True, ids=True)
    assert (shown.text, list(shown.ids)) == (whole, family.encode(whole))
    for messages in ([USER], [USER, REPLY]):
        silent = {"add_generation_prompt": False}
        assert opened(messages, **silent) == plain(messages, **silent)


text = st.text(st.sampled_from("aé漢 \n<>{}%") | st.characters(codec="utf-8"), max_size=12)
message = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant"]), "content": text},
    optional={"reasoning_content": text},
)


@pytest.fixture(scope="module")
def family(tokenizer: Any) -> TokenizerFamily:
    return Family.of(tokenizer)


@given(messages=st.lists(message, min_size=1, max_size=4), mark=st.sampled_from(["Zephyr", "a", "<eos>"]))
def test_a_cut_render_is_the_text_from_there_on(
    messages: list[dict[str, Any]], mark: str, family: TokenizerFamily
) -> None:
    tokenize = family.tokenize_fn()
    whole = tokenize.text(messages, add_generation_prompt=True)
    cut = whole[whole.index(mark) :] if whole.count(mark) == 1 else whole
    assert tokenize.rendered(messages, mark, add_generation_prompt=True, ids=True).ids == family.encode(cut)
    rendered = partial(tokenize.rendered, messages, add_generation_prompt=True)
    assert rendered(mark, ids=True) == Rendered(whole, family.encode(cut))
    assert rendered(None, ids=True) == Rendered(whole, family.encode(whole))
    assert rendered(mark, ids=False) == Rendered(whole)


def test_a_processor_is_asked_for_text_and_its_tokenizer_for_ids(tokenizer: Any) -> None:
    """It would answer with a batch, and put a <bos> before texts that do not begin with one."""
    processor = processor_of(tokenizer, CHATML + "!")
    family = Family.of(processor)
    whole = processor.apply_chat_template([USER], tokenize=True, return_dict=False)
    assert whole == [[0, *family.ids([USER])]]
    assert family.text([USER]) == tokenizer.apply_chat_template([USER], tokenize=False) + "!"
    assert family.stop_ids == (1,)
    assert family.vocab_size == len(tokenizer)
    assert answer(ask((USER,)), family.tokenize_fn()) == tuple(family.ids([USER], add_generation_prompt=True))


def test_a_processor_without_a_template_has_that_of_its_tokenizer(tokenizer: Any) -> None:
    family = Family.of(processor_of(tokenizer))
    assert family.ids([USER]) == Family.of(tokenizer).ids([USER])
    other = Family.of(processor_of(tokenizer), template="{{ messages[0].content }}")
    assert other.text([USER]) == USER["content"]


def test_a_template_may_be_named(folder: Path) -> None:
    tokenizer = reference(folder)
    tokenizer.chat_template = {"default": "D", "tool_use": "T", "rag": "R{{ messages[0].content }}"}
    family = Family.of(tokenizer)
    assert (family.text([USER]), family.text([USER], tools=TOOLS)) == ("D", "T")
    assert Family.of(tokenizer, template="rag").text([{"role": "user", "content": "a"}], tools=TOOLS) == "Ra"


def test_half_a_surrogate_pair_is_the_callers_mistake(tokenizer: Any) -> None:
    with pytest.raises(InputError, match="half a surrogate pair"):
        Family.of(tokenizer).ids([{"role": "user", "content": "\ud800"}])


@pytest.mark.parametrize(
    "name", ["tokenize", "return_dict", "padding", "chat_template", "add_generation_prompt"]
)
def test_arguments_that_are_no_variables_of_a_template(name: str, tokenizer: Any) -> None:
    family = Family.of(tokenizer)
    asking: tuple[Callable[..., Any], ...] = (family.tokenize_fn, family.suffix, family.profile)
    for asked in asking:
        with pytest.raises(InputError, match=f"{name}: is an argument of apply_chat_template"):
            asked(**{name: True})


@pytest.mark.parametrize(
    ("tools", "error"),
    [
        ({"type": "function"}, "tools: give a list of JSON objects, not an object"),
        (["look"], "tools[0]: give a JSON object, not a string"),
        ([{"type": "function"}, None], "tools[1]: give a JSON object, not null"),
        ([print], "tools[0]: give a JSON object, not builtin_function_or_method; "),
    ],
)
def test_what_is_no_list_of_schemas_is_named(tools: Any, error: str, tokenizer: Any) -> None:
    end = "$" if not error.endswith("; ") else ".*get_json_schema"
    with pytest.raises(InputError, match=f"^{re.escape(error)}{end}"):
        Family.of(tokenizer).tokenize_fn(tools=tools)


@pytest.mark.parametrize("given", ["folder", None, 3, tiny_tokenizer(), {"chat_template": "x"}])
def test_what_renders_no_messages(given: Any) -> None:
    with pytest.raises(InputError, match="give a tokenizer or processor with apply_chat_template"):
        Family.of(given)


# Stop ids


@pytest.fixture
def configured(tmp_path: Path) -> Callable[[Any], Any]:
    """Return a function that loads a tokenizer whose folder has a generation config."""

    def load_with(config: Any) -> Any:
        return reference(tiny_folder(tmp_path / "model", CHATML, generation_config__json=config))

    return load_with


@pytest.mark.parametrize(
    ("config", "options", "stops"),
    [
        ({"eos_token_id": [4, 1]}, {}, (4, 1)),
        ({"eos_token_id": 4}, {}, (4,)),
        ({"temperature": 1.0}, {}, (1,)),
        ({"eos_token_id": 4}, {"stop_ids": [2, 3]}, (2, 3)),
        ({"eos_token_id": 4}, {"stop_ids": []}, ()),
        ({"eos_token_id": 4}, {"generation_config": {"eos_token_id": [3]}}, (3,)),
        ({"eos_token_id": 4}, {"generation_config": SimpleNamespace(eos_token_id=3)}, (3,)),
        ({"eos_token_id": 4}, {"generation_config": {}}, ()),
    ],
)
def test_where_stop_ids_come_from(
    config: Any, options: Any, stops: tuple[int, ...], configured: Callable[[Any], Any]
) -> None:
    assert Family.of(configured(config), **options).stop_ids == stops
    assert Family.of(processor_of(configured(config)), **options).stop_ids == stops


def test_a_name_that_is_no_folder_is_not_looked_up(folder: Path) -> None:
    tokenizer = reference(folder)
    for name in ("Qwen/Qwen3-8B", "", None, "\0"):
        tokenizer.name_or_path = name
        assert Family.of(tokenizer).stop_ids == (1,)


def test_stop_ids_that_are_wrong(configured: Callable[[Any], Any], tokenizer: Any) -> None:
    with pytest.raises(FolderError, match=r"generation_config.json: eos_token_id is '4'"):
        Family.of(configured({"eos_token_id": "4"}))
    for options, said in (
        ({"stop_ids": [-1]}, r"stop_ids\[0\] is -1"),
        ({"generation_config": {"eos_token_id": "4"}}, r"generation_config.eos_token_id is '4'"),
        ({"generation_config": "model"}, "generation_config is 'model': give a GenerationConfig"),
        ({"generation_config": {}, "stop_ids": [1]}, "give one of them"),
    ):
        with pytest.raises(InputError, match=said):
            Family.of(tokenizer, **options)


# Objects of other kinds


class Words:
    """A strict tokenizer of whole words; `answer` shapes what it returns for ids."""

    eos_token_id = 2

    def __init__(self, shape: Callable[[list[int]], Any] = list) -> None:
        self.shape = shape
        self.asked: list[dict[str, Any]] = []

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tokenize: bool,
        add_generation_prompt: bool,
        tools: Any = None,
    ) -> Any:
        self.asked.append({"tools": tools})
        words = [word for one in messages for word in (one["role"], *str(one["content"]).split(), "end")]
        text = " ".join([*words, *["assistant"] * add_generation_prompt])
        return self.shape(self.encode(text, add_special_tokens=False)) if tokenize else text

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        assert not add_special_tokens
        return [sum(word.encode()) for word in text.split()]


IDS = [447, 532, 311]
SHAPES: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "batch": lambda ids: [ids],
    "mapping": lambda ids: {"input_ids": ids, "attention_mask": [1] * len(ids)},
    "mapping of a batch": lambda ids: {"input_ids": [ids]},
    "array": lambda ids: SimpleNamespace(tolist=lambda: ids),
    "array of a batch": lambda ids: SimpleNamespace(tolist=lambda: [ids]),
    "batch of an array": lambda ids: [SimpleNamespace(tolist=lambda: ids)],
    "encoding": lambda ids: SimpleNamespace(ids=ids),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_of_any_shape_is_read(shape: str) -> None:
    family = Family.of(Words(SHAPES[shape]))
    asked = [{"role": "user", "content": "hello"}]
    assert family.tokenize_fn()(asked, add_generation_prompt=False) == IDS
    assert family.ids(asked) == IDS
    assert family.text(asked) == "user hello end"
    assert family.encode("user hello end") == IDS


@pytest.mark.parametrize("made", [None, 3, "user", [[1], [2]], {"ids": 3}])
def test_an_answer_that_is_no_ids(made: Any) -> None:
    family = Family.of(Words(lambda _: made))
    with pytest.raises(TokenizeError):
        answer(ask(({"role": "user", "content": "hello"},)), family.tokenize_fn())


def test_a_text_that_is_none() -> None:
    words = Words()
    words.apply_chat_template = lambda *_, **__: [1]  # type: ignore[method-assign]  # as some backends do
    with pytest.raises(TokenizeError, match="returned list: it must return a string"):
        Family.of(words).text([USER])


def test_an_object_is_given_no_argument_that_it_does_not_know() -> None:
    words = Words()
    family = Family.of(words)
    assert family.suffix() == (sum(b"end"),)
    assert family.suffix(tools=TOOLS) == (sum(b"end"),)
    assert [one["tools"] for one in words.asked if one["tools"]] != []
    with pytest.raises(TypeError, match="effort"):
        family.suffix(effort="high")


def test_return_dict_is_passed_where_it_is_known() -> None:
    seen: list[dict[str, Any]] = []

    class Named(Words):
        def apply_chat_template(self, messages: Any, *, return_dict: bool = True, **options: Any) -> Any:
            seen.append({"return_dict": return_dict, **options})
            return super().apply_chat_template(messages, **options)

    Family.of(Named()).tokenize_fn()([USER], add_generation_prompt=True)
    assert [one["return_dict"] for one in seen] == [False]


def test_nothing_is_cut_where_it_is_not_known_how_ids_are_made() -> None:
    tokenize = Family.of(Words()).tokenize_fn()
    said = [USER, {"role": "assistant", "content": "Zephyr"}]
    ids = tokenize(said, add_generation_prompt=False)
    assert tokenize.rendered(said, "Zephyr", add_generation_prompt=False, ids=True).ids == ids
    for wanted in (True, False):
        found = tokenize.rendered(said, "Zephyr", add_generation_prompt=False, ids=wanted)
        assert found == Rendered(None, ids)


def test_what_an_unknown_object_answers_is_written_to_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TITO_CACHE", str(tmp_path))
    family = Family.of(Words())
    assert family.tokenize_fn().origin() is None
    assert not family.tokenize_fn().moment().fixed


def shouting(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an `apply_chat_template` that looks like `function` and adds an id of its own."""

    @wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        made = function(*args, **options)
        return made if isinstance(made, str) else [*made, 7]

    return wrapped


@pytest.mark.parametrize("way", ["on the object", "in a subclass", "wrapped", "of a model"])
def test_an_exchanged_method_is_not_taken_for_that_of_transformers(way: str, folder: Path) -> None:
    """Its text need not be what it makes ids of, so that it is asked for ids."""
    tokenizer = reference(folder)
    plain = Family.of(tokenizer).ids([USER])
    kind = type(tokenizer)
    loud = shouting(kind.apply_chat_template)

    def in_a_subclass(self: Any, *args: Any, **options: Any) -> Any:
        return loud(self, *args, **options)

    if way == "on the object":
        tokenizer.apply_chat_template = MethodType(loud, tokenizer)
    else:
        room = {"__name__": "transformers.models.own", "loud": loud}
        exec("def of_a_model(self, *args, **options): return loud(self, *args, **options)", room)  # noqa: S102  # as if transformers held it
        methods = {"in a subclass": in_a_subclass, "wrapped": loud, "of a model": room["of_a_model"]}
        tokenizer.__class__ = type("Loud", (kind,), {"apply_chat_template": methods[way]})
    family = Family.of(tokenizer)
    assert family.ids([USER]) == [*plain, 7]
    assert family.tokenize_fn().origin() is None
    assert not family.tokenizer.text_first


class Proxy:
    """An object that passes on what it does not have."""

    def __init__(self, behind: Any) -> None:
        self.behind = behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


def test_what_a_proxy_does_beside_is_not_known(folder: Path) -> None:
    tokenizer = reference(folder)
    family = Family.of(Proxy(tokenizer))
    assert family.ids([USER]) == Family.of(tokenizer).ids([USER])
    assert family.stop_ids == (1,)
    assert not family.tokenizer.text_first


def test_a_subclass_that_leaves_the_method_alone_is_known(folder: Path) -> None:
    tokenizer = reference(folder)
    tokenizer.__class__ = type("Cached", (type(tokenizer),), {})
    assert Family.of(tokenizer).tokenizer.text_first
    assert Family.of(processor_of(tokenizer, "x")).tokenizer.text_first


class SlowTokenizer:
    """A tokenizer without a backend of `tokenizers`."""

    chat_template = CHATML
    special_tokens_map: ClassVar[dict[str, str]] = {}

    def __init__(self, words: dict[str, int], added: dict[int, str], *, size: int) -> None:
        self.words, self.added_tokens_decoder, self.size = words, added, size

    def __len__(self) -> int:
        return len(self.words) + len(self.added_tokens_decoder)

    def get_vocab(self) -> dict[str, int]:
        return self.words

    def __call__(self, text: str, **options: Any) -> dict[str, list[int]]:
        assert options["add_special_tokens"] is False
        return {
            "input_ids": [len(text[start : start + self.size]) for start in range(0, len(text), self.size)]
        }


def test_a_slow_tokenizers_vocabulary_and_splitting_count(tokenizer: Any) -> None:
    """It has no file to compare: its words, its added tokens and how it splits a text stand for it."""
    known = Family.of(tokenizer).tokenizer
    kinds = (
        SlowTokenizer({"a": 0, "b": 1}, {}, size=3),
        SlowTokenizer({"a": 1, "b": 0}, {}, size=3),
        SlowTokenizer({"a": 0, "b": 1}, {2: "<x>"}, size=3),
        SlowTokenizer({"a": 0, "b": 1}, {}, size=4),
        SlowTokenizer({"b": 1, "a": 0}, {}, size=3),
    )
    origins = [json.dumps(attrs.evolve(known, encodes=one).origin(), sort_keys=True) for one in kinds]
    assert origins[0] == origins[4]
    assert len(set(origins)) == 4
