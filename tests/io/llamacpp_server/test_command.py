"""`--gguf FILE`: which options go together, what is shown, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.gguf_file import install_package, metadata_of, write_gguf
from tests.io.families.family_folder import tiny_folder
from tito_core import InputError
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED
from tito_io.cli.group import tito
from tito_io.embedded import write_family
from tito_io.families import Family
from tito_io.llamacpp_server import LlamaCppServer, ServerSettings, running
from tito_io.llamacpp_server.check import MESSAGES, TEXTS, check_ids, difference
from tito_io.llamacpp_server.progress import loading_shown, resident_bytes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a GGUF file with a real enough tokenizer: that of a folder, under SmolLM's rule."""
    folder = tiny_folder(tmp_path / "folder", "{% for m in messages %}{{ m.content }}{% endfor %}")
    return write_gguf(tmp_path / "tiny.gguf", metadata_of(folder, "smollm"))


def run(name: str, *options: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(tito, [name, *map(str, options)], env=env)


@pytest.mark.parametrize("name", ["rollout", "serve"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--context", 9), "--context is about the server that --gguf starts"),
        (("--precise",), "--precise is about the server"),
        (("--gpu-layers", 3), "--gpu-layers is about the server"),
        (
            ("--gguf", "FILE", "--base-url", "http://127.0.0.1:1"),
            "--base-url: --gguf starts llama.cpp's server",
        ),
        (("--gguf", "FILE", "--engine", "embedded"), "--engine: --gguf starts"),
        (("--gguf", "FILE", "--model", "m"), "--model: --gguf starts"),
        (("--gguf", "FILE", "--api-key", "k"), "--api-key: --gguf starts"),
        (("--gguf", "lost.gguf"), "lost.gguf: is not a file; give a GGUF file"),
        (("--gguf", __file__), "is not a GGUF file"),
        (("--gguf", str(Path(__file__).parent)), "is a folder; give the path of one GGUF file"),
        (("--gguf", "no-such-model"), "neither a file nor an installed package: give the path"),
        (("--gguf", "pytest"), "pytest: the installed package has no GGUF file; give another or a path"),
        (("--gguf", "FILE", "--family", "lost"), "lost: neither a file nor an installed package"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    file: Path, name: str, options: Sequence[object], said: str
) -> None:
    result = run(name, *(str(file) if one == "FILE" else one for one in options))
    assert result.exit_code == BAD_INPUT
    assert said in result.stderr
    assert result.stdout == ""


@pytest.fixture
def started(stand_in: Path, monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """Return the settings that servers would be started with."""
    assert stand_in.is_dir()
    started: list[ServerSettings] = []

    @contextmanager
    def lend(settings: ServerSettings, **_: Any) -> Iterator[None]:
        started.append(settings)
        if started:
            raise InputError("far enough")
        yield

    for command in ("rollout", "serve"):
        monkeypatch.setattr(f"tito_io.{command}.command.local_engine", lend)
    return started


def test_an_option_from_the_environment_counts_but_for_the_key(
    file: Path, started: list[ServerSettings]
) -> None:
    env = {"TITO_ROLLOUT_SLOTS": "3", "TITO_API_KEY": "k"}
    assert "far enough" in run("rollout", "--gguf", file, env=env).stderr
    assert started == [ServerSettings(file=file, slots=3)]
    assert "--model: --gguf" in run("rollout", "--gguf", file, env={"TITO_ROLLOUT_MODEL": "m"}).stderr


@pytest.mark.parametrize("name", ["rollout", "serve"])
def test_a_package_stands_for_its_file(
    name: str, started: list[ServerSettings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    folder = install_package(tmp_path, "m.gguf")
    run(name, "--gguf", "tiny_model")
    assert started == [ServerSettings(file=folder / "m.gguf")]


def test_a_family_may_be_a_gguf_file(file: Path) -> None:
    """It is loaded before the engine is asked."""
    nowhere = ("--engine", "llamacpp", "--base-url", "http://127.0.0.1:9")
    assert run("rollout", *nowhere, "--family", file).exit_code == ENGINE_FAILED
    file.write_text("no model")
    refused = run("rollout", *nowhere, "--family", file)
    assert refused.exit_code == BAD_INPUT
    assert "is not a GGUF file" in refused.stderr


def test_without_the_extra_it_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito_io.llamacpp_server.process.find_spec", lambda _: None)
    result = run("rollout", "--gguf", file)
    assert result.exit_code == BAD_INPUT
    assert "pip install 'tito-kernel[llamacpp]'" in result.stderr


def test_a_server_that_does_not_load_ends_the_command_with_its_last_lines(file: Path, stand_in: Path) -> None:
    assert stand_in.is_dir()
    file.write_bytes(file.read_bytes() + b"dies")
    result = run("rollout", "--gguf", file)
    assert result.exit_code == ENGINE_FAILED
    assert f"{file}: llama.cpp could not load the model" in result.stderr
    assert "tito: llama.cpp: RuntimeError: Failed to init server" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stderr.strip().endswith("copy the file anew, or upgrade xllamacpp if the model is newer")


def test_ids_that_differ_from_the_servers_are_refused_or_said(file: Path, stand_in: Path) -> None:
    """The stand-in's ids are those of letters."""
    assert stand_in.is_dir()
    refused = run("rollout", "--gguf", file)
    assert refused.exit_code == BAD_INPUT
    assert f"{file} gives other ids for plain ASCII than llama.cpp's own tokenizer: at 0 of" in refused.stderr
    assert "loaded" in refused.stderr
    taken = run("rollout", "--gguf", file, "--family", write_family(file.parent / "embedded"))
    assert "Going on with --family" in taken.stderr
    assert taken.exit_code == ENGINE_FAILED  # the stand-in has no other route


@pytest.fixture
def same(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Return answers of a server's tokenizer that are not the family's."""
    others: dict[str, list[int]] = {}
    monkeypatch.setattr(
        "tito_io.llamacpp_server.check.server_ids",
        lambda family, text: others[text] if text in others else family.encode(text),
    )
    return others


@pytest.mark.parametrize("text", [*TEXTS, "".join(one["content"] for one in MESSAGES)])
def test_every_text_is_compared(file: Path, same: dict[str, list[int]], text: str) -> None:
    family = Family.of_gguf(file)
    server: Any = family  # the fixture asks it for ids
    assert difference(family, server) is None
    check_ids(family, server)
    same[text] = [*family.encode(text), 0]
    assert "other ids for plain ASCII" in str(difference(family, server))
    with pytest.raises(InputError, match="give the model's own folder with --family"):
        check_ids(family, server)


def test_all_texts_are_plain() -> None:
    assert all(text.isascii() for text in TEXTS)


def test_loading_is_shown(file: Path, stand_in: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stand_in.is_dir()
    settings = ServerSettings(file=file)
    with loading_shown(settings) as show, running(settings, waiting=show) as server:
        assert isinstance(server, LlamaCppServer)
        seen = resident_bytes(server.process.pid)
    said = capsys.readouterr().err
    assert said.startswith(f"tito: loading {file} (")
    assert f"tito: loaded {file} in " in said
    assert seen is None or seen > 1 << 20
    assert resident_bytes(server.process.pid) is None
