"""The scripts of the store, run in Lua, held against what each replica does by itself."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.serve.auth.rate_limiter import Bucket
from gateway.shared.scripts import ABSENT, BUCKET, DROP, FIND, KEEP, PRESENT, Script
from tests.standins.redis_in_memory import Memory

START = 1_700_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def test_script_is_known_by_the_digest_that_redis_gives_it() -> None:
    memory = Memory(Clock())
    script = Script("return 7")

    assert run(memory, script, []) == 7
    assert memory.command(b"EVALSHA", script.digest.encode(), b"0") == 7
    assert not script.large


def test_only_scripts_that_carry_records_may_be_large() -> None:
    assert [script for script in (BUCKET, PRESENT, ABSENT, DROP, FIND, KEEP) if script.large] == [FIND, KEEP]


def run(memory: Memory, script: Script, keys: list[str], *args: object) -> object:
    texts = [str(each).encode() for each in (script.text, len(keys), *keys, *args)]
    return memory.command(b"EVAL", *texts)


def wait(memory: Memory, size: float, rate: float, take: int = 1) -> float:
    said = run(memory, BUCKET, ["bucket"], size, rate, take)
    assert isinstance(said, bytes)
    return float(said)


@given(
    # Redis tells microseconds.
    st.lists(st.integers(0, 30_000_000), min_size=1, max_size=40),
    st.integers(1, 30),
    st.sampled_from([0.05, 0.5, 3.0, 40.0]),
)
def test_shared_bucket_gives_what_a_bucket_of_one_replica_gives(pauses: list[int], size: int, rate: float) -> None:
    clock = Clock()
    memory, bucket = Memory(clock), Bucket(size, clock.now)
    for pause in pauses:
        clock.now += pause / 1_000_000
        assert abs(wait(memory, size, rate) - bucket.take(size, rate, clock.now)) < 0.001 / rate


def test_look_takes_nothing() -> None:
    memory = Memory(Clock())

    assert [wait(memory, 1, 0.5, 0) for _ in range(3)] == [0, 0, 0]
    assert memory.values == {}
    assert wait(memory, 1, 0.5) == 0
    assert wait(memory, 1, 0.5, 0) == 2


def test_bucket_that_is_full_again_is_forgotten_and_not_before() -> None:
    clock = Clock()
    memory = Memory(clock)
    for _ in range(4):
        wait(memory, 4, 0.5)

    assert 8 <= memory.ends[b"bucket"] - clock.now <= 10


def test_clock_that_is_set_back_neither_gives_nor_takes() -> None:
    clock = Clock()
    memory = Memory(clock)
    wait(memory, 2, 1)
    clock.now -= 1000

    assert [wait(memory, 2, 1), wait(memory, 2, 1)] == [0, 1]


def test_value_that_is_no_bucket_is_a_full_one() -> None:
    memory = Memory(Clock())
    memory.command(b"HSET", b"bucket", b"left", b"words", b"at", b"")

    assert wait(memory, 2, 1) == 0


def test_replicas_are_counted_until_they_leave_or_say_nothing() -> None:
    clock = Clock()
    memory = Memory(clock)

    assert [run(memory, PRESENT, ["replicas"], name, 15) for name in ("a", "b", "b", "c")] == [1, 2, 2, 3]
    run(memory, ABSENT, ["replicas"], "c")
    clock.now += 10
    assert run(memory, PRESENT, ["replicas"], "a", 15) == 2
    clock.now += 10
    assert run(memory, PRESENT, ["replicas"], "a", 15) == 1
