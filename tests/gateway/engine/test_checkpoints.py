"""Where a cache can be cut: the model of it, and the probe that finds it out, also where a restore is broken."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.interface import Filled, Moved, Rewind, shared_prefix
from gateway.engine.slots.engine_slots import find_rewind
from gateway.engine.slots.slot import after_prompt, reused
from gateway.engine.slots.slot_directory import slot_directory
from gateway.errors import EngineRefused

TOKENS = [11, 12, 13, 14, 15]
ids = st.lists(st.integers(0, 3), max_size=40)
places = st.none() | st.sets(st.integers(1, 40), max_size=4).map(lambda each: tuple(sorted(each)))


@given(ids, places, ids)
def test_what_is_reused_is_a_common_beginning_that_the_cache_can_go_back_to(held, checkpoints, prompt):
    found = reused(held, checkpoints, prompt)
    assert held[:found] == prompt[:found]
    shared = shared_prefix(held, prompt)
    if checkpoints is None or shared == len(held):
        assert found == shared
    else:
        assert found in {0, *checkpoints}
        assert not any(found < place <= shared for place in checkpoints)


@given(places, st.integers(1, 5000), st.data())
def test_a_prompt_leaves_its_own_checkpoints_and_none_behind_where_it_went_back(checkpoints, prompt, data):
    cached = data.draw(st.none() | st.integers(0, prompt))
    left = after_prompt(checkpoints, prompt, cached)
    if checkpoints is None:
        assert left is None
        return
    assert left is not None
    assert list(left) == sorted(set(left))
    assert len(left) <= 2
    assert all(0 < place <= prompt for place in left)
    if cached is not None:
        assert all(place <= cached or place in {prompt - 516, prompt - 4} for place in left)
        # A server without a checkpoint near the end would process the whole prompt again.
        assert cached >= prompt - 4 or prompt - 4 in left or prompt <= 4


@dataclass
class ProbedEngine:
    """One slot whose cache is of a kind, and whose files may lose something."""

    path: Path
    rewind: Rewind
    loses: str = ""
    held: list[int] = field(default_factory=list[int])
    checkpoints: set[int] = field(default_factory=set[int])
    busy: bool = False

    async def shows_slots(self) -> bool:
        return True

    async def is_at_rest(self, slot: int) -> bool:
        return not self.busy

    async def fill_slot(self, slot: int, ids: Sequence[int]) -> Filled:
        shared = shared_prefix(self.held, ids)
        if self.rewind == "window" or (self.rewind == "checkpoints" and shared < len(self.held)):
            shared = max((place for place in self.checkpoints if place <= shared), default=0)
        shared = min(shared, len(ids) - 1)
        self.checkpoints = {place for place in self.checkpoints if place <= shared} | {shared, len(ids) - 4} - {0}
        self.held = list(ids)
        return Filled(len(ids) - shared, 0.001)

    async def save_slot(self, slot: int, name: str) -> Moved:
        if self.loses == "save":
            raise EngineRefused("the engine answered 501: no slot files", 501)
        text = json.dumps([self.held, sorted(self.checkpoints)])
        (self.path / name).write_text(text)
        return Moved(len(self.held), len(text), 0.001)

    async def restore_slot(self, slot: int, name: str) -> Moved:
        text = (self.path / name).read_text()
        self.held, checkpoints = json.loads(text)
        self.checkpoints = set() if self.loses == "checkpoints" else set(checkpoints)
        if self.loses == "ids":
            self.held = self.held[:3]
        return Moved(len(self.held), len(text) - (self.loses == "bytes"), 0.001)

    async def erase_slot(self, slot: int) -> None:
        self.held, self.checkpoints = [], set()


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory that is nobody else's."""
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.mark.anyio
@pytest.mark.parametrize("rewind", ["anywhere", "window", "checkpoints"])
async def test_probe_tells_the_kind_and_leaves_nothing(files: Path, rewind: Rewind) -> None:
    engine = ProbedEngine(files, rewind)
    with slot_directory(str(files), 2**30) as directory:
        found = await find_rewind(engine, range(1), TOKENS, directory)
        assert (found.rewind, found.fault) == (rewind, None)
        assert await find_rewind(engine, range(1), TOKENS, None) == found
    assert engine.held == []
    assert names(files) == []


@pytest.mark.anyio
@pytest.mark.parametrize("rewind", ["anywhere", "window", "checkpoints"])
@pytest.mark.parametrize("loses", ["save", "checkpoints", "ids", "bytes"])
async def test_engine_whose_files_lose_something_is_recognised(files: Path, rewind: Rewind, loses: str) -> None:
    with slot_directory(str(files), 2**30) as directory:
        found = await find_rewind(ProbedEngine(files, rewind, loses), range(1), TOKENS, directory)
    assert found.rewind == rewind
    # A cache that can be cut anywhere has no checkpoints to lose.
    assert (found.fault is None) is (rewind == "anywhere" and loses == "checkpoints")


@pytest.mark.anyio
async def test_engine_without_a_slot_at_rest_is_not_probed_and_keeps_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.engine.slots.engine_slots._PAUSE", 0.0)
    engine = ProbedEngine(tmp_path, "window", busy=True)
    found = await find_rewind(engine, range(1), TOKENS, None)
    assert found.rewind == "anywhere"
    assert found.fault is not None
    assert engine.held == []
