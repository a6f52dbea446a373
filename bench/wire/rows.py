"""The rows of the wire's bench: which streams, lengths and rates, which variants, and what is kept of each replay.

Every scenario is replayed in every variant, round after round, so that a busy moment of the machine affects all alike.
Bytes and delays are the same in every round; CPU is not, so its samples are kept.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.record import quantile
from bench.wire.replay import POLICIES, Replay, Shape, Variant, replay
from bench.wire.streams import RECORDED, SYNTHETIC, stream
from leaf_sdk import TokenMap
from leaf_sdk.wire import Coding

BASELINE: Final = Variant("json-sse", "identity", dictionary=False, policy="at once")


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is sent, and how fast the engine makes it."""

    stream: str
    tokens: int
    rate: int
    """Tokens per second."""

    @property
    def name(self) -> str:
        """The name in the results."""
        return f"{self.stream} | {self.tokens} | {self.rate}"


def variants() -> list[Variant]:
    """Return every way to send a stream, including those that lose."""
    return [
        Variant(shape, coding, dictionary, policy)
        for shape in _SHAPES
        for coding, dictionary in _codings(shape)
        for policy in POLICIES
        if not (coding == "identity" and policy == "never")
    ]


_SHAPES: Final[tuple[Shape, ...]] = ("json-sse", "msgpack", "protobuf")


def _codings(shape: Shape) -> Iterator[tuple[Coding, bool]]:
    yield ("identity", False)
    yield ("gzip", False)
    yield ("br", False)
    yield ("zstd", False)
    if shape in ("msgpack", "protobuf"):
        yield ("zstd", True)


def scenarios() -> list[Scenario]:
    """Return all streams at one length and rate, and two of them at all lengths and rates."""
    wide = [Scenario(name, 1024, 100) for name in (*RECORDED, *SYNTHETIC)]
    rates = [Scenario(name, 1024, rate) for name in ("greedy", "prose") for rate in (20, 1000)]
    lengths = [Scenario(name, tokens, 100) for name in ("greedy", "prose") for tokens in (16, 64, 256, 4096)]
    return wide + rates + lengths


def measure(chosen: Sequence[Scenario], rounds: int, token_map: TokenMap) -> dict[str, Any]:
    """Replay every scenario in every variant, and sum the rounds up."""
    found: dict[tuple[str, str], list[Replay]] = {}
    for _ in range(rounds):
        for scenario in chosen:
            ids = stream(scenario.stream)[: scenario.tokens]
            for variant in variants():
                one = replay(ids, scenario.rate, variant, token_map)
                found.setdefault((scenario.name, variant.name), []).append(one)
    rows: dict[str, Any] = {}
    for scenario in chosen:
        baseline = found[scenario.name, BASELINE.name][0].size
        rows[scenario.name] = {
            variant.name: _row(found[scenario.name, variant.name], scenario, baseline) for variant in variants()
        }
    return rows


def _row(replays: Sequence[Replay], scenario: Scenario, baseline: int) -> dict[str, Any]:
    first = replays[0]
    delays = sorted(delay * 1e3 for delay in first.delays)
    first_ms = 1e3 / scenario.rate + first.delays[0] * 1e3
    return {
        "bytes": first.size,
        "bytes_per_token": round(first.size / len(delays), 3),
        "smaller": round(baseline / first.size, 1),
        "first_ms": round(first_ms, 1),
        "bytes_by_first_s": round(first.size * first_ms / 1e3, 1),
        "p50_ms": round(quantile(delays, 0.50), 1),
        "p99_ms": round(quantile(delays, 0.99), 1),
        **_cpu("server_us", [each.server_cpu / len(delays) * 1e6 for each in replays]),
        **_cpu("client_us", [each.client_cpu / len(delays) * 1e6 for each in replays]),
    }


def _cpu(name: str, samples: Sequence[float]) -> dict[str, Any]:
    """Return the median in microseconds per token, and the samples."""
    return {name: round(statistics.median(samples), 2), f"{name}_samples": [round(each, 2) for each in samples]}
