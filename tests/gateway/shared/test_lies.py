"""A store that answers what no script gives: nobody is told, and nothing that it says is taken for ours."""

from typing import Any

import anyio
import pytest

from gateway.observe.metrics import Metrics
from gateway.serve.mcp.http_sessions import LeftEvents
from gateway.shared import StoreBounds, StoreRecord
from gateway.shared.scripts import ABSENT, PRESENT
from tests.cases import each_of
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import Direct, shared_in_memory

pytestmark = pytest.mark.anyio

BOUNDS = StoreBounds(10**7, 10**7, 60.0)
LIES: list[Any] = [
    *(-1, 0, 1, 10**30, b"", b"OK", b"nan", b"inf", b"-1e300", b"\xff\xfe", "text", 1.5, True, {}, {b"a": b"b"}),
    *([], [b"x"], [b"x", b"y"], [None, None], [b"x", 1], [[b"x", b"y"]], [b"x", b"\x02" + bytes(60)] * 3, [[]] * 1000),
    *(ValueError("what"), RecursionError(), MemoryError(), UnicodeDecodeError("utf-8", b"x", 0, 1, "y"), KeyError("k")),
]


class Liar(Direct):
    """A store that says of every script the same, and that replicas are there."""

    def __init__(self, lie: Any) -> None:
        super().__init__(Memory())
        self._lie = lie

    async def execute_command(self, *args: bytes | str | float) -> Any:
        if args[0] == "PING" or args[1] in (PRESENT.digest, PRESENT.text, ABSENT.digest, ABSENT.text):
            return await super().execute_command(*args)
        if isinstance(self._lie, Exception):
            raise self._lie
        return self._lie


@each_of("lie", LIES)
async def test_what_no_script_gives_is_no_answer(lie: Any) -> None:
    metrics = Metrics()
    with anyio.fail_after(30):
        async with shared_in_memory(Liar(lie), metrics=metrics) as shared:
            found = [
                await shared.find("memory", "ann", "1", BOUNDS),
                await shared.find_alias("response", "ann", ["a", "b"], BOUNDS, depth=1),
                await LeftEvents(shared, 1.0, 60.0).after("ann", "session", 1, 0),
            ]
            waits = [await shared.take("rate", "ann", 2, 0.1), await shared.wait("tries", "ann", 2, 0.1)]
            before = StoreRecord("1", None, b"one")
            await shared.keep("memory", "ann", StoreRecord("2", "1", b"two"), BOUNDS, lambda: [before])
            await shared.keep_last("event", "ann", before, BOUNDS)
            dropped = await shared.drop("response", "ann", "1")

    assert found == [[], [], []]
    assert all(wait is None or 0 <= wait < float("inf") for wait in waits)
    assert dropped in (None, True, False)


async def test_wait_that_no_bucket_can_have_is_no_answer() -> None:
    for said, taken in ((b"10", 10.0), (b"10.5", None), (b"1e30", None)):
        async with shared_in_memory(Liar(said)) as shared:
            assert await shared.take("rate", "ann", 5, 0.1) == taken
