"""What differs between the two protocol eras, as pure functions on dicts.

Handshake era (2024-11-05 to 2025-11-25): `initialize`, then bare requests. Modern era (2026-07-28): no handshake, each
request carries an envelope in its `_meta`, each result says what kind it is. Turns params and results of one era into
those of the other and touches nothing else. It knows no connection.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

_ENTRIES: Final = 256
"""Keys and items of a client's capabilities, nested ones too."""
_TEXT: Final = 16_384
"""Characters of all their keys and strings."""
_ROOTS: Final = 1000


def excess_of_capabilities(capabilities: Mapping[str, Any]) -> str | None:
    """Why these capabilities are more than a client may announce; None: they are within the bounds."""
    entries, text = 0, 0
    waiting: list[object] = [capabilities]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            text += len(value)
        elif isinstance(value, Mapping):
            inner = cast("Mapping[str, object]", value)
            waiting += inner.values()
            entries += len(inner)
            text += sum(map(len, inner))
        elif isinstance(value, list):
            waiting += cast("list[object]", value)
            entries += len(cast("list[object]", value))
        if entries > _ENTRIES:
            return f"they have more than {_ENTRIES} entries"
        if text > _TEXT:
            return f"their text has more than {_TEXT} characters"
    return None


def excess_of_answer(method: str, result: Mapping[str, Any]) -> str | None:
    """Why a client's answer to a server's request is too large to be passed on; None: it is not."""
    roots: object = result.get("roots")
    if method != "roots/list" or not isinstance(roots, list):
        return None
    number = len(cast("list[object]", roots))
    return f"the client has {number} roots: at most {_ROOTS} are passed on" if number > _ROOTS else None


HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
SERVER_VERSIONS: Final = ("2024-10-07", *HANDSHAKE_VERSIONS)
"""What servers may answer: the first draft differs in nothing that they send."""
MODERN_VERSIONS: Final = ("2026-07-28",)
NEWEST_HANDSHAKE: Final = HANDSHAKE_VERSIONS[-1]
NEWEST_MODERN: Final = MODERN_VERSIONS[-1]

PREFIX: Final = "io.modelcontextprotocol/"
VERSION_KEY: Final = PREFIX + "protocolVersion"
CLIENT_INFO_KEY: Final = PREFIX + "clientInfo"
CAPABILITIES_KEY: Final = PREFIX + "clientCapabilities"
LOG_LEVEL_KEY: Final = PREFIX + "logLevel"
SERVER_INFO_KEY: Final = PREFIX + "serverInfo"
SUBSCRIPTION_KEY: Final = PREFIX + "subscriptionId"
PROGRESS_KEY: Final = "progressToken"
PROGRESS: Final = "notifications/progress"
MAP_KEY: Final = "ai.codec/map"
RESULT_LIMIT_KEY: Final = "ai.codec/result-limit"

PER_HOP: Final = frozenset(
    {VERSION_KEY, CLIENT_INFO_KEY, CAPABILITIES_KEY, SUBSCRIPTION_KEY, MAP_KEY, RESULT_LIMIT_KEY}
)
"""Keys of a request's `_meta` that describe the hop from the client to us. On the next hop they would be untrue, and a
handshake-era server refuses some of them."""
CACHEABLE: Final = frozenset(
    {
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/templates/list",
        "server/discover",
        "tools/list",
    }
)
"""Methods whose modern results carry `ttlMs` and `cacheScope` (2026-07-28, "Caching")."""
MULTI_ROUND: Final = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Methods that a modern server may answer with `input_required` (2026-07-28, "Multi round-trip requests")."""
_ROUND_FIELDS: Final = ("inputResponses", "requestState")
_RESULT_FIELDS: Final = ("resultType", "ttlMs", "cacheScope")


def meta_of(params: Mapping[str, Any]) -> dict[str, Any]:
    """The `_meta` of params or of a result; empty if there is none, or if it is not an object."""
    return params["_meta"] if isinstance(params.get("_meta"), dict) else {}


def with_meta(values: Mapping[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
    """The same params or result with this `_meta`; an empty one is left out."""
    made = {**values, "_meta": dict(meta)}
    if not meta:
        del made["_meta"]
    return made


def without_hop(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The `_meta` of a request without the keys that describe the hop from the client to us."""
    return {key: value for key, value in meta.items() if key not in PER_HOP}


def params_to_handshake(params: Mapping[str, Any]) -> dict[str, Any]:
    """Params, already without the hop's keys, as a handshake-era server takes them."""
    kept = dict(params)
    for key in _ROUND_FIELDS:
        kept.pop(key, None)
    return _without_in_meta(kept, LOG_LEVEL_KEY)


def params_to_modern(
    params: Mapping[str, Any],
    *,
    version: str,
    client_info: Mapping[str, Any],
    capabilities: Mapping[str, Any],
    log_level: str | None = None,
) -> dict[str, Any]:
    """Params, already without the hop's keys, with the envelope of our own hop to a modern server."""
    envelope: dict[str, Any] = {
        VERSION_KEY: version,
        CLIENT_INFO_KEY: client_info,
        CAPABILITIES_KEY: capabilities,
    }
    if log_level is not None:
        envelope[LOG_LEVEL_KEY] = log_level
    return {**params, "_meta": {**meta_of(params), **envelope}}


def result_to_modern(method: str, result: dict[str, Any], server_info: Mapping[str, Any] | None) -> dict[str, Any]:
    """A handshake-era result as a modern client takes it: complete, and not to be cached."""
    made: dict[str, Any] = {"resultType": "complete", **result}
    if method in CACHEABLE:
        made = {"ttlMs": 0, "cacheScope": "private", **made}
    if server_info:
        made["_meta"] = {**meta_of(result), SERVER_INFO_KEY: server_info}
    return made


def result_to_handshake(result: dict[str, Any]) -> dict[str, Any]:
    """A modern result as a handshake-era client takes it: strict clients refuse unknown keys in an empty result."""
    kept = dict(result)
    for key in _RESULT_FIELDS:
        kept.pop(key, None)
    return _without_in_meta(kept, SERVER_INFO_KEY) if "_meta" in kept else kept


def _without_in_meta(values: dict[str, Any], key: str) -> dict[str, Any]:
    """The same values without one key of their `_meta`. The given dict is changed."""
    meta = meta_of(values)
    if key in meta:
        values["_meta"] = {other: value for other, value in meta.items() if other != key}
        if not values["_meta"]:
            del values["_meta"]
    return values


def is_input_required(result: Mapping[str, Any]) -> bool:
    """Whether a modern server asks for something before it answers."""
    return result.get("resultType") == "input_required"
