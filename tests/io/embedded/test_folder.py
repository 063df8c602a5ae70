"""The folder that the embedded engine writes: one that every loader takes for a model's."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tito_core import InputError, TemplateRefused
from tito_io.embedded import family, write_family
from tito_io.families.family import Family

from .embedded_client import WEATHER

CALLED = {
    "role": "assistant",
    "content": " Wait. ",
    "reasoning": "\nA city. ",
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich"}}},
        {"id": "2", "type": "function", "function": {"name": "get_weather", "arguments": {}}},
    ],
}
SYSTEM = {"role": "system", "content": "Be brief."}
ASK = {"role": "user", "content": "And now?"}
RESULTS = [
    {"role": "tool", "tool_call_id": "1", "content": "sunny"},
    {"role": "tool", "tool_call_id": "2", "content": "no city"},
]
HISTORIES: dict[str, list[dict[str, Any]]] = {
    "question": [ASK],
    "system": [SYSTEM, ASK],
    "answered": [ASK, {"role": "assistant", "content": "So.\n"}],
    "called": [ASK, CALLED],
    "results": [ASK, CALLED, *RESULTS],
    "asked again": [SYSTEM, ASK, CALLED, *RESULTS, {"role": "assistant", "content": "Sunny."}, ASK],
    "system later": [ASK, {"role": "assistant", "content": "So."}, SYSTEM, ASK],
    "inline thought": [ASK, {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nSo."}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "lost"}]}],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("family") / "made")


@pytest.mark.parametrize("options", [{}, {"add_generation_prompt": True, "enable_thinking": False}])
@pytest.mark.parametrize("tools", [None, [WEATHER]])
@pytest.mark.parametrize("name", HISTORIES)
def test_transformers_and_the_family_render_alike(
    folder: Path, name: str, tools: list[Any] | None, options: dict[str, Any]
) -> None:
    reference = AutoTokenizer.from_pretrained(str(folder))
    text = reference.apply_chat_template(HISTORIES[name], tools=tools, tokenize=False, **options)
    ids = reference.apply_chat_template(
        HISTORIES[name], tools=tools, tokenize=True, return_dict=False, **options
    )
    loaded = Family.load(folder)
    assert loaded.text(HISTORIES[name], tools=tools, **options) == text
    assert loaded.ids(HISTORIES[name], tools=tools, **options) == ids


def test_a_message_goes_on_alike(folder: Path) -> None:
    reference = AutoTokenizer.from_pretrained(str(folder))
    messages = HISTORIES["answered"]
    text = reference.apply_chat_template(messages, tokenize=False, continue_final_message=True)
    assert Family.load(folder).text(messages, continue_final_message=True) == text
    assert text.endswith("</think>\n\nSo.")


def test_the_folder_is_the_same_every_time(folder: Path, tmp_path: Path) -> None:
    again = write_family(tmp_path / "a" / "b")
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in again.iterdir())
    assert all((folder / name).read_bytes() == (again / name).read_bytes() for name in names)


def test_two_ids_end_a_turn_and_only_one_is_the_template_s() -> None:
    loaded = family()
    close, over = loaded.stop_ids
    assert (loaded.decode([close]), loaded.decode([over])) == ("<|done|>", "<|over|>")
    assert loaded.text(HISTORIES["answered"]).endswith("<|done|>\n")
    assert loaded.special_tokens["eos_token"] == "<|done|>"  # noqa: S105  # a token's text, no secret


class TestOddities:
    """Each is one that public templates have; the engine would be too kind without them."""

    def test_a_system_text_that_nobody_wrote(self) -> None:
        assert "draw words" in family().text([ASK])
        assert "draw words" not in family().text([SYSTEM, ASK])

    def test_thoughts_vanish_once_a_user_has_spoken_again(self) -> None:
        kept, gone = family().text(HISTORIES["results"]), family().text(HISTORIES["asked again"])
        assert "A city." in kept
        assert "A city." not in gone

    def test_only_a_last_turn_has_the_empty_thought(self) -> None:
        empty = "<think>\n\n</think>"
        assert empty in family().text(HISTORIES["answered"])
        assert empty not in family().text([*HISTORIES["answered"], ASK])

    def test_texts_are_trimmed(self) -> None:
        text = family().text(HISTORIES["called"])
        assert "<think>\nA city.\n</think>\n\nWait.\n<tool_call>" in text

    def test_results_share_a_turn(self) -> None:
        text = family().text(HISTORIES["results"])
        assert text.count("<|turn|>tool\n") == 1
        assert text.count("<tool_response>") == 2

    def test_a_result_alone_is_not_the_beginning_of_two(self) -> None:
        one, two = family().text(HISTORIES["results"][:-1]), family().text(HISTORIES["results"])
        assert not two.startswith(one)

    def test_arguments_as_a_string_are_encoded_twice(self) -> None:
        call = {"function": {"name": "get_weather", "arguments": '{"city": "Quito"}'}}
        text = family().text([ASK, {"role": "assistant", "tool_calls": [call]}])
        assert r'"arguments": "{\"city\": \"Quito\"}"' in text

    def test_content_parts_are_dropped(self) -> None:
        assert "lost" not in family().text(HISTORIES["parts"])

    def test_an_unknown_role_is_refused(self) -> None:
        with pytest.raises(TemplateRefused, match="wizard"):
            family().text([{"role": "wizard", "content": "x"}])


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/family cannot be written: Not a directory"):
        write_family(tmp_path / "file" / "family")
    (tmp_path / "family" / "chat_template.jinja").mkdir(parents=True)
    with pytest.raises(InputError, match=r"chat_template\.jinja cannot be written: Is a directory"):
        write_family(tmp_path / "family")
