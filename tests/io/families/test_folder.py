"""A folder that cannot be used says so, and says which file is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.io.families.family_folder import CONFIG, load, tiny_folder, write
from tito_core import InputError, TitoError
from tito_io.families.family import Family
from tito_io.families.folder import LARGEST_SETTINGS, LARGEST_TEMPLATE, LARGEST_TOKENIZER, FolderError

SETTINGS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json")


def refused(path: Path, template: str | None = None) -> str:
    with pytest.raises(FolderError) as caught:
        Family.load(path, template=template)
    assert isinstance(caught.value, TitoError)
    assert isinstance(caught.value, ValueError)
    return str(caught.value)


def configured(**config: Any) -> dict[str, Any]:
    return {"tokenizer_config__json": {**CONFIG, **config}}


def test_a_path_that_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    assert "file: is not a folder" in refused(tmp_path / "file")
    assert "nothing is downloaded" in refused(Path("organisation/model"))


def test_a_missing_tokenizer(tmp_path: Path) -> None:
    write(tmp_path, {"chat_template.jinja": "x", "tokenizer_config.json": CONFIG})
    assert "tokenizer.json: is missing" in refused(tmp_path)


def test_a_folder_without_any_configuration_still_renders(tmp_path: Path) -> None:
    path = tiny_folder(tmp_path, "{{ messages[0].content }}")
    (path / "tokenizer_config.json").unlink()
    family = load(path)
    assert family.text([{"role": "user", "content": "hello"}]) == "hello"
    assert (family.special_tokens, family.stop_ids) == ({}, ())


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("a\n{% if x %}\nb", "chat_template.jinja, line 3: Unexpected end of template"),
        ("a\n\n{{ x | nothing }}", "chat_template.jinja, line 3: No filter named 'nothing'"),
        (
            "{% unknown %}",
            "chat_template.jinja, line 1: Encountered unknown tag 'unknown'; correct the template",
        ),
        ("{{ f(a=1, a=2) }}", "chat_template.jinja"),
        ("{% break %}", "chat_template.jinja"),
        ("{{ " + "9" * 5000 + " }}", "chat_template.jinja"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "chat_template.jinja"),
        ("{% for x in y %}" * 50 + "{% endfor %}" * 50, "chat_template.jinja"),
        ("x" * (2**18 + 1), "chat_template.jinja: a chat template has at most 262144 characters"),
    ],
)
def test_a_template_that_does_not_compile_names_its_line(tmp_path: Path, source: str, said: str) -> None:
    assert said in refused(tiny_folder(tmp_path, source))


def test_a_broken_template_that_was_not_asked_for_harms_nobody(tmp_path: Path) -> None:
    files = {"chat_template__jinja": "F", "additional_chat_templates/rag__jinja": "{% if %}"}
    path = tiny_folder(tmp_path, **files)
    assert load(path).text([{"role": "user"}]) == "F"
    assert "rag.jinja, line 1" in refused(path, "rag")


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"a": ', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "not valid JSON"),
        ("[1]", "must hold an object, not a list"),
        (b"\xff\xfe{", "not a UTF-8 text, at byte 0"),
    ],
)
def test_broken_files(tmp_path: Path, name: str, content: str | bytes, said: str) -> None:
    path = tiny_folder(tmp_path, "x")
    (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert f"{name}: {said}" in refused(path)


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "BPE"}}', "{", "\0"])
def test_a_broken_tokenizer(tmp_path: Path, content: str) -> None:
    path = tiny_folder(tmp_path, "x")
    (path / "tokenizer.json").write_text(content)
    assert "tokenizer.json: not a tokenizer file" in refused(path)


def test_a_tokenizer_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Path.open

    def refuse(self: Path, *args: Any, **options: Any) -> Any:
        if self.name == "tokenizer.json":
            raise PermissionError(13, "Permission denied")
        return usual(self, *args, **options)

    path = tiny_folder(tmp_path, "x")
    monkeypatch.setattr(Path, "open", refuse)
    assert "tokenizer.json: cannot be read: Permission denied" in refused(path)


def test_an_unknown_template_lists_those_there_are(tmp_path: Path) -> None:
    path = tiny_folder(tmp_path, "x", **{"additional_chat_templates/rag__jinja": "R", "other__jinja": "O"})
    said = refused(path, "rags")
    assert "no template rags; it has default, other.jinja, rag" in said
    assert "has no template tokenizer_config.json" in refused(path, "tokenizer_config.json")


def test_several_templates_and_no_default(tmp_path: Path) -> None:
    path = tiny_folder(tmp_path, **configured(chat_template={"rag": "R", "chat": "C"}))
    assert "has no default template; choose one of chat, rag" in refused(path)
    assert load(path, "chat").text([{"role": "user"}]) == "C"


GONE = "names the token '<gone>', which is not in tokenizer.json"
MALFORMED_TOKENS: tuple[Any, ...] = ([], {"x": "<eos>"}, {"1": {}}, {"1": 3}, {"1": {"content": 3}})
MALFORMED = "a token in the configuration is malformed"
NO_TEXT = "chat_template must be a string"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"chat_template": None}, "has no chat template: add chat_template.jinja"),
        ({"chat_template": "{% if %}"}, "tokenizer_config.json#chat_template:default, line 1"),
        *(
            ({"chat_template": value}, NO_TEXT)
            for value in (3, [3], {"default": 3}, [{"name": "default"}], [{"template": "x"}, "y"])
        ),
        ({"eos_token": "<gone>"}, GONE),
        ({"image_token": "<gone>"}, GONE),
        ({"extra_special_tokens": ["<gone>"]}, GONE),
        ({"extra_special_tokens": {"image_token": "<gone>"}}, GONE),
        ({"additional_special_tokens": ["<gone>"]}, GONE),
        ({"pad_token": {"__type": "AddedToken", "content": "<gone>"}}, GONE),
        (
            {"added_tokens_decoder": {"7": {"content": "<eos>", "special": True}}},
            "'<eos>' is 7 in the configuration, and in tokenizer.json 1",
        ),
        *(({"added_tokens_decoder": decoder}, MALFORMED) for decoder in MALFORMED_TOKENS),
        ({"fix_mistral_regex": True}, "fix_mistral_regex"),  # which only transformers makes
    ],
)
def test_a_configuration_that_cannot_be_used(tmp_path: Path, config: dict[str, Any], said: str) -> None:
    template = None if "chat_template" in config else "x"
    assert said in refused(tiny_folder(tmp_path, template, **configured(**config)))


@pytest.mark.parametrize(
    ("stops", "said"),
    [
        ("1", "eos_token_id is '1': give an id from 0 to 4294967295, or a list of ids"),
        (1.5, "eos_token_id is 1.5"),
        (True, "eos_token_id is True"),
        ({}, "eos_token_id is a dict"),
        (-1, "eos_token_id is -1"),
        (2**32, "eos_token_id is 4294967296"),
        ([1, "2"], "eos_token_id[1] is '2': an id is a whole number from 0 to 4294967295"),
        ([1, [2]], "eos_token_id[1] is a list"),
        (10**4000, "eos_token_id is 1000000"),
    ],
    ids=lambda value: f"{value!s:.20}",
)
def test_malformed_stops(tmp_path: Path, stops: Any, said: str) -> None:
    path = tiny_folder(tmp_path, "x", generation_config__json={"eos_token_id": stops})
    assert f"generation_config.json: {said}" in refused(path)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("value", ["{}", "[1, {}]", '{{"a": {}}}'])
def test_a_number_that_python_does_not_read(tmp_path: Path, name: str, value: str) -> None:
    """Python limits the digits of the numbers that it reads, with an error that names no file."""
    path = tiny_folder(tmp_path, "x")
    (path / name).write_text(f'{{"eos_token_id": {value.format("7" * 5000)}}}')
    said = refused(path)
    assert f"{name}: has a number of thousands of digits, and ids end at 4294967295" in said
    assert len(said) < 300


def linked(folder: Path, name: str, target: Path) -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(target)
    return folder


def test_a_template_that_is_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.jinja"
    secret.write_text("{{ 'key' }}")
    for name in ("chat_template.jinja", "additional_chat_templates/default.jinja", "other.jinja"):
        path = linked(tiny_folder(tmp_path / name.replace("/", "-")), name, secret)
        said = refused(path, "other.jinja" if name.startswith("other") else None)
        assert f"{path / name}: is a link that leads out of the folder; copy the file there" in said
    path = tiny_folder(tmp_path / "whole")
    (tmp_path / "default").mkdir()
    (tmp_path / "default" / "default.jinja").write_text("x")
    assert "leads out of the folder" in refused(
        linked(path, "additional_chat_templates", tmp_path / "default")
    )
    named = Family.load(tiny_folder(tmp_path / "named"), template=str(secret))
    assert named.text([{"role": "user"}]) == "key"


def test_links_within_a_folder_and_into_the_hub_s_cache_are_followed(tmp_path: Path) -> None:
    inside = tiny_folder(tmp_path / "inside")
    (inside / "data").mkdir()
    (inside / "data" / "real").write_text("inside")
    linked(inside, "chat_template.jinja", Path("data") / "real")
    model = tmp_path / "models--a--b"
    (model / "blobs").mkdir(parents=True)
    (model / "blobs" / "0123").write_text("blob")
    snapshot = linked(
        tiny_folder(model / "snapshots" / "main"), "chat_template.jinja", Path("../../blobs/0123")
    )
    elsewhere = tmp_path / "link-to-folder"
    elsewhere.symlink_to(snapshot)
    said = [load(path).text([{"role": "user"}]) for path in (inside, snapshot, elsewhere)]
    assert said == ["inside", "blob", "blob"]


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "added_tokens.json", "generation_config.json", "tokenizer.json"]
)
def test_a_device_or_a_pipe_is_not_read(tmp_path: Path, name: str) -> None:
    path = tiny_folder(tmp_path, "x")
    (path / name).unlink(missing_ok=True)
    (path / name).symlink_to("/dev/zero")
    said = refused(path)
    assert f"{name}: is " in said


@pytest.mark.parametrize(
    ("name", "largest"),
    [
        ("tokenizer_config.json", LARGEST_SETTINGS),
        ("chat_template.jinja", LARGEST_TEMPLATE),
        ("tokenizer.json", LARGEST_TOKENIZER),
    ],
)
def test_a_file_of_gigabytes_is_not_read(tmp_path: Path, name: str, largest: int) -> None:
    path = tiny_folder(tmp_path, "x")
    with (path / name).open("wb") as file:
        file.truncate(1 << 40)  # no byte of it is on the disk
    assert f"{name}: has more than {largest} bytes" in refused(path)


def test_a_pattern_of_the_tokenizer_that_takes_too_long_is_an_error_and_no_panic(tmp_path: Path) -> None:
    """The library gives a regular expression up after ten million steps, by what is no `Exception`."""
    path = tiny_folder(tmp_path, "{{ messages[0].content }}")
    settings = json.loads((path / "tokenizer.json").read_text())
    pattern = {"Regex": "(a|a)*$"}
    split = {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False}
    (path / "tokenizer.json").write_text(json.dumps({**settings, "pre_tokenizer": split}))
    with pytest.raises(InputError, match=r"the tokenizer fails on it: .*is a pattern in tokenizer.json"):
        load(path).ids([{"role": "user", "content": "a" * 40 + "c"}])
