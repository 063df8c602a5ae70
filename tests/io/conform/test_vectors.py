"""The vectors: reproducible, as their schema says, and right where they can be checked by hand."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest
from jinja2 import nodes

from tito_io.conform.oracle import (
    COMMENT,
    Oracle,
    TemplateRaisedError,
    environment,
    sampled_of,
    without_comments,
)
from tito_io.conform.scenario import TOKENIZER
from tito_io.conform.scenarios import SETS
from tito_io.conform.templates import TEMPLATES
from tito_io.conform.toy_tokenizer import ToyTokenizer
from tito_io.conform.vector import SHIPPED, ConformError, Vector, line, read, write

ANSWERS = tomllib.loads(Path(__file__).with_name("answers.toml").read_text(encoding="utf-8"))
DIGEST = "ba201bfa5efe47e13b1770e897af61274e8264d0177f9f1ea5ff393e483b83ac"
"""Of version 1. Vectors that change an answer are a new version; others change this digest alone."""


def text(vector: Vector) -> str:
    return ToyTokenizer.of(vector.data["tokenizer"]).decode(vector.answers[0]["ids"])


def test_the_vectors_are_those_of_this_version(vectors: dict[str, Vector]) -> None:
    assert sha256("".join(map(line, vectors.values())).encode()).hexdigest() == DIGEST


def test_vectors_are_as_the_schema_says(vectors: dict[str, Vector]) -> None:
    schema = json.loads(files("tito_io.conform").joinpath("schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    for one in list(vectors.values())[::4]:
        assert [error.message for error in validator.iter_errors(one.data)] == [], one.id


def test_each_set_has_what_it_promises(vectors: dict[str, Vector]) -> None:
    refusals = {name: Counter(one.refusal for one in vectors.values() if one.set == name) for name in SETS}
    assert set(refusals["valid"]) == {"never"}
    assert set(refusals["refused"]) == {"required"}
    assert set(refusals["trap"]) == {"never", "allowed"}
    assert len(vectors) == sum(one.total() for one in refusals.values())


def test_files_are_written_and_read_back(
    vectors: dict[str, Vector], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tito_io.conform.vector.make_vectors", lambda: iter(vectors.values()))
    counts = write(tmp_path / "new" / "folder")
    assert {one.id: one for one in read(tmp_path / "new" / "folder")} == dict(
        sorted(vectors.items(), key=_by_file)
    )
    assert counts == Counter(one.set for one in vectors.values())
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        *(f"{name}.jsonl" for name in SETS),
        *SHIPPED,
    }


def _by_file(pair: tuple[str, Vector]) -> str:
    return pair[1].set


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"trajectory": [{"prompt_ids": [1], "sampled_ids": [-1]}]},
            "sampled_ids must be whole numbers from 0",
        ),
        ({"trajectory": [7]}, "prompt_ids must be list, not NoneType"),
        ({"expected": {"answers": [{"ids": [1]}], "refusal": "never"}}, "spans must be list, not NoneType"),
        ({"version": 2}, "version is 2, and this program reads version 1"),
        ({"id": 7}, "id must be str, not int"),
        ({"template": 7}, "template must be str, not int"),
        ({"expected": {"answers": [], "refusal": "never"}}, "0 answers, and a refusal is never"),
        (
            {"expected": {"answers": [{"ids": [1], "spans": []}], "refusal": "required"}},
            "1 answers, and a refusal is required",
        ),
        (
            {"expected": {"answers": [{"ids": ["1"], "spans": []}], "refusal": "never"}},
            "ids must be whole numbers from 0 on",
        ),
        (
            {"expected": {"answers": [], "refusal": "perhaps"}},
            "refusal is 'perhaps': give never, allowed or required",
        ),
        (
            {"tokenizer": {"tokens": {"a": "b"}, "special": {}}},
            "tokenizer.tokens must map texts to whole numbers",
        ),
    ],
)
def test_a_broken_vector_is_named_by_its_line(
    vectors: dict[str, Vector], tmp_path: Path, change: dict[str, object], said: str
) -> None:
    good = vectors["valid/chatml/question"]
    (tmp_path / "a.jsonl").write_text(line(good) + "\n" + line(Vector({**good.data, **change})))
    with pytest.raises(ConformError, match=f"a.jsonl, line 3: .*{said}"):
        list(read(tmp_path))


def test_an_id_that_stands_twice_is_an_error(vectors: dict[str, Vector], tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text("\n" + line(vectors["valid/chatml/question"]))
    said = (
        r"b.jsonl, line 2: the id 'valid/chatml/question' stands at .*a.jsonl, line 2, too: give each id once"
    )
    with pytest.raises(ConformError, match=said):
        list(read(tmp_path))


def test_a_folder_without_vectors_and_a_file_that_is_no_text_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConformError, match=r"no .jsonl file in this folder; write one with: tito vectors -o"):
        list(read(tmp_path))
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(ConformError, match=r"the .jsonl files of this folder have no vectors"):
        list(read(tmp_path))
    (tmp_path / "a.jsonl").write_bytes(b"\xff\n")
    with pytest.raises(ConformError, match="cannot be read as UTF-8 text"):
        list(read(tmp_path))
    (tmp_path / "a.jsonl").write_text('{"call": 1}\n')
    with pytest.raises(ConformError, match="line 1: is no vector: give a folder of vectors"):
        list(read(tmp_path))
    (tmp_path / "a.jsonl").write_text("[" * 100_000)
    with pytest.raises(ConformError, match="line 1: not JSON"):
        list(read(tmp_path))


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_comments_of_a_template_write_nothing(name: str) -> None:
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "It is"},
        {"role": "user", "content": "However"},
    ]
    shown, hidden = (
        Oracle(template, TOKENIZER) for template in (TEMPLATES[name], without_comments(TEMPLATES[name]))
    )
    assert COMMENT.search(TEMPLATES[name])
    assert "{#" not in without_comments(TEMPLATES[name])
    for speak in (True, False):
        try:
            page = shown.page(messages, speak=speak)
        except TemplateRaisedError:
            continue
        assert page.text == hidden.page(messages, speak=speak).text
        assert page.text[slice(*page.words[2])].strip().endswith("However")


PLAIN_NODES = "Template Output Name NSRef Const Getattr Keyword Operand Compare"
"""Kinds of nodes that every template has, or that others of them imply."""
NAMED_NODES = {
    "For": "`for`", "If": "`if`", "elif": "`elif`", "Assign": "`set`", "CondExpr": "`a if b else c`",
    "And": "`and`", "Or": "`or`", "Not": "`not`",
    "Mod": "`%`", "Neg": "negative numbers", "Add": "`+`", "Concat": "`~`",
    "Tuple": "tuples", "List": "`[]`", "Getitem": "indices",
    "eq": "`==`", "ne": "`!=`", "lteq": "`<=`", "gt": "`>`", "in": "`in`",
    "Call namespace": "`namespace`", "Call raise_exception": "`raise_exception(text)`",
    "Filter trim": "`trim`", "Filter length": "`length`", "Filter items": "`items`",
    "Filter tojson": "`tojson`", "Test string": "`is string`", "Test defined": "`is defined`",
}  # fmt: skip
"""What the templates use, and how the README says it."""


def _used(node: nodes.Node) -> Iterator[str]:
    """Yield the features that a part of a template uses."""
    kind = type(node).__name__
    if isinstance(node, nodes.Call):
        assert isinstance(node.node, nodes.Name)
        yield f"{kind} {node.node.name}"
    elif isinstance(node, nodes.Filter | nodes.Test):
        yield f"{kind} {node.name}"
    elif isinstance(node, nodes.Operand):
        yield node.op
    elif isinstance(node, nodes.If) and node.elif_:
        yield "elif"
    else:
        yield kind
    for child in node.iter_child_nodes():
        yield from _used(child)


def test_the_readme_names_what_the_templates_use() -> None:
    used = {name for text in TEMPLATES.values() for name in _used(environment().parse(text))}
    assert used - {*PLAIN_NODES.split()} == set(NAMED_NODES)
    readme = files("tito_io.conform").joinpath("README.md").read_text()
    assert [said for said in NAMED_NODES.values() if said not in readme] == []


def test_what_was_sampled_of_a_tail() -> None:
    assert sampled_of([5, 7], [7, 10, 1], [7]) == 1
    assert sampled_of([5, 46, 7], [10, 7, 10, 1], [7]) == 2  # a stop after text of the close
    assert sampled_of([5, 7, 10], [7, 10, 1], [7]) == 2  # the whole close
    assert sampled_of([5, 7, 8, 7], [7, 8, 7, 1], [7]) == 3  # a close that begins and ends with the stop
    assert sampled_of([5, 8], [7, 10, 8], [7, 8]) == 0  # an odd stop
    assert sampled_of([5, 7], [7, 10], []) == 1  # no stop is known


@pytest.mark.parametrize(("name", "end"), ANSWERS.items())
def test_an_answer_that_can_be_read(vectors: dict[str, Vector], name: str, end: str) -> None:
    assert text(vectors[name]).endswith(end)


def test_an_odd_stop_may_be_kept_or_replaced(vectors: dict[str, Vector]) -> None:
    kept, replaced = (one["ids"] for one in vectors["trap/odd-stop/end-of-text"].answers)
    odd, close = TOKENIZER.special["<|endoftext|>"], TOKENIZER.special["<|im_end|>"]
    place = kept.index(odd)
    assert kept[place + 1] == close
    assert replaced == [*kept[:place], *kept[place + 1 :]]


def test_spans_hold_the_contents_of_new_messages(vectors: dict[str, Vector]) -> None:
    answer = vectors["valid/grouped-results/two-results"].answers[0]
    contents = [TOKENIZER.decode(answer["ids"][slice(*span)]) for span in answer["spans"]]
    assert contents == ["The answer is 46.\n", "It is 80.\n"]  # with the line break in the same token
    empty = vectors["trap/calls/empty-result"].answers[0]
    assert empty["spans"] == [None]
