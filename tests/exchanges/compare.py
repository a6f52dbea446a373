"""Two recordings of one script: what differs between them that the protocol does not make differ.

Pure. What may differ is written here and nowhere else, rule by rule.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

CACHEABLE = {"prompts/list", "resources/list", "resources/read", "resources/templates/list", "tools/list"}
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_ERA_PUSHES = {"notifications/message", "notifications/subscriptions/acknowledged"}
"""Log messages come to modern clients only where they can be tied to a request; acknowledgements are theirs alone."""
_REFUSED = "tool that there is not"
"""Calls a tool that no server lists: the gateway refuses it, unless the list is known to be incomplete."""
_MADE = "demo://resource/session/"
"""Resources that a call made in its process: the one that modern clients borrow ends with a call that they cancel."""
_INVALID_PARAMS = -32602
_LONGEST = 600


def differences(direct: Mapping[str, Any], other: Mapping[str, Any], *, modern: bool) -> Iterator[str]:
    """Give a line for each exchange of `other` that is not that of `direct`."""
    expected = {exchange["step"]: exchange for exchange in direct["exchanges"]}
    for played in other["exchanges"]:
        name = played["step"]
        want, got = expected[name], played
        if name == _REFUSED and (got.get("error") or {}).get("code") == _INVALID_PARAMS:
            continue
        if modern:
            yield from (f"{name}: {line}" for line in _era_faults(played))
            want, got = _even(want), _even(played)
        for part in ("params", "result", "error", "own", "cancelled", "heard"):
            if want.get(part) != got.get(part):
                yield f"{name}: {part}: expected {_short(want.get(part))}, got {_short(got.get(part))}"


def _era_faults(played: Mapping[str, Any]) -> Iterator[str]:
    """What a modern result must have that a handshake-era server could not give."""
    result = played.get("result")
    if result is None:
        return
    if result.get("resultType") != "complete":
        yield f"resultType is {result.get('resultType')!r}, expected 'complete'"
    if played["method"] in CACHEABLE and not {"ttlMs", "cacheScope"} <= result.keys():
        yield "ttlMs and cacheScope are missing"


def _even(exchange: Mapping[str, Any]) -> dict[str, Any]:
    """The exchange without what only one era has."""
    even = {**exchange, "heard": [push for push in exchange["heard"] if push.get("method") not in _ERA_PUSHES]}
    if "result" in exchange:
        result = {k: v for k, v in exchange["result"].items() if k not in ("resultType", "ttlMs", "cacheScope")}
        meta = {key: value for key, value in result.pop("_meta", {}).items() if key != _SERVER_INFO}
        even["result"] = {**result, "_meta": meta} if meta else result
        if exchange["method"] == "resources/list":
            kept = [each for each in result["resources"] if not each["uri"].startswith(_MADE)]
            even["result"]["resources"] = kept
    return even


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def kinds(recordings: Sequence[Mapping[str, Any]]) -> int:
    """Give how many exchanges there are in all."""
    return sum(len(recording["exchanges"]) for recording in recordings)
