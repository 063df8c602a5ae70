"""Settings of llama.cpp's server: what is passed to it, and what is refused before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gguf_file import write_gguf
from tito_core import InputError
from tito_io.families.folder import FolderError
from tito_io.llamacpp_server import ServerSettings, settings
from tito_io.llamacpp_server.child import common_params


def gguf(path: Path, context: int = 40_960) -> Path:
    return write_gguf(path, {"general.architecture": "tito", "tito.context_length": context})


def test_the_context_is_that_of_each_slot(tmp_path: Path) -> None:
    file = gguf(tmp_path / "m.gguf")
    assert ServerSettings(file=file).parameters()["context"] == settings.CONTEXT
    assert ServerSettings(file=file, context=100, slots=3).parameters()["context"] == 300
    assert ServerSettings(file=gguf(file, 64), slots=2).parameters()["context"] == 128


def test_a_context_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    file = gguf(tmp_path / "m.gguf", 64)
    assert ServerSettings(file=file, context=64).checked().context == 64
    with pytest.raises(InputError, match="has a context of 64 tokens; 65 are too many: ask for at most 64"):
        ServerSettings(file=file, context=65).checked()


def test_a_model_in_several_files_is_one(tmp_path: Path) -> None:
    first = gguf(tmp_path / "big-Q4-00001-of-00002.gguf")
    model = ServerSettings(file=first)
    assert model.name == "big-Q4"
    with pytest.raises(InputError, match=r"big-Q4-00002-of-00002\.gguf: is missing; .* 2 files"):
        model.checked()
    second = gguf(tmp_path / "big-Q4-00002-of-00002.gguf")
    assert model.size == first.stat().st_size + second.stat().st_size
    assert model.checked() is model


def test_each_file_of_a_model_that_was_cut_is_refused_before_a_server_starts(tmp_path: Path) -> None:
    first, second = (gguf(tmp_path / f"m-0000{part}-of-00002.gguf") for part in (1, 2))
    write_gguf(second, {}, tensors=(64, 64))
    ServerSettings(file=first).checked()
    second.write_bytes(second.read_bytes()[:-64])
    with pytest.raises(FolderError, match=r"00002-of-00002\.gguf: is cut: .*; copy the file anew"):
        ServerSettings(file=first).checked()


def test_a_model_that_is_larger_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = gguf(tmp_path / "m.gguf")
    monkeypatch.setattr(settings, "total_memory", lambda: file.stat().st_size - 1)
    with pytest.raises(InputError, match="bytes of memory: take a smaller model"):
        ServerSettings(file=file).checked()
    assert ServerSettings(file=file, gpu_layers=9).checked().gpu_layers == 9
    monkeypatch.setattr(settings, "total_memory", lambda: None)
    assert ServerSettings(file=file).checked().gpu_layers is None


@pytest.mark.parametrize(("processors", "threads"), [(1, 1), (2, 1), (3, 1), (16, 8)])
def test_half_the_processors_compute(monkeypatch: pytest.MonkeyPatch, processors: int, threads: int) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(processors)), raising=False)
    assert settings.default_threads() == threads


def test_this_machine_has_memory() -> None:
    memory = settings.total_memory()
    assert memory is not None
    assert memory > 1 << 27


def test_what_is_no_gguf_file_is_refused_before_a_server_starts(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_text("not a model")
    with pytest.raises(FolderError, match="does not begin with GGUF"):
        ServerSettings(file=file).checked()


def test_settings_become_llama_cpps_parameters(
    tmp_path: Path, stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stand_in.is_dir()
    monkeypatch.delitem(__import__("sys").modules, "xllamacpp", raising=False)
    file = gguf(tmp_path / "m.gguf")
    chosen = ServerSettings(file=file, context=99, slots=2, threads=3, gpu_layers=0, precise=True)
    params = common_params({**chosen.parameters(), "api_key": "secret"})
    assert (params.model.path, params.model_alias) == (str(file), {"m"})
    assert (params.hostnames, params.port, params.api_keys) == (["127.0.0.1"], 0, ["secret"])
    assert (params.n_ctx, params.n_parallel, params.n_gpu_layers) == (198, 2, 0)
    assert (params.cpuparams.n_threads, params.cpuparams_batch.n_threads) == (3, 3)
    assert (params.cache_type_k, params.cache_type_v, params.flash_attn_type) == (0, 0, 0)
    assert params.ui is params.endpoint_slots is False
    plain = common_params({**ServerSettings(file=file).parameters(), "api_key": "secret"})
    assert plain.cpuparams.n_threads == settings.default_threads()
    assert not hasattr(plain, "n_gpu_layers")
    assert not hasattr(plain, "cache_type_k")
