"""The checker over real gateways and stores; TITO_STORES=kill,disk,power,network,clock asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests.io.serve.redis_server import Redis, redis_process, wanted
from tests.simulate.checker import violations
from tests.simulate.real import Blow, FaultyDisk, Proxy, RealWorld, collect, real_world, storm

ASKED = os.environ.get("TITO_STORES", "").split(",")
SOURCE = Path(__file__).parent / "disk_faults.c"
pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
needs_redis = pytest.mark.skipif(not wanted(), reason="there is no redis-server: TITO_REDIS=1 demands one")
JUMPING = """
import time, pathlib
real = time.time
def jumped():
    try:
        return real() + float(pathlib.Path({path!r}).read_text())
    except (OSError, ValueError):
        return real()
time.time = jumped
"""


def asked(name: str) -> pytest.MarkDecorator:
    """Skip a test that is not asked for."""
    return pytest.mark.skipif(
        name not in ASKED and "all" not in ASKED, reason=f"TITO_STORES={name} asks for it"
    )


@pytest.fixture
def disk(tmp_path: Path) -> FaultyDisk:
    """Compile the library, and return a disk that can fail."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.fail("no C compiler is on the path, and the library that makes a disk fail must be compiled")
    library = tmp_path / "disk_faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, SOURCE, "-ldl"], check=True)
    for name in ("disk", "disk.synced"):
        (tmp_path / name).mkdir()
    return FaultyDisk(library, tmp_path / "disk")


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Run a server that has on the disk what it acknowledged."""
    with redis_process(durable=True) as server:
        yield server


async def check(world: RealWorld, address: str, *blows: Blow) -> None:
    """Strike blows, and demand that nothing contradicts the documentation."""
    await storm(world, blows)
    await collect(world, address)
    found = violations(world.history)
    received = sum(one.answer is not None and one.answer.taken for one in world.history.attempts)
    assert not found, (found, world.history.text()[-20_000:])
    assert received > 5


@asked("kill")
@pytest.mark.parametrize("options", [(), ("--durable",)])
async def test_kills_over_sqlite(tmp_path: Path, options: tuple[str, ...]) -> None:
    address = f"sqlite:{tmp_path / 'sessions.db'}"
    async with real_world("--store", address, *options) as world:
        await check(world, address, *[RealWorld.killed] * 4)


@asked("kill")
@needs_redis
async def test_kills_of_the_gateway_and_of_redis(redis: Redis) -> None:
    async def away(_: RealWorld) -> None:
        redis.kill()
        await anyio.to_thread.run_sync(redis.start)

    async with real_world("--store", redis.url) as world:
        await check(world, redis.url, RealWorld.killed, away, RealWorld.killed, away)


@asked("disk")
@pytest.mark.parametrize("mode", ["full", "readonly"])
async def test_a_disk_that_takes_no_more_for_a_while(disk: FaultyDisk, mode: str) -> None:
    """Errors come with a status that says so, and nothing that was acknowledged is missing later."""

    async def fail(_: RealWorld) -> None:
        disk.become(mode)
        await anyio.sleep(1)
        disk.become("")

    async with real_world("--store", disk.address, environment=disk.environment) as world:
        await check(world, disk.address, fail, RealWorld.killed, fail, fail)
        assert any(one.answer is not None and one.answer.status == 503 for one in world.history.attempts)


@asked("disk")
@pytest.mark.parametrize("options", [(), ("--durable",)])
async def test_a_small_file_system_that_is_full_for_a_while(tmp_path: Path, options: tuple[str, ...]) -> None:
    """The kernel itself says that there is no room, on a file system in memory."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=4m", "none", folder], check=False)
    if mounted.returncode:
        pytest.skip("this user may mount no file system; the test before has a library say that it is full")

    async def fill(_: RealWorld) -> None:
        with (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                try:
                    filler.write(bytes(4_096))
                except OSError:
                    break
        await anyio.sleep(1)
        (folder / "filler").unlink()

    address = f"sqlite:{folder / 'sessions.db'}"
    try:
        async with real_world("--store", address, *options) as world:
            await check(world, address, fill, RealWorld.killed, fill, fill)
    finally:
        await anyio.run_process(["umount", folder])


@asked("disk")
async def test_a_disk_that_is_slow(disk: FaultyDisk) -> None:
    disk.become("slow 150")
    async with real_world("--store", disk.address, "--durable", environment=disk.environment) as world:
        await check(world, disk.address, RealWorld.killed, RealWorld.killed)


async def lose_power(disk: FaultyDisk, world: RealWorld) -> None:
    """Kill the gateway, and leave on the disk what it waited for."""
    world.kill()
    disk.lose_power()
    await world.start()


@asked("power")
async def test_a_durable_gateway_loses_nothing_with_the_power(disk: FaultyDisk) -> None:
    async with real_world("--store", disk.address, "--durable", environment=disk.environment) as world:
        await check(world, disk.address, *[partial(lose_power, disk)] * 3)


@asked("power")
async def test_a_gateway_that_is_not_durable_loses_turns_with_the_power(disk: FaultyDisk) -> None:
    """This shows that the test before cuts something off."""
    async with real_world("--store", disk.address, environment=disk.environment) as world:
        await storm(world, [partial(lose_power, disk)] * 3)
        await collect(world, disk.address)
        found = violations(world.history)
    assert any("not have its ids" in text or "answered with 404" in text for text in found)


async def silence(proxy: Proxy, seconds: float, _: RealWorld) -> None:
    """Drop everything for a while; what was under way never arrives."""
    proxy.silent = True
    await anyio.sleep(seconds)
    proxy.cut()
    proxy.silent = False


@asked("network")
async def test_partitions_from_clients_and_from_the_engine(tmp_path: Path) -> None:
    address = f"sqlite:{tmp_path / 'sessions.db'}"
    async with real_world("--store", address) as world:
        here, there = partial(silence, world.gateways[0].proxy, 1.0), partial(silence, world.engine, 1.0)
        await check(world, address, here, there, RealWorld.killed, here, there)


@asked("network")
@needs_redis
async def test_partitions_from_redis(redis: Redis) -> None:
    """The first is shorter than the store waits for an answer, the second is longer."""
    proxy = Proxy(target=redis.port)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(proxy.listening())
        address = f"redis://127.0.0.1:{proxy.port}/0"
        world = await stack.enter_async_context(real_world("--store", address))
        blows = [partial(silence, proxy, seconds) for seconds in (1.0, 6.0)]
        await check(world, redis.url, *blows, RealWorld.killed)


@asked("clock")
async def test_jumps_of_the_clock(tmp_path: Path) -> None:
    """An hour forward, eleven hours back, twelve forward: each less than sessions are kept."""
    clock = tmp_path / "clock"
    address = f"sqlite:{tmp_path / 'sessions.db'}"

    async def jump(seconds: float, _: RealWorld) -> None:
        clock.with_name("new").write_text(str(seconds))
        clock.with_name("new").replace(clock)

    async with real_world("--store", address, before=JUMPING.format(path=str(clock))) as world:
        jumps = [partial(jump, seconds) for seconds in (3_600, -36_000, 7_200)]
        await check(world, address, jumps[0], jumps[1], RealWorld.killed, jumps[2], RealWorld.killed)
