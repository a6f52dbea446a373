"""The values that a metric's label may have: fixed words, and names up to a bound.

Turns a value into itself or into `other`. A stranger who could choose labels could use up the memory, so every value is
checked. It knows no metric.
"""

import re
from typing import Final, Literal, get_args

OTHER: Final = "other"

REASONS: Final = ("shape", "map", "range", "special", "text", OTHER)
"""Those of `leaf_sdk.leaf.verify.Reason`, and `map`: ids of a map that is not accepted."""
TOOL_OUTCOMES: Final = ("ok", "tool_error", "timeout", "unavailable", "refused", "cancelled", OTHER)
LIST_KINDS: Final = ("tools", "prompts", "resources", OTHER)
DROP_REASONS: Final = ("nobody", "slow_client", OTHER)
"""`nobody`: several clients share the session and can't be told apart. `slow_client`: the client does not read."""
ERROR_KINDS: Final = {
    -32700: "parse",
    -32600: "invalid_request",
    -32601: "method_not_found",
    -32602: "invalid_params",
    -32603: "internal",
    -32000: "server",
    -32001: "timeout",
    -32002: "not_found",
    -32020: "header_mismatch",
    -32021: "capability",
    -32022: "version",
    -32042: "elicitation",
    -32800: "cancelled",
}
"""Codes of JSON-RPC and of MCP's revisions, as words."""
BOLT_ON_FORMS: Final = ("raw", "encoded", "text", "refused", OTHER)
"""How the arguments of a call to a bolt-on were sent: as the model's own ids, as ids made here, as text, not at all."""
BOUND_KINDS: Final = (
    "session",
    "parked_call",
    "subscription",
    "watched_resource",
    "client_session",
    "queued_call",
    OTHER,
)
"""Bounded things of which each principal has a share."""
LossReason = Literal[
    "client_changed",
    "tools_changed",
    "reasoning_dropped",
    "template_rewrote",
    "slot_taken",
    "engine_rewound",
    "engine_restarted",
    "engine_moved",
    "replica_moved",
    "memory_full",
    "not_seen_before",
]
"""Why ids that the engine held were processed again."""
LOSS_REASONS: Final = (*get_args(LossReason), OTHER)
CHAT_OUTCOMES: Final = ("ok", "client_error", "engine_error", "cancelled", OTHER)
SOURCES: Final = ("leaf", "shim", "scaffold", OTHER)

MAP_ID: Final = re.compile(r"(sha256:)?[0-9a-f]{6,64}")
MAPS_BOUND: Final = 32
SERVER_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
SERVERS_BOUND: Final = 256


class BoundedLabel:
    """Values of one label: those of the right shape, the first `bound` of them; the rest are `other`."""

    def __init__(self, pattern: re.Pattern[str], bound: int) -> None:
        """Start with no values."""
        self._pattern = pattern
        self._bound = bound
        self._seen: set[str] = set()

    def admit(self, value: str) -> str:
        """The value itself, or `other` if it has another shape or is one too many."""
        if value in self._seen:
            return value
        if len(self._seen) >= self._bound or self._pattern.fullmatch(value) is None:
            return OTHER
        self._seen.add(value)
        return value


def one_of(words: tuple[str, ...], word: str) -> str:
    """The word itself, or `other` when it is none of `words`."""
    return word if word in words else OTHER
