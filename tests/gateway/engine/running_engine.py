"""A real embedded engine with slot files, asked as the agent asks it."""

from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import Generated, GenerateRequest, GenerationEnd, Sampling, Timings
from gateway.engine.slots.slot import NO_HINTS, Hints
from gateway.engine.start.maps import MapSet
from gateway.engine.start.readiness import EngineRoute
from gateway.observe.metrics import Metrics

LETTERS = "root ::= [a-zA-Z ,.0-9]+"
"""Neither an end of turn nor a character of several tokens."""


OPENED: defaultdict[object, MapSet] = defaultdict(MapSet)
"""The map of each model so far, whose file it remembers: to open one takes as long as to start its engine."""


def ignore(up: bool, reason: str) -> None:
    pass


@dataclass(frozen=True)
class StateFile:
    """The parts of a slot file, in bytes."""

    state: int
    appendix: int
    checkpoints: int

    @classmethod
    def read(cls, path: Path) -> "StateFile":
        state, _, appendix = path.read_bytes().rpartition(b"SCKP")
        return cls(len(state), len(appendix), int.from_bytes(appendix[4:8], "little"))

    @property
    def size(self) -> int:
        return self.state + self.appendix


@dataclass(frozen=True)
class Running:
    """A gateway's engine, as its agent uses it."""

    route: EngineRoute
    metrics: Metrics

    async def ask(
        self, prompt: list[int], owner: str = "ada", most: int = 8, *, hints: Hints = NO_HINTS, reuse: bool = True
    ) -> tuple[list[int], Timings]:
        ready = self.route.ready()
        ids: list[int] = []
        end: GenerationEnd | None = None
        async with ready.slots.take(prompt, owner, hints=hints) as place:
            request = GenerateRequest(
                prompt, place.pinned, most, Sampling(0, seed=1), LETTERS, reuse=reuse and place.reuse
            )
            async with ready.engine.generate(request) as events:
                async for event in events:
                    if isinstance(event, Generated):
                        ids += event.ids
                    else:
                        end = event
            assert end is not None
            place.leaves([*prompt, *ids], len(prompt), end, answered=True)
        return ids, end.timings

    def files(self) -> list[StateFile]:
        """The files that it keeps now."""
        files = self.route.slot_files
        assert files is not None
        return [StateFile.read(path) for path in files.directory.path.iterdir()]

    def refused(self, reason: str) -> float:
        return self.count(f'codec_slot_files_refused_total{{reason="{reason}"}}')

    def count(self, name: str) -> float:
        (line,) = [line for line in self.metrics.render().decode().splitlines() if line.startswith(name + " ")]
        return float(line.rpartition(" ")[2])


@asynccontextmanager
async def running(slot_files: str | Path, *, slots: int = 1, **settings: object) -> AsyncGenerator[Running]:
    engine = EngineConfig(
        **{
            "kind": "embedded",
            "context": 512 * slots,
            "slots": slots,
            "threads": 1,
            "slot_files_bytes": 2**30,
            **settings,
        },
        slot_files=str(slot_files),
    )
    metrics = Metrics()
    config = GatewayConfig(engine=engine, tokens=TokensConfig())
    opened = OPENED[engine.model]
    route = EngineRoute(config, ignore, lambda: metrics.slot_files, known=opened)
    opened.update(route.maps)
    async with route.running():
        await adopted(route)
        yield Running(route, metrics)


async def adopted(route: EngineRoute) -> None:
    swapper = route.ready().slots.swapper
    assert swapper is not None
    await swapper.adopted.wait()
