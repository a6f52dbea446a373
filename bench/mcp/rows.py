"""What is measured: which peers, in which topologies, asked for what. A row is one target and one ask.

Data, and the rule that makes rows from it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from bench.mcp.ids import Ids
from bench.mcp.load import Ask, Era
from bench.mcp.peers import PEERS, PLAIN, Peer

FEW_TOOLS: Final = 10
MANY_TOOLS: Final = 200
MOST: Final = 64
_OURS: Final = next(peer for peer in PEERS if peer.name == "codec-gateway")
_SECRET: Final = "bench-" + "0" * 26
_CALLS: Final = (
    *(Ask("call", size, many) for size in (100, 4096, 65_536) for many in (1, 16, MOST)),
    Ask("call", 100, 32),
    Ask("call", 16_384, 16),
)
QUICK: Final = (*(Ask("call", 100, many) for many in (1, 16, 32)), Ask("call", 16_384, 16))
"""What `--quick` asks."""
SHOWN: Final = (
    "100 B at 1",
    "100 B at 16",
    "100 B at 32",
    "100 B at 64",
    "4096 B at 16",
    "16384 B at 16",
    "65536 B at 16",
    "list of 200 at 1",
    "list of 200 at 16",
)
"""The columns of the page."""
_WHOLE: Final = ("codec-gateway", "bare relay", "direct")
"""The peers that are asked for everything."""
_LISTS: Final = tuple(Ask("list", MANY_TOOLS, many) for many in (1, 16, MOST))
_GUARDED: Final = f"""{PLAIN}
[serve]
token = "{_SECRET}"

[audit]
path = "audit.jsonl"
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One thing to measure."""

    peer: Peer
    topology: str
    era: Era
    ask: Ask

    @property
    def tools(self) -> int:
        """How many tools the server has."""
        return self.ask.size if self.ask.kind == "list" else FEW_TOOLS

    def __str__(self) -> str:
        """Return its name, as `--only` matches it."""
        return f"{self.peer.name} | {self.topology} | {self.era} | {self.ask}"


def rows(ids: Ids | None) -> Iterator[Row]:
    """Yield all rows; without `ids`, those about token ids are left out."""
    for peer in PEERS:
        lists = () if "http-none" in peer.topologies else _LISTS
        asks = (*_CALLS, *lists)
        # Peers take up to a hundred times longer: for them the rows that the page shows are enough.
        yield from _rows_of(peer, asks if peer.name in _WHOLE else tuple(ask for ask in asks if str(ask) in SHOWN))
    guarded = replace(
        _OURS,
        name="codec-gateway: token, audit log",
        settings=_GUARDED,
        topologies=("http-http", "http-stdio"),
        headers=(f"authorization: Bearer {_SECRET}",),
    )
    yield from _rows_of(guarded, tuple(ask for ask in _CALLS if ask.size in (100, 16_384)))
    if ids is not None:
        for peer in with_ids(ids):
            yield from _rows_of(peer, tuple(Ask("call", 100, many) for many in (1, 16, 32)))


def with_ids(ids: Ids) -> Iterator[Peer]:
    """Yield the same gateway with a map: its clients name it or not, and the server ships ids or not."""
    ours = replace(_OURS, topologies=("http-http",), eras=("modern",))
    for which, level, leaves in (
        ("leaf ids, trust", "trust", str(ids.leaves)),
        ("leaf ids, verify", "verify", str(ids.leaves)),
        ("shim ids", "verify", None),
    ):
        name = f"{ours.name}: {which}"
        named = replace(ours, name=name, settings=_settings(ids, level), leaves=leaves)
        yield replace(named, headers=(f"x-codec-map: {ids.map_id}",))
        yield replace(named, name=f"{name}, map not named", same_as=name)


def _settings(ids: Ids, level: str) -> str:
    return f'[engine]\nkind = "none"\n\n[tokens]\nmap = "{ids.map_path}"\nverify = "{level}"\n'


def _rows_of(peer: Peer, asks: tuple[Ask, ...]) -> Iterator[Row]:
    for topology in peer.topologies:
        for era in peer.eras:
            for ask in asks:
                yield Row(peer, topology, era, ask)
