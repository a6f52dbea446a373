"""The URIs of servers' resources: how clients see them, the way back, and those inside results (docs/adr/0033)."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import sha256
from itertools import chain
from typing import Any, Final, NamedTuple, cast
from urllib.parse import quote

from gateway.proxy.caller import Principal

# Everything listed at the start counts as simultaneous: there, a server that lists a URI comes before one whose
# template it fits, and a template that says more at its beginning before one that says less. What is listed later takes
# nothing from who had it. The configuration's order decides nothing.

_VARIABLE: Final = re.compile(r"\{[^{}]*\}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_IN_URIS: Final = "%:/?#[]@!$&'()*+,;=-._~"
"""What stays as it is in URIs, besides letters and digits; a percent sign, because templates may be encoded already."""
_TEMPLATES: Final = 100
"""Templates of one server that can claim URIs: each URI that others list is compared with all of them."""
_VARIABLES: Final = 16
"""Variables of a template that can claim URIs, at most."""
_NOBODY: Final[frozenset[str]] = frozenset()


class Claim(NamedTuple):
    """A server's claim to a URI, or to all URIs that fit a template. Of several, the smallest rank wins."""

    since: int
    """When it was first made, as a count of later listings; 0: at the start."""
    is_template: bool
    """Whether it is to a template's URIs; a URI comes first."""
    generality: int
    """For a template: minus the length of what stands before its first variable."""
    server: str
    pattern: str

    @property
    def rank(self) -> tuple[int, bool, int]:
        """What decides among claims; claims of equal rank have an equal right."""
        return self[:3]


class UriClaims:
    """The claims of all servers."""

    def __init__(self) -> None:
        self.version = 0
        """Changes with every `replace`."""
        self._now = 0
        self._settled = False
        self._named: dict[str, list[Claim]] = {}
        self._templates: list[Claim] = []
        self._schemes: dict[str, set[str]] = {}

    def settle(self) -> None:
        """Note that the start is over: later claims come after all existing ones."""
        self._settled = True

    def replace(self, listed: Iterable[tuple[str, str, bool]]) -> None:
        """Replace all claims. `listed`: server, URI or template, and which of these."""
        before = {(each.server, each.pattern, each.is_template): each.since for each in chain(*self._named.values())}
        self.version += 1
        if self._settled:
            self._now += 1
        self._named, self._templates, self._schemes = {}, [], {}
        counted: Counter[str] = Counter()
        for server, pattern, is_template in listed:
            since = before.get((server, pattern, is_template), self._now)
            generality = -len(literals_of(pattern)[0]) if is_template else 0
            claim = Claim(since, is_template, generality, server, pattern)
            self._named.setdefault(pattern, []).append(claim)
            self._schemes.setdefault(scheme_of(pattern), set()).add(server)
            if is_template and counted[server] < _TEMPLATES and len(literals_of(pattern)) <= _VARIABLES + 1:
                counted[server] += 1
                self._templates.append(claim)
        self._templates.sort()

    def owners(self, uri: str, principal: Principal) -> frozenset[str]:
        """The servers with the best claim to a URI or template, of those that `principal` sees: several if they have an
        equal right to it, none if nobody claims it."""
        named = [each for each in self._named.get(uri, ()) if principal.sees(each.server)]
        best = min((each.rank for each in named), default=None)
        found = {each.server for each in named if each.rank == best}
        for claim in self._templates:
            if best is not None and best < claim.rank:
                break
            if principal.sees(claim.server) and fits(claim.pattern, uri):
                found = {claim.server, *(found if claim.rank == best else ())}
                best = claim.rank
        return frozenset(found)

    def listers(self, uri: str, principal: Principal) -> frozenset[str]:
        """The servers that list exactly this URI or template."""
        return frozenset(each.server for each in self._named.get(uri, ()) if principal.sees(each.server))

    def users_of_scheme(self, template: str, principal: Principal) -> frozenset[str]:
        """The servers of which a URI, or a URI of a template, may begin with the same scheme as those of a template."""
        used = chain(self._schemes.get(scheme_of(template), _NOBODY), self._schemes.get("", _NOBODY))
        return frozenset(server for server in used if principal.sees(server))


def scheme_of(pattern: str) -> str:
    """The scheme of a URI or template with its colon, in lower case; empty if a template's variable is part of it."""
    found = _SCHEME.match(pattern)
    return "" if found is None else found[0].lower()


@lru_cache(maxsize=4096)
def literals_of(template: str) -> tuple[str, ...]:
    """The texts around a URI template's variables (RFC 6570), in order; always one more than there are variables."""
    return tuple(_VARIABLE.split(template))


@lru_cache(maxsize=4096)
def _encoded_literals_of(template: str) -> tuple[str, ...]:
    """The same as they stand in URIs, where characters that no URI has are percent-encoded (RFC 6570, 3.1)."""
    return tuple(quote(each, safe=_IN_URIS, errors="replace") for each in literals_of(template))


def fits(template: str, uri: str) -> bool:
    """Whether the template can produce the URI with some values of its variables; also where the URI was not encoded.

    Both are untrusted. Each literal is searched for once, so the time is linear, unlike that of a regular expression.
    """
    literals, encoded = literals_of(template), _encoded_literals_of(template)
    return _fit(literals, uri) or (encoded != literals and _fit(encoded, uri))


def _fit(literals: tuple[str, ...], uri: str) -> bool:
    first, *middle = literals
    if not middle:
        return uri == first
    last = middle.pop()
    if len(uri) < len(first) + len(last) or not (uri.startswith(first) and uri.endswith(last)):
        return False
    at, end = len(first), len(uri) - len(last)
    for literal in middle:
        found = uri.find(literal, at, end)
        if found < 0:
            return False
        at = found + len(literal)
    return True


# docs/adr/0033. With one server, URIs stay as they are. With several, a URI carries its server if another server lists
# it too, if nobody lists it, or if it is a page for a tool (`ui://`): `ui://<mark>/<rest>`, or `<mark>+<URI>` for other
# schemes. The mark depends on the server's name alone, so such a URI means the same whatever is listed, and in whatever
# order.

_PAGE: Final = "ui://"
"""The scheme of pages that a host shows for a tool (MCP Apps): they must always be those of the tool's own server."""
_GLOBAL: Final = ("http:", "https:")
"""Schemes of URIs that clients may fetch themselves (MCP resources, "Common URI Schemes"), so that they mean the same
whichever server names them."""
_MARK: Final = re.compile(r"[a-z][a-z0-9-]*")
_MARKED_PAGE: Final = re.compile(r"ui://([^/]+)/(.*)", re.DOTALL | re.IGNORECASE)
_MARKED: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\+(.+)", re.DOTALL)


class Located(NamedTuple):
    """A resource of one server."""

    server: str
    uri: str
    """The server's own URI."""


class PublicUris:
    """The public URIs of one configuration."""

    def __init__(self, servers: Collection[str], claims: UriClaims) -> None:
        """`claims` may change; `version` of them says when."""
        self._servers = servers
        self._claims = claims
        self._marked = {mark_of(server): server for server in servers}

    def several(self, principal: Principal) -> bool:
        """Whether URIs can carry their server for this principal: it sees more than one."""
        seen = self._servers if principal.servers is None else principal.servers.intersection(self._servers)
        return len(seen) > 1

    def public(self, server: str, uri: str, principal: Principal, *, is_template: bool = False) -> str:
        """The URI, or template, that clients see for a server's own one."""
        if not self.several(principal):
            return uri
        if uri[: len(_PAGE)].lower() == _PAGE:
            return f"{_PAGE}{mark_of(server)}/{uri[len(_PAGE) :]}"
        plain = self._template_is_plain if is_template else self._uri_is_plain
        is_plain = not self.needs_mark(uri, principal) and plain(server, uri, principal)
        return uri if is_plain else f"{mark_of(server)}+{uri}"

    def located(self, uri: str, principal: Principal) -> Located | None:
        """The resource whose public URI carries its server; None: this one carries none that the principal sees."""
        if not self.several(principal):
            return None
        found = _MARKED_PAGE.fullmatch(uri)
        own = None if found is None else _PAGE + found[2]
        if found is None:
            found = _MARKED.fullmatch(uri)
            own = None if found is None else found[2]
        server = None if found is None else self._marked.get(found[1].lower())
        return Located(server, own) if server is not None and own is not None and principal.sees(server) else None

    def needs_mark(self, uri: str, principal: Principal) -> bool:
        """Whether a URI that carries no server belongs to nobody, whoever lists it."""
        return self.several(principal) and (scheme_of(uri) == "ui:" or self._is_marked(uri))

    def spellings(self, uri: str, servers: Collection[str]) -> list[str]:
        """The URIs by which a resource that several servers have can be told apart."""
        return [f"{mark_of(server)}+{uri}" for server in self._servers if server in servers]

    def _is_marked(self, uri: str) -> bool:
        """Whether a server's own URI looks like one that carries a server, seen by this principal or not."""
        found = _MARKED.fullmatch(uri)
        return found is not None and found[1].lower() in self._marked

    def _uri_is_plain(self, server: str, uri: str, principal: Principal) -> bool:
        owners = self._claims.owners(uri, principal)
        if not owners:
            return scheme_of(uri) in _GLOBAL
        return owners == frozenset({server}) and self._claims.listers(uri, principal) <= {server}

    def _template_is_plain(self, server: str, template: str, principal: Principal) -> bool:
        # Whether two templates have a URI in common is not worth finding out: a scheme is a server's own, as a rule.
        return bool(scheme_of(template)) and self._claims.users_of_scheme(template, principal) <= {server}


@lru_cache(maxsize=1024)
def mark_of(server: str) -> str:
    """What stands for a server in a URI: its name, where that may be a part of any scheme, which has no capitals and no
    underscore (RFC 3986, section 3.1); otherwise a name like it with a digest, to keep `a_b` and `a-b` apart."""
    if _MARK.fullmatch(server):
        return server
    like = re.sub(r"[^a-z0-9]+", "-", server.lower()).strip("-")
    return f"x-{like}-{sha256(server.encode()).hexdigest()[:8]}"


# MCP and its Apps extension put URIs of resources in links and embedded resources in contents, in the contents of a
# resource, and in `_meta` for the page of a tool. URIs in texts and in structured content stay as they are. Nothing is
# changed in place; what holds no such URI is returned as it came.

Rename = Callable[[str], str]
_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of `_meta` that name a tool's page: the older one of MCP Apps, and that of the OpenAI Apps SDK."""


def rename_in_tool(tool: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Return a tool's definition with the URI of its page renamed."""
    return _with(tool, {"_meta": _meta(tool.get("_meta"), rename)})


def rename_in_result(result: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Return an answer to a request for a tool, a prompt, a resource or a task's result with its URIs renamed."""
    inner: object = result.get("result")
    fields = {
        "_meta": _meta(result.get("_meta"), rename),
        "content": _each(result.get("content"), lambda block: _block(block, rename)),
        "contents": _each(result.get("contents"), lambda resource: _uri(resource, rename)),
        "messages": _each(result.get("messages"), lambda message: _message(message, rename)),
        "result": rename_in_result(cast("dict[str, Any]", inner), rename) if isinstance(inner, dict) else inner,
    }
    return _with(result, fields)


def _meta(meta: object, rename: Rename) -> object:
    if not isinstance(meta, dict):
        return meta
    found = cast("dict[str, Any]", meta)
    named: dict[str, object] = {key: rename(found[key]) for key in _PAGES if isinstance(found.get(key), str)}
    ui: object = found.get("ui")
    if isinstance(ui, dict):
        fields = cast("dict[str, Any]", ui)
        uri: object = fields.get("resourceUri")
        named["ui"] = _with(fields, {"resourceUri": rename(uri) if isinstance(uri, str) else uri})
    return _with(found, named)


def _message(message: dict[str, Any], rename: Rename) -> dict[str, Any]:
    content: object = message.get("content")
    if isinstance(content, dict):
        return _with(message, {"content": _block(cast("dict[str, Any]", content), rename)})
    return _with(message, {"content": _each(content, lambda block: _block(block, rename))})


def _block(block: dict[str, Any], rename: Rename) -> dict[str, Any]:
    if block.get("type") == "resource_link":
        return _uri(block, rename)
    resource: object = block.get("resource")
    if block.get("type") != "resource" or not isinstance(resource, dict):
        return block
    return _with(block, {"resource": _uri(cast("dict[str, Any]", resource), rename)})


def _uri(holder: dict[str, Any], rename: Rename) -> dict[str, Any]:
    uri: object = holder.get("uri")
    return _with(holder, {"uri": rename(uri)}) if isinstance(uri, str) else holder


def _each(value: object, change: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    changed = [change(cast("dict[str, Any]", each)) if isinstance(each, dict) else each for each in items]
    return changed if any(now is not was for now, was in zip(changed, items, strict=True)) else items


def _with(fields: dict[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """The fields with those changes that are some; the same object if none is."""
    some = {key: value for key, value in changes.items() if key in fields and value is not fields[key]}
    return {**fields, **some} if some else fields
