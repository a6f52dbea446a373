"""The resources that one server linked to or embedded in its answers, and for whom: they need not be in any list.

Turns answers into the URIs in them, and remembers these for the principal that got them, up to a bound; the oldest are
forgotten. With each URI it remembers the session that gave it, as long as that exists: no other session need have the
resource. It asks no server and knows nothing about lists.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final, cast
from weakref import ref

from gateway.proxy.caller import Principal
from gateway.proxy.results import objects_in
from gateway.proxy.upstream.supervision.session_member import SessionMember

EACH: Final = 1000
"""URIs of one server that are remembered for one principal."""
_MOST: Final = 10_000
"""URIs that are remembered for all principals; above that, the principal with the most loses its oldest one."""
_LINKED: Final = ("resource_link", "resource")
"""Types of content blocks that name a resource."""
_LONGEST: Final = 2048
"""Characters of the longest URI that is remembered."""


class GivenUris:
    """The URIs that one server gave."""

    def __init__(self) -> None:
        self._of: dict[str, dict[str, ref[SessionMember]]] = {}
        """The URIs of each principal, the oldest first."""
        self._count = 0

    def note(self, result: Mapping[str, Any], principal: Principal, giver: SessionMember) -> None:
        """Remember the URIs in an answer that `giver` gave this principal."""
        linked = _linked_in(result)
        if linked:
            for uri in islice(_uris_in(linked), EACH):
                self._give(uri, principal.name, ref(giver))

    def has(self, uri: str, principal: Principal) -> bool:
        """Whether the server gave this URI to this principal, or one of which this is a part by its query."""
        return self._entry(uri, principal) is not None

    def giver(self, uri: str, principal: Principal) -> SessionMember | None:
        """The session that last gave this principal such a URI, if it still exists."""
        giver = self._entry(uri, principal)
        return None if giver is None else giver()

    def _entry(self, uri: str, principal: Principal) -> "ref[SessionMember] | None":
        has = self._of.get(principal.name, {})
        return has.get(uri) or has.get(uri.partition("?")[0])

    def _give(self, uri: str, name: str, giver: ref[SessionMember]) -> None:
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


def _linked_in(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks that name a resource, in an answer to `tools/call`, to `prompts/get`, or with a task's result."""
    blocks = objects_in(result.get("content"))
    if "messages" in result:
        blocks += objects_in([message.get("content") for message in objects_in(result["messages"])])
    if isinstance(inner := result.get("result"), dict):
        blocks += objects_in(cast("dict[str, object]", inner).get("content"))
    return [block for block in blocks if block.get("type") in _LINKED]


def _uris_in(blocks: list[dict[str, Any]]) -> Iterator[str]:
    for block in blocks:
        if block["type"] == "resource_link":
            yield from _uri_of(block)
        else:
            yield from _uri_of(block.get("resource"))


def _uri_of(value: object) -> Iterator[str]:
    uri = cast("dict[str, object]", value).get("uri") if isinstance(value, dict) else None
    if isinstance(uri, str) and len(uri) <= _LONGEST:
        yield uri
