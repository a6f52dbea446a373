"""Which resources one server linked to or embedded in its answers, and for whom: no list need have them.

Turns answers into the URIs that they hold and remembers them for the principal that got them, so many at most; the
oldest are forgotten. With each it remembers the session that gave it, for as long as that is there: no other need have
the resource. It asks no server and knows nothing of lists.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast
from weakref import ref

from gateway.proxy.caller import Principal
from gateway.proxy.upstream.members import Member

EACH: Final = 1000
"""URIs of one server that are remembered for one principal."""
_MOST: Final = 10_000
"""The same for all; of more, the oldest of whoever has most is forgotten."""
_LINKED: Final = ("resource_link", "resource")
"""Types of contents that name a resource."""
_LONGEST: Final = 2048
"""Characters of a URI that is remembered."""


class GivenUris:
    """What one server gave."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._of: dict[str, dict[str, ref[Member]]] = {}
        """Principal to its URIs, the oldest first."""
        self._count = 0

    def note(self, result: Mapping[str, Any], principal: Principal, giver: Member) -> None:
        """Remember the URIs of this session's answer to this principal."""
        linked = _linked_in(result)
        if linked:
            for uri in islice(_uris_in(linked), EACH):
                self._give(uri, principal.name, ref(giver))

    def has(self, uri: str, principal: Principal) -> bool:
        """Whether the server gave this URI to this principal."""
        return uri in self._of.get(principal.name, ())

    def giver(self, uri: str, principal: Principal) -> Member | None:
        """The session that gave this principal the URI last, if it is still there."""
        giver = self._of.get(principal.name, {}).get(uri)
        return None if giver is None else giver()

    def _give(self, uri: str, name: str, giver: ref[Member]) -> None:
        has = self._of.setdefault(name, {})
        self._count -= uri in has
        has.pop(uri, None)
        has[uri] = giver
        self._count += 1
        if len(has) > EACH:
            self._forget_oldest(name)
        elif self._count > _MOST:
            self._forget_oldest(max(self._of, key=lambda each: len(self._of[each])))

    def _forget_oldest(self, name: str) -> None:
        has = self._of[name]
        del has[next(iter(has))]
        self._count -= 1
        if not has:
            del self._of[name]


def _linked_in(result: Mapping[str, Any]) -> list[dict[str, object]]:
    """What names a resource in the answers to `tools/call`, to `prompts/get`, and to a question for a task's result."""
    blocks = _objects(result.get("content"))
    if "messages" in result:
        blocks += _objects([message.get("content") for message in _objects(result["messages"])])
    if isinstance(inner := result.get("result"), dict):
        blocks += _objects(cast("dict[str, object]", inner).get("content"))
    return [block for block in blocks if block.get("type") in _LINKED]


def _objects(value: object) -> list[dict[str, object]]:
    items = cast("list[object]", value) if isinstance(value, list) else []
    return [cast("dict[str, object]", item) for item in items if isinstance(item, dict)]


def _uris_in(blocks: list[dict[str, object]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "resource_link":
            yield from _uri_of(block)
        else:
            yield from _uri_of(block.get("resource"))


def _uri_of(value: object) -> Iterator[str]:
    uri = cast("dict[str, object]", value).get("uri") if isinstance(value, dict) else None
    if isinstance(uri, str) and len(uri) <= _LONGEST:
        yield uri
