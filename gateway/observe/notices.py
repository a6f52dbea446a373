"""Log lines that tell a person, once, whether a tool ships token ids; and how its last result got its ids.

Turns "this tool's block came with ids" and "this tool's block had to be tokenized" into one log line for each tool and
map, however many calls follow; the metrics count the calls. What has been said is remembered up to a bound, beyond
which nothing more is said, because tool names come from upstreams. It knows nothing of results or ids.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final, Literal

from structlog.typing import FilteringBoundLogger

ShippedKind = Literal["leaf", "shim", "rejected"]
REMEMBERED: Final = 4096
_NAME_LENGTH = 128


class TokenNotices:
    """Says each thing once for every (kind, tool, map)."""

    def __init__(self, log: FilteringBoundLogger) -> None:
        """`log` is where the lines go."""
        self._log = log
        self._said: set[tuple[str, str, str]] = set()
        self._last: dict[str, ShippedKind] = {}
        self._counts: dict[str, Counter[ShippedKind]] = {}

    def counts(self, tool: str) -> Mapping[ShippedKind, int]:
        """How many of the tool's blocks with text got their ids in each way."""
        return self._counts.get(tool[:_NAME_LENGTH]) or Counter[ShippedKind]()

    def last(self, tool: str) -> ShippedKind | None:
        """How the tool's last block with text got its ids; None: no block has needed ids yet."""
        return self._last.get(tool[:_NAME_LENGTH])

    def leaf(self, tool: str, map_id: str) -> None:
        """The tool's ids were good: nothing was tokenized here."""
        if self._is_new("leaf", tool, map_id):
            self._log.info(
                "the results of this tool come with token ids; the gateway checks and uses them",
                tool=tool,
                map=_short(map_id),
            )

    def shim(self, tool: str, map_id: str) -> None:
        """The tool sent text only: the gateway tokenizes for it."""
        if self._is_new("shim", tool, map_id):
            self._log.info(
                "the gateway tokenizes the results of this tool; a server with codec-leaf sends their token ids",
                tool=tool,
                map=_short(map_id),
            )

    def rejected(self, tool: str, map_id: str, reason: str, detail: str) -> None:
        """The tool sent ids that failed the checks: they were replaced by ids made from its text."""
        if self._is_new("rejected", tool, map_id):
            self._log.warning(
                "the token ids of this tool's result are refused; the gateway tokenizes its text instead",
                tool=tool,
                map=_short(map_id),
                reason=reason,
                detail=detail,
            )

    def _is_new(self, kind: ShippedKind, tool: str, map_id: str) -> bool:
        name = tool[:_NAME_LENGTH]
        if (counts := self._counts.get(name)) is not None:
            counts[kind] += 1
        # After the first call there is nothing more to say, and every call comes here.
        if self._last.get(tool) == kind and (kind, tool, map_id) in self._said:
            return False
        if name in self._last or len(self._last) < REMEMBERED:
            self._last[name] = kind
            if counts is None:
                self._counts[name] = Counter((kind,))
        key = (kind, name, map_id[:_NAME_LENGTH])
        if key in self._said or len(self._said) >= REMEMBERED:
            return False
        self._said.add(key)
        return True


def _short(map_id: str) -> str:
    return map_id.removeprefix("sha256:")[:12]
