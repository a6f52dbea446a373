"""The real embedded engine with slot files: what is restored is what was there, and what does not fit is not used."""

import json
import os
import resource
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.from_thread
import pytest

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.slots.engine_speed import Rates
from gateway.engine.start.readiness import EngineRoute
from gateway.errors import ConfigError, EngineUnavailable
from gateway.observe.metrics import Metrics
from leaf_sdk.vocab import TokenMap
from tests.gateway.engine.running_engine import Running, adopted, ignore, running
from tests.gateway.engine.spoilt_files import SPOILT, spoil_folder

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

BYTES = 150
"""More than a slot file of the model of one layer takes for each id."""

Run = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def quick(one_layer: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs an engine whose model has one layer, and which always moves slots: processing their ids takes no longer."""
    monkeypatch.setattr(Rates, "to_move", lambda rates, ids: 0.0)
    return partial(running, model=one_layer)


@pytest.fixture
def other_weights(tmp_path: Path, one_layer: Path) -> Path:
    """Of the same shape."""
    path = tmp_path / "other.gguf"
    weights = bytearray(one_layer.read_bytes())
    weights[-1] ^= 1
    path.write_bytes(weights)
    return path


@pytest.fixture
def talks(model_map: TokenMap) -> list[list[int]]:
    texts = (
        "An old fisherman went out before dawn, and",
        "The largest cities of the world are",
        "Recipes for cakes with",
    )
    return [model_map.encode(" ".join([text] * 6)) for text in texts]


@pytest.fixture
def trained() -> Run:
    """Runs an engine of the packaged model, which moves a slot where that is quicker than to process its ids again."""
    return running


@pytest.mark.parametrize(("model", "slots"), [("trained", 1), ("quick", 2)])
async def test_conversation_that_left_its_slot_is_back_with_all_its_ids_and_goes_on_as_it_would_have(
    talks: list[list[int]], model: str, slots: int, request: pytest.FixtureRequest
) -> None:
    one, *others = talks
    run: Run = request.getfixturevalue(model)
    async with run("auto", slots=slots) as at:
        first, _ = await at.ask(one)
        alone, _ = await at.ask([*one, *first, 284])
        for other in others:
            await at.ask(other)
        again, timings = await at.ask([*one, *first, 284])
        restored = at.count("codec_slot_file_restored_ids_total")

    assert again == alone
    assert timings.cache_n >= len(one) + len(first) - 1
    assert restored >= len(one)


async def test_conversations_survive_a_restart_of_the_engine(talks: list[list[int]], quick: Run) -> None:
    one, other, _ = talks
    async with quick("auto") as at:
        first, _ = await at.ask(one)
        await at.ask(other)
        assert at.route.child_pid is not None
        os.kill(at.route.child_pid, 9)
        await until_another(at.route)
        _, timings = await at.ask([*one, *first])

    assert timings.cache_n == len(one) + len(first) - 1


async def until_another(route: EngineRoute) -> None:
    before = route.ready().slots
    with anyio.fail_after(60):
        while True:
            try:
                if route.ready().slots is not before:
                    break
            except EngineUnavailable:
                pass
            await anyio.sleep(0.05)
    await adopted(route)


async def test_conversations_survive_a_restart_of_the_gateway_in_a_directory_that_is_kept(
    tmp_path: Path, talks: list[list[int]], quick: Run
) -> None:
    one, other, _ = talks
    async with quick(tmp_path / "kept") as at:
        first, _ = await at.ask(one)
        alone, _ = await at.ask([*one, *first, 284])
        await at.ask(other)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "kept").iterdir()}
    async with quick(tmp_path / "kept") as at:
        again, timings = await at.ask([*one, *first, 284])
        # What was in the slot at the end has been saved as well.
        _, others = await at.ask(other)

    assert modes == {0o600}
    assert again == alone
    assert timings.cache_n >= len(one) + len(first) - 1
    assert others.cache_n == len(other) - 1


@asynccontextmanager
async def somebody_elses(model: Path, slot_files: Path) -> AsyncGenerator[str]:
    """A server at a URL."""
    place = {"model": str(model), "host": "127.0.0.1", "port": 0, "slot_files": str(slot_files)}
    settings = json.dumps({**place, "context": 512, "slots": 1, "threads": 1, "chosen": True})
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", settings]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdout is not None
        yield (await process.stdout.receive()).decode().strip()
        process.kill()


async def test_slots_of_an_exclusive_server_are_kept_in_the_directory_that_it_shares(
    tmp_path: Path, talks: list[list[int]], quick: Run, one_layer: Path
) -> None:
    one, other, _ = talks
    kept = tmp_path / "kept"
    url = {"kind": "url", "exclusive": True}
    async with somebody_elses(one_layer, kept) as at_url:
        async with quick(kept, **url, url=at_url) as at:
            first, _ = await at.ask(one)
            await at.ask(other)
            _, back = await at.ask([*one, *first])
            await at.ask(other)
        async with quick(kept, **url, url=at_url) as at:
            _, later = await at.ask([*one, *first])
    async with somebody_elses(one_layer, kept) as at_url, quick(kept, **url, url=at_url) as at:
        _, elsewhere = await at.ask([*one, *first])

    assert back.cache_n == later.cache_n == len(one) + len(first) - 1
    assert elsewhere.cache_n == 0


async def test_directory_of_the_process_goes_with_it_and_nobody_else_may_enter(quick: Run) -> None:
    async with quick("auto") as at:
        files = at.route.slot_files
        assert files is not None
        assert files.directory.path.stat().st_mode & 0o777 == 0o700
        path = files.directory.path
    assert not path.exists()


async def test_file_that_is_not_what_was_written_costs_one_recomputation(talks: list[list[int]], quick: Run) -> None:
    one, other, _ = talks
    async with quick("auto") as at:
        first, _ = await at.ask(one)
        alone, _ = await at.ask([*one, *first])
        files = at.route.slot_files
        assert files is not None
        for spoil, reason in SPOILT.values():
            # A conversation that shares nothing with those before, so that one file alone holds this one's ids.
            await at.ask(other)
            (file,) = [each for each in files.paging.kept.files if each.ids[: len(one)] == one]
            refused = at.refused(reason)
            spoil(files.directory.path / file.name)
            again, timings = await at.ask([*one, *first])

            assert again == alone
            assert timings.cache_n == 0
            assert at.refused(reason) == refused + 1


async def test_file_of_another_user_is_not_used(
    talks: list[list[int]], monkeypatch: pytest.MonkeyPatch, quick: Run
) -> None:
    one, other, _ = talks
    async with quick("auto") as at:
        await at.ask(one)
        await at.ask(other)
        # As the file would look if it were not ours.
        monkeypatch.setattr("gateway.engine.slots.slot_directory.os.geteuid", lambda: 12345)
        _, timings = await at.ask(one)
        assert (timings.cache_n, at.refused("owner")) == (0, 1)


async def test_full_disk_costs_a_recomputation_and_leaves_nothing_behind(talks: list[list[int]], quick: Run) -> None:
    one, other, _ = talks
    async with quick("auto") as at:
        await at.ask(one)
        assert at.route.child_pid is not None
        resource.prlimit(at.route.child_pid, resource.RLIMIT_FSIZE, (1000, 1000))
        await at.ask(other)
        files = at.route.slot_files
        assert files is not None
        assert list(files.directory.path.iterdir()) == []
        _, timings = await at.ask(one)
        assert (timings.cache_n, at.refused("save")) == (0, 1)


async def test_no_more_bytes_are_kept_than_may_be(talks: list[list[int]], quick: Run) -> None:
    async with quick("auto", slot_files_bytes=2 * BYTES * (len(talks[0]) + 8)) as at:
        for _ in range(2):
            for talk in talks:
                await at.ask(talk)
        files = at.route.slot_files
        assert files is not None
        held = sum(path.stat().st_size for path in files.directory.path.iterdir())
        assert 0 < held == files.paging.kept.size <= files.directory.limit
        assert at.count("codec_slot_file_bytes") == held


async def test_files_of_other_weights_of_the_same_shape_are_not_used(
    tmp_path: Path, other_weights: Path, talks: list[list[int]], quick: Run, one_layer: Path
) -> None:
    """The server itself would restore them, and answer 200."""
    one, two, _ = talks
    counts: list[tuple[int, float]] = []
    for model in (one_layer, one_layer, other_weights):
        async with quick(tmp_path / "kept", model=model) as at:
            for prompt in (one, two):
                _, timings = await at.ask(prompt)
                counts.append((timings.cache_n, at.refused("note")))

    found = [cached for cached, _ in counts]
    assert found[0] == 0
    assert found[2] == len(one) - 1
    assert found[4] == found[5] == 0
    assert counts[-1][1] > 0


async def test_isolated_principals_have_files_of_their_own(talks: list[list[int]], quick: Run) -> None:
    one = talks[0]
    async with quick("auto", isolate=True) as at:
        await at.ask(one, "ada")
        _, eves = await at.ask(one, "eve")
        _, again = await at.ask(one, "ada")

    assert eves.cache_n == 0
    assert again.cache_n == len(one) - 1


@pytest.mark.parametrize("fault", ["link", "mode", "file", "taken"])
async def test_directory_that_can_not_be_ours_alone_is_refused_at_the_start(
    tmp_path: Path, fault: str, quick: Run
) -> None:
    path = tmp_path / "kept"
    spoil_folder(path, fault)
    if fault == "taken":
        async with quick(path):
            with pytest.raises(ConfigError, match="another gateway"):
                async with quick(path):
                    pass
        return
    with pytest.raises(ConfigError, match=r"engine\.slot_files '.*kept'"):
        async with quick(path):
            pass


async def test_model_that_can_not_be_read_again_leaves_the_engine_in_use_without_files(
    talks: list[list[int]], monkeypatch: pytest.MonkeyPatch, one_layer: Path
) -> None:
    tried = anyio.Event()

    def unreadable(model: Path) -> str:
        anyio.from_thread.run_sync(tried.set)
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("gateway.engine.slots.slot_save_restore.model_digest", unreadable)
    engine = EngineConfig(kind="embedded", model=one_layer, context=512, slots=1, threads=1, slot_files_bytes=2**30)
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig()), ignore)
    async with route.running():
        await tried.wait()
        at = Running(route, Metrics())
        for talk in (talks[0], talks[1], talks[0]):
            _, timings = await at.ask(talk)
    assert timings.cache_n == 0


async def test_without_slot_files_slots_go_to_the_host_cache(talks: list[list[int]], one_layer: Path) -> None:
    engine = EngineConfig(
        kind="embedded", model=one_layer, context=512, slots=1, threads=1, slot_files="off", cache_mib=64
    )
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig()), ignore)
    async with route.running():
        at = Running(route, Metrics())
        await at.ask(talks[0])
        await at.ask(talks[1])
        _, timings = await at.ask(talks[0])
        assert route.slot_files is None
    assert timings.cache_n == len(talks[0]) - 1
