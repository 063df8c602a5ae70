"""Profiles outlive the process; a damaged file is a missing one, and no trouble with files is an error."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tito_core import Message, answer
from tito_core.data import to_data
from tito_core.seams.case import TurnKind
from tito_core.seams.certify import certify_questions
from tito_core.seams.probe import probe_questions
from tito_core.seams.profile import Profile
from tito_io.families.kept_files import KeptFiles, cache_folder
from tito_io.families.profile_cache import ProfileCache
from tito_io.families.stored_profile import StoredProfile

KEY = sha256(b"a rendering").hexdigest()
head = KeptFiles(None, "profile").head


def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    ids = [i for m in messages for i in (1, len(m["role"]), *str(m.get("content")).encode(), 2)]
    return ids + [1, len("assistant")] * add_generation_prompt


def some_profile() -> Profile:
    kind = TurnKind(before="user", reasoning=False, calls=0, content="text")
    profile = answer(probe_questions((2, 7)), tokenize)
    case = answer(certify_questions(kind, ("user",), profile.suffix, profile.stop_ids), tokenize)
    return attrs.evolve(profile.then(case), key='[[],{"effort":"höchst"}]')


PROFILE = some_profile()


@pytest.fixture
def cache(tmp_path: Path) -> ProfileCache:
    return ProfileCache(tmp_path / "deep" / "profiles")


@pytest.fixture
def file(cache: ProfileCache) -> Path:
    """Return the file of a profile that was kept."""
    cache.keep(KEY, PROFILE)
    assert cache.folder is not None
    (file,) = cache.folder.iterdir()
    return file


def test_a_profile_comes_back_whole(cache: ProfileCache) -> None:
    assert PROFILE.cases
    assert PROFILE.facts.openers
    assert cache.find(KEY) is None
    cache.keep(KEY, PROFILE)
    assert cache.find(KEY) == PROFILE
    assert cache.find(sha256(b"another").hexdigest()) is None


def test_a_second_profile_replaces_the_first(cache: ProfileCache, file: Path) -> None:
    other = Profile(suffix=(3,))
    cache.keep(KEY, other)
    assert cache.find(KEY) == other
    assert [one.name for one in file.parent.iterdir()] == [f"{KEY}.json"]


@given(data=st.data())
def test_no_damage_of_a_file_goes_unnoticed(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("profiles")
    cache = ProfileCache(folder)
    cache.keep(KEY, PROFILE)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.integers(0, len(whole)))
    added = data.draw(st.binary(min_size=1, max_size=4))
    for damaged in (
        whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :],
        whole[:cut] if cut < len(whole) else b"",
        whole[:place] + added + whole[place:],
        data.draw(st.binary(max_size=50)),
    ):
        file.write_bytes(damaged)
        assert cache.find(KEY) is None


def test_the_file_of_another_rendering_is_not_taken_for_this_one(cache: ProfileCache, file: Path) -> None:
    other = sha256(b"another").hexdigest()
    file.rename(file.with_name(f"{other}.json"))
    assert cache.find(other) is None


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", "[1]", "null", "{}", '{"suffix": [-1]}', "[" * 100_000, "9" * 5000, "\ud800"),
        *(json.dumps({**to_data(PROFILE), **other}) for other in ({"version": 99}, {"unknown": 1})),
    ],
    ids=lambda body: body[:12].encode("ascii", "replace").decode(),
)
def test_a_file_of_another_program_or_version_with_a_checksum_that_fits(
    file: Path, cache: ProfileCache, body: str
) -> None:
    content = body.encode(errors="surrogatepass")
    file.write_bytes(head(KEY, content) + b"\n" + content)
    assert cache.find(KEY) is None


def test_a_file_of_any_size_is_not_read(file: Path, cache: ProfileCache) -> None:
    with file.open("ab") as opened:
        opened.truncate(1 << 40)  # a sparse terabyte
    assert cache.find(KEY) is None


def test_what_stands_there_instead_of_a_file(cache: ProfileCache, file: Path) -> None:
    file.unlink()
    file.mkdir()
    assert cache.find(KEY) is None
    cache.keep(KEY, PROFILE)  # cannot be written either
    file.rmdir()
    os.mkfifo(file)
    assert cache.find(KEY) is None  # and does not wait for a writer
    cache.keep(KEY, PROFILE)
    assert cache.find(KEY) == PROFILE
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_folder_that_cannot_be_made_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("x")
    cache = ProfileCache(tmp_path / "file" / "profiles")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cache.keep(KEY, PROFILE)
            assert cache.find(KEY) is None
    (record,) = caplog.records
    assert record.name == "tito.families"
    assert f"profiles: cannot be kept in {cache.folder}: Not a directory" in record.message
    assert "set TITO_CACHE" in record.message


def test_a_folder_that_is_read_only(cache: ProfileCache, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner of these tests may be root, whom no permission stops: so the call itself fails."""

    def refuse(path: Path, *_: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    other = sha256(b"another").hexdigest()
    monkeypatch.setattr(os, "open", refuse)
    cache.keep(other, PROFILE)
    monkeypatch.undo()
    assert cache.find(other) is None
    assert cache.find(KEY) == PROFILE
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert cache.find(KEY) is None
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_a_full_disk_leaves_nothing_half_written(
    cache: ProfileCache, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    cache.keep(KEY, Profile(suffix=(3,)))
    monkeypatch.undo()
    assert cache.find(KEY) == PROFILE
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_no_folder_keeps_nothing() -> None:
    ProfileCache(None).keep(KEY, PROFILE)
    assert ProfileCache(None).find(KEY) is None


def test_files_have_the_permissions_that_the_user_chose(cache: ProfileCache) -> None:
    before = os.umask(0o027)
    try:
        cache.keep(KEY, PROFILE)
    finally:
        os.umask(before)
    assert cache.folder is not None
    assert stat.S_IMODE((cache.folder / f"{KEY}.json").stat().st_mode) == 0o640


@pytest.mark.whole
def test_many_writers_and_readers_of_one_file(cache: ProfileCache) -> None:
    """Whoever reads meanwhile finds a whole profile or none."""
    profiles = [Profile(suffix=tuple(range(size))) for size in range(0, 4000, 200)]
    cache.keep(KEY, profiles[0])

    def write_and_read(profile: Profile) -> Profile | None:
        cache.keep(KEY, profile)
        return cache.find(KEY)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(write_and_read, profiles * 10))
    assert all(one in profiles for one in found)
    assert cache.folder is not None
    assert [one.name for one in cache.folder.iterdir()] == [f"{KEY}.json"]


@pytest.mark.parametrize(
    ("platform", "environment", "folder"),
    [
        ("linux", {"TITO_CACHE": "here"}, "here"),
        ("win32", {"TITO_CACHE": "here", "LOCALAPPDATA": "/local"}, "here"),
        ("linux", {"TITO_CACHE": "", "XDG_CACHE_HOME": "/xdg"}, "/xdg/tito"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/ann/.cache/tito"),
        ("linux", {"LOCALAPPDATA": "/local"}, "/home/ann/.cache/tito"),
        ("darwin", {"XDG_CACHE_HOME": "/xdg"}, "/home/ann/Library/Caches/tito"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/tito"),
        ("win32", {}, "/home/ann/AppData/Local/tito"),
    ],
)
def test_the_folder_is_the_platforms(
    platform: str, environment: dict[str, str], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ann"))
    assert cache_folder(environment, platform) == Path(folder)


def test_a_user_without_a_home_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    assert cache_folder({}, "linux") is None
    for name in ("TITO_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert ProfileCache.default() == ProfileCache(None)


def test_a_stored_profile_has_its_cases_and_those_that_it_learns() -> None:
    kept: list[Profile] = []
    (own,) = some_profile().cases
    other = attrs.evolve(own, shape=("tool",))
    one = StoredProfile(some_profile(), kept.append)
    one.learn(attrs.evolve(some_profile(), cases=(other,)))
    assert one.profile.cases == (own, other)
    assert kept == [one.profile]
