"""What is kept of large results: bounded in bytes, for each principal, and in time."""

import gc
import os
import stat
import tempfile
import threading
from array import array
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest

from gateway.config import LimitsConfig
from gateway.context.large_result_store import ResultStore, SpilledIds, _Shelf
from gateway.context.memory import KeptResult
from gateway.observe.metrics import Metrics

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def store(most: int, folder: Path | None = None, clock: Any = None, **limits: Any) -> ResultStore:
    return ResultStore(LimitsConfig(kept_result_bytes=most, **limits), Metrics(), folder, clock or Clock())


def result(owner: str = "a") -> KeptResult:
    return KeptResult("r_222222", owner, "up__say", "sha256:0", 10, (), b"", "")


async def kept(where: ResultStore, count: int, tokens: int = 10, owner: str = "a") -> list[KeptResult]:
    found = [result(owner) for _ in range(count)]
    for n, each in enumerate(found):
        assert where.has_room(4 * tokens)
        await where.keep(each, array("I", [n]) * tokens)
    return found


async def contents(where: ResultStore, results: list[KeptResult]) -> list[int | None]:
    found = [await where.ids_of(each) for each in results]
    return [None if ids is None else ids[0] for ids in found]


async def test_least_recently_used_result_is_dropped_first():
    where = store(160)
    results = await kept(where, 4)
    await where.ids_of(results[0])
    results += await kept(where, 1)

    assert await contents(where, results) == [0, None, 2, 3, 0]
    assert where.size == 160


async def test_thousand_results_of_200_000_tokens_take_no_more_than_allowed():
    where = store(16 * 1024 * 1024, principal_share=0.5)
    results = await kept(where, 1000, 200_000)

    held = [each.content for each in results if each.content is not None]
    assert where.size <= 16 * 1024 * 1024
    assert sum(len(each) * each.itemsize for each in held if isinstance(each, array)) == where.size
    assert len(held) == 16 * 1024 * 1024 // 800_000


async def test_principal_has_no_more_than_its_share_once_there_are_others():
    where = store(400, principal_share=0.25)
    alone = await kept(where, 8)
    other = await kept(where, 2, owner="b")
    more = await kept(where, 1)

    assert await contents(where, [*alone, *more]) == [None] * 7 + [7, 0]
    assert await contents(where, other) == [0, 1]


async def test_result_larger_than_a_share_is_not_kept():
    where = store(400, principal_share=0.25)
    assert where.has_room(100)
    assert not where.has_room(101)
    assert not where.has_room(0)
    assert not store(0).has_room(1)


async def test_result_goes_with_the_last_conversation_that_knows_it():
    where = store(4000)
    results = await kept(where, 3)
    assert where.size == 120
    del results
    gc.collect()
    assert where.size == 0


async def test_result_that_nobody_reads_is_dropped_after_a_time():
    clock = Clock()
    where = store(4000, clock=clock, kept_result_seconds=60)
    results = await kept(where, 2)
    clock.now = 50
    await where.ids_of(results[1])
    clock.now = 100

    assert await contents(where, results) == [None, 1]
    assert where.size == 40


async def test_result_that_is_kept_again_counts_once():
    where = store(400)
    (one,) = await kept(where, 1)
    await where.keep(one, array("I", [7]) * 10)
    assert where.size == 40
    assert await contents(where, [one]) == [7]


async def test_result_that_is_moved_to_a_file_twice_counts_once():
    shelf, one = _Shelf(400, 1.0), result()
    shelf.add(one, 40, 0)
    shelf.add(one, 60, 0)
    assert shelf.size == 60
    shelf.remove(one)
    assert shelf.size == 0


async def test_what_memory_has_no_room_for_is_read_back_from_a_file(tmp_path):
    where = store(160, tmp_path)
    results = await kept(where, 9)

    assert await contents(where, results) == [*range(9)]
    assert where.size == 160
    assert isinstance(results[0].content, SpilledIds)
    # No name is left by which anybody could open it.
    assert list(tmp_path.iterdir()) == []


async def test_file_is_the_gateways_alone_and_closed_with_its_result(tmp_path):
    ids = SpilledIds(array("I", [1, 2, 3]), tmp_path)
    descriptor = ids._descriptor
    assert stat.S_IMODE(os.fstat(descriptor).st_mode) == 0o600
    assert ids.read() == array("I", [1, 2, 3])
    del ids
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


async def test_files_are_bounded_in_bytes_and_in_number(tmp_path):
    where = store(400, tmp_path)
    results = await kept(where, 300)
    in_files = [each for each in results if isinstance(each.content, SpilledIds)]
    assert len(in_files) == 8 * 400 // 40

    where = store(400_000, tmp_path)
    results = await kept(where, 11_000)
    in_files = [each for each in results if isinstance(each.content, SpilledIds)]
    assert len(in_files) == 256


async def test_file_that_cannot_be_made_drops_the_result(tmp_path):
    where = store(160, tmp_path / "missing")
    results = await kept(where, 5)
    assert await contents(where, results) == [None, 1, 2, 3, 4]


async def test_file_that_was_cut_is_no_longer_kept(tmp_path):
    where = store(160, tmp_path)
    results = await kept(where, 5)
    assert isinstance(results[0].content, SpilledIds)
    os.ftruncate(results[0].content._descriptor, 8)
    assert await contents(where, results[:1]) == [None]


async def test_cancelled_move_leaves_nothing_behind(tmp_path):
    where = store(160, tmp_path)
    results = await kept(where, 4)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await where.keep(result(), array("I", [9]) * 10)
    assert results[0].content is None
    assert where.size <= 160


async def test_making_room_does_not_look_through_what_others_keep():
    compared = 0

    class Owner(str):
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return super().__eq__(other)

    where = store(16_000, principal_share=0.5)
    ann, bob = Owner("ann"), Owner("bob")
    others = await kept(where, 200, owner=ann)
    mine = await kept(where, 200, owner=bob)
    large = await kept(where, 1, 2000, owner=bob)

    assert compared < 1000
    assert [each.content is None for each in mine] == [True] * 200
    assert all(each.content is not None for each in [*others, *large])


async def test_what_is_kept_beside_the_ids_takes_room_in_memory_and_in_files(tmp_path):
    where = store(160, tmp_path)
    results = [KeptResult("r", "a", "t", "m", 1, (("leaf", 1),) * n, b"", "") for n in (0, 1, 1)]
    for each in results[:2]:
        await where.keep(each, array("I", [1]))
    assert where.size == 4 + 4 + 96

    # In files 8 * 160 bytes have room: twelve results of 4 bytes and 96 beside them.
    others = [KeptResult("r", "a", "t", "m", 1, (("leaf", 1),), b"", "") for _ in range(20)]
    for each in others:
        await where.keep(each, array("I", [1]))
    in_files = [each for each in (*results[:2], *others) if isinstance(each.content, SpilledIds)]
    assert in_files == others[7:19]


@pytest.mark.parametrize(("seconds", "left"), [(60, 0), (60.5, None)])
@pytest.mark.parametrize("most", [400, 40])
async def test_result_is_dropped_once_its_time_without_use_is_over(tmp_path, most, seconds, left):
    clock = Clock()
    where = store(most, tmp_path, clock, kept_result_seconds=60, principal_share=1.0)
    results = await kept(where, 2)
    clock.now = seconds

    assert (await contents(where, results))[0] == left


async def test_reading_a_result_in_a_file_counts_as_use(tmp_path):
    clock = Clock()
    where = store(40, tmp_path, clock, kept_result_seconds=60, principal_share=1.0)
    results = await kept(where, 3)
    clock.now = 50
    assert await contents(where, results[:1]) == [0]
    clock.now = 100

    assert await contents(where, results) == [0, None, None]


async def test_files_make_room_for_what_was_read_last(tmp_path):
    where = store(40, tmp_path, principal_share=1.0)
    results = await kept(where, 9)
    assert await contents(where, results[:1]) == [0]
    results += await kept(where, 1)

    assert await contents(where, results) == [0, None, *range(2, 9), 0]


async def test_principal_that_has_the_most_makes_room_for_all():
    where = store(400, principal_share=1.0)
    (theirs,) = await kept(where, 1, owner="b")
    mine = await kept(where, 9)
    assert where.size == 400
    (more,) = await kept(where, 1, owner="b")

    assert await contents(where, [theirs, more, *mine]) == [0, 0, None, *range(1, 9)]


async def test_principal_may_fill_its_share_to_the_last_byte():
    where = store(400, principal_share=0.25)
    (theirs,) = await kept(where, 1, 10, owner="b")
    mine = await kept(where, 5, 5)

    assert await contents(where, [theirs, *mine]) == [0, *range(5)]
    await kept(where, 1, 1)
    assert await contents(where, [theirs, *mine]) == [0, None, *range(1, 5)]


async def test_share_is_bounded_only_beside_others_that_still_keep_something():
    where = store(400, principal_share=0.25)
    theirs = await kept(where, 1, owner="b")
    theirs.clear()
    gc.collect()

    assert None not in await contents(where, await kept(where, 10))


async def test_bytes_are_kept_like_ids(tmp_path):
    where = store(16, tmp_path)
    results = [result() for _ in range(2)]
    for each in results:
        await where.keep(each, array("B", b"\x00\xff" * 8))

    assert isinstance(results[0].content, SpilledIds)
    assert await where.ids_of(results[0]) == array("B", b"\x00\xff" * 8)


async def test_file_is_read_to_its_end_in_as_many_reads_as_that_takes(tmp_path, monkeypatch):
    ids = SpilledIds(array("I", range(10)), tmp_path)
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda file, most, place: read(file, min(most, 8), place))

    assert ids.read() == array("I", range(10))


async def test_file_is_written_to_its_end_in_as_many_writes_as_that_takes(tmp_path, monkeypatch):
    make = tempfile.TemporaryFile

    class Slow:
        """Takes a few bytes at a time, as a full disk does."""

        def __init__(self, **options: Any) -> None:
            self._file = make(**options)

        def __enter__(self) -> "Slow":
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, data: memoryview) -> int:
            return self._file.write(data[:7])

        def fileno(self) -> int:
            return self._file.fileno()

    monkeypatch.setattr(tempfile, "TemporaryFile", Slow)

    assert SpilledIds(array("I", range(10)), tmp_path).read() == array("I", range(10))


async def test_result_that_is_kept_anew_while_it_is_moved_stays_in_memory(tmp_path, monkeypatch):
    where = store(160, tmp_path)
    results = await kept(where, 4)
    moving, go_on, make = anyio.Event(), threading.Event(), tempfile.TemporaryFile

    def waiting(**options: Any) -> Any:
        anyio.from_thread.run_sync(moving.set)
        go_on.wait()
        return make(**options)

    monkeypatch.setattr(tempfile, "TemporaryFile", waiting)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kept, where, 1)
        await moving.wait()
        monkeypatch.setattr(tempfile, "TemporaryFile", make)
        tasks.start_soon(where.keep, results[0], array("I", [7]) * 10)
        while results[0].content != array("I", [7]) * 10:
            await anyio.lowlevel.checkpoint()
        go_on.set()

    assert isinstance(results[0].content, array)
    assert await contents(where, results) == [7, 1, 2, 3]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("missing", "a kept result can't be moved to a file and is dropped"),
        ("cut", "the file of a kept result can't be read"),
    ],
)
async def test_log_says_why_a_result_is_lost(tmp_path, caplog, spoil, said):
    where = store(160, tmp_path / "missing" if spoil == "missing" else tmp_path)
    results = await kept(where, 5)
    if spoil == "cut":
        assert isinstance(results[0].content, SpilledIds)
        os.ftruncate(results[0].content._descriptor, 8)
    await where.ids_of(results[0])

    assert [said in each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [True]


async def test_metrics_count_what_is_kept():
    metrics = Metrics()
    where = ResultStore(LimitsConfig(kept_result_bytes=160), metrics, clock=Clock())
    results = await kept(where, 5)

    assert len(results) == 5
    page = metrics.render().decode()
    assert "codec_results_kept_total 5.0" in page
    assert "codec_kept_result_bytes 160.0" in page
