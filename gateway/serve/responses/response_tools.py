"""The tools of a request to `/v1/responses`, in the agent's terms.

Functions, free-form tools and the tools of namespaces become tools of the client, each under a unique name; an `mcp`
tool restricts which tools of the gateway's servers the model sees, and may require approval of calls that the operator
would let run. Tools that OpenAI hosts are left out, and the answer names them.
"""

import json
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal, cast

from pydantic import Field

from gateway.agent import OURS, Deferral, SearchTool
from gateway.context.history.client_messages import unread_fields
from gateway.errors import RequestInvalid
from gateway.escape import escape_text
from gateway.proxy.approvals import is_read_only
from gateway.proxy.naming import ToolEntry
from gateway.serve.generation.request_fields import FAIL_FAST, ApiModel, checked_part
from gateway.serve.generation.tools_and_formats import MOST_TOOLS, check_schemas, named_tool, read_client_tool
from gateway.toolcalls.schema.spec import ToolSpec, flat_tool
from gateway.toolcalls.stream.output_events import CallClosed

# The shapes of tools that only `/v1/responses` has.
#
# Source: OpenAI's API reference, "Create a response", `tools`. Fields of a tool that are not listed here have no
# effect.

Name = Annotated[str, Field(min_length=1, max_length=256)]
_Names = Annotated[frozenset[str], FAIL_FAST]


class NamespaceShape(ApiModel):
    """Several tools of the client, grouped under a name."""

    type: Literal["namespace"]
    name: Name
    description: str = ""
    tools: Annotated[tuple[dict[str, Any], ...], Field(max_length=MOST_TOOLS, fail_fast=True)] = ()


class Filter(ApiModel):
    """Selects tools of a server."""

    tool_names: _Names | None = None
    read_only: bool | None = None

    def holds(self, entry: ToolEntry) -> bool:
        """Whether a tool is selected."""
        if self.tool_names is not None and self.tool_names.isdisjoint((entry.name, entry.tool, entry.alias_of)):
            return False
        return self.read_only is None or self.read_only == is_read_only(entry.definition)


class ApprovalFilter(ApiModel):
    """Which tools' calls need approval."""

    always: Filter | None = None
    never: Filter | None = None


class McpShape(ApiModel):
    """One of the gateway's configured servers."""

    type: Literal["mcp"]
    server_label: Name
    allowed_tools: _Names | Filter | None = None
    require_approval: Literal["always", "never"] | ApprovalFilter = "never"

    def allows(self, entry: ToolEntry) -> bool:
        """Whether the model sees a tool of the server."""
        allowed = self.allowed_tools
        if allowed is None:
            return True
        return (Filter(tool_names=allowed) if isinstance(allowed, frozenset) else allowed).holds(entry)

    def asks(self, entry: ToolEntry) -> bool:
        """Whether calls of a tool need approval."""
        rule = self.require_approval
        if isinstance(rule, str):
            return rule == "always"
        if rule.always is not None and rule.always.holds(entry):
            return True
        return rule.never is not None and not rule.never.holds(entry)


SEARCH: Final = "tool_search"
"""The type of the search for tools, and its name for the model."""
_SHOWN: Final = 64
_SERVER: Final = frozenset(McpShape.model_fields)
_NAMESPACE: Final = frozenset(NamespaceShape.model_fields)
_SEARCH: Final = ("type", "description", "execution", "parameters")
_ADDRESSES: Final = ("server_url", "connector_id", "tunnel_id", "authorization", "headers")
GATEWAY: Final = "codec"
"""Server label of the gateway's own tools, which find and call the others."""


@dataclass(frozen=True, slots=True)
class NamedTool:
    """A tool of the client's, whose calls end the answer; named as the client knows it."""

    kind: Literal["function", "custom", "search"]
    name: str
    namespace: str | None = None
    """Its namespace; None: it is in none."""


@dataclass(frozen=True, slots=True)
class UnapprovedCall:
    """A call of a server's tool, by the tool's name beside it."""

    server: str
    tool: str
    arguments: str


@dataclass
class RequestTools:
    """The tools of one request."""

    entries: Sequence[ToolEntry]
    """The gateway's tools that the principal may call."""
    asks: Callable[[ToolEntry], bool] = lambda entry: False
    """Whether the operator wants calls of a tool approved."""
    has: Callable[[str], bool] = lambda name: True
    """Whether the model has read a tool's definition: a call of any other is not made."""
    strict: set[str] = field(default_factory=set[str])
    """Public names of tools whose calls the request wants to approve."""
    specs: list[ToolSpec] = field(default_factory=list[ToolSpec])
    client: dict[str, NamedTool] = field(default_factory=dict[str, NamedTool])
    """The client's tools, by the names that the model knows."""
    servers: dict[str, frozenset[str]] | None = None
    """Servers that the request names, with the tools that it wants of each; None where it names none."""
    shown: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Tools that are not left out, as the answer repeats them."""
    ignored: list[str] = field(default_factory=list[str])
    hidden: set[str] = field(default_factory=set[str])
    """The model's names of the client's tools that are deferred (`defer_loading`)."""
    brought: set[str] = field(default_factory=set[str])
    """The model's names of the client's tools that only items of the input define."""
    search: SearchTool | None = None
    """The request's search for tools, if the gateway runs it; one that the client runs is a tool of the client's."""
    definitions: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """The client's tools as it defined them, by the model's names."""

    def leave_out(self, tool: Mapping[str, Any], read: Container[str]) -> None:
        """Name the fields of a definition that are not read."""
        self.name_ignored(unread_fields(tool, read))

    def name_ignored(self, names: Iterable[str]) -> None:
        """Name fields of definitions that have no effect."""
        self.ignored += dict.fromkeys(name for each in names if (name := f"tools.{each}") not in self.ignored)

    @property
    def deferral(self) -> Deferral:
        """Which of the client's tools are deferred."""
        return Deferral(self.hidden, self.search, found=self.brought)

    def found(self, names: Sequence[str]) -> list[dict[str, Any]]:
        """Tools that a search has found, as a `tool_search_output` item has them: namespaces with their tools."""
        shown: dict[str | None, list[dict[str, Any]]] = {}
        for name in names:
            tool = self.client.get(name)
            if tool is not None and name in self.definitions:
                shown.setdefault(tool.namespace, []).append(self.definitions[name])
        return [
            *shown.pop(None, []),
            *({"type": "namespace", "name": name, "description": "", "tools": tools} for name, tools in shown.items()),
        ]

    def read_in_items(self, found: Sequence[str]) -> list[str]:
        """Names of tools that only items define and that the model has read. `found`: deferred ones that were found."""
        return [each for each in self.client if each in self.brought and (each in found or each not in self.hidden)]

    @cached_property
    def _by_name(self) -> Mapping[str, ToolEntry]:
        return {entry.name: entry for entry in self.entries}

    @cached_property
    def _publics(self) -> Mapping[tuple[str, str], str]:
        found = {(each.server, name): each.name for each in self.entries for name in (each.alias_of, each.name) if name}
        # A tool's local name may be another one's public name. Items show the local one, and calls are approved by it.
        return found | {(each.server, each.local): each.name for each in self.entries}

    @cached_property
    def _bare(self) -> Mapping[str, list[str]]:
        """The names that the model knows, by the names without namespace that clients know."""
        found: dict[str, list[str]] = {}
        for model_name, tool in self.client.items():
            found.setdefault(tool.name, []).append(model_name)
        return found

    def origin(self, name: str) -> tuple[str, str]:
        """The server of a gateway's tool, and the tool's name beside it."""
        entry = self._by_name.get(name)
        return (GATEWAY, name) if entry is None else (entry.server, entry.local)

    def to_approve(self, call: CallClosed) -> UnapprovedCall | None:
        """What the client has to approve before a call is made; None: nothing, or it is the client's own call."""
        if call.flaw or call.name in self.client or not self.has(call.name):
            return None
        entry = self._by_name.get(call.name)
        if entry is None or not (call.name in self.strict or self.asks(entry)):
            return None
        return UnapprovedCall(entry.server, entry.local, call.arguments)

    def may_ask(self, name: str) -> bool:
        """Whether a call of this name has to be approved."""
        entry = self._by_name.get(name)
        if name in self.client or entry is None or not self.has(name):
            return False
        return name in self.strict or self.asks(entry)

    def public(self, server: str, tool: str) -> str | None:
        """The name under which the model knows a server's tool; None where there is none."""
        return self._publics.get((server, tool))

    def model_name(self, name: str, namespace: str | None) -> str:
        """The name under which the model knows a tool of the client, even where the client has lost its namespace."""
        joined = joined_name(name, namespace)
        if joined in self.client or namespace is not None:
            return joined
        bare = self._bare.get(name, [])
        return bare[0] if len(bare) == 1 else joined

    def of_server(self, server: str) -> list[ToolEntry]:
        """The tools of a server that the model sees."""
        wanted = (self.servers or {}).get(server, frozenset())
        return [each for each in self.entries if each.server == server and each.name in wanted]

    def names_in(self, fields: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The model's names of the tools that an object of `tool_choice` names; None where it names none."""
        name, label = fields.get("name"), fields.get("server_label")
        if fields.get("type") == SEARCH:
            return (SEARCH,)
        if fields.get("type") == "namespace":
            return tuple(each for each, tool in self.client.items() if tool.namespace == name)
        if fields.get("type") != "mcp":
            namespace = fields.get("namespace")
            named = named_tool(fields)
            return named and (joined_name(named[0], namespace if isinstance(namespace, str) else None),)
        if not isinstance(label, str):
            return None
        if isinstance(name, str):
            return (self.public(label, name) or name,)
        return tuple(entry.name for entry in self.of_server(label))

    def listed(self, server: str) -> list[dict[str, Any]]:
        """The same tools, as an `mcp_list_tools` item shows them."""
        return [_listed(entry.local, entry.definition) for entry in self.of_server(server)]

    def add(self, spec: ToolSpec, tool: NamedTool, where: str) -> None:
        """Add a tool of the client's, unless it is there. Raises `RequestInvalid` for a name that another one has."""
        if spec in self.specs and self.client[spec.name] == tool:
            return
        if spec.name in self.client:
            raise RequestInvalid(f"{where}.name: two tools are called {spec.name[:_SHOWN]!r}", param=f"{where}.name")
        self.specs.append(spec)
        self.client[spec.name] = tool


def joined_name(name: str, namespace: str | None) -> str:
    """The name under which the model knows a tool in a namespace."""
    if not namespace:
        return name
    return f"{namespace}{name}" if namespace.endswith("__") else f"{namespace}__{name}"


def read_tools(
    given: Sequence[Mapping[str, Any]],
    entries: Sequence[ToolEntry],
    servers: Callable[[], frozenset[str]],
    asks: Callable[[ToolEntry], bool] = lambda entry: False,
    has: Callable[[str], bool] = lambda name: True,
) -> RequestTools:
    """Read the tools of a request.

    Args:
        entries: the gateway's tools that the principal may call.
        servers: returns the names of the servers that exist for that principal.
        asks: whether the operator wants calls of a tool approved; the request can only add to that.
        has: whether the model has read a tool's definition.

    Raises:
        RequestInvalid: names the first invalid tool.
    """
    check_schemas(given)
    tools = RequestTools(entries, asks, has)
    for number, tool in enumerate(given):
        where, kind = f"tools[{number}]", tool.get("type")
        if kind == "namespace":
            namespace = checked_part(NamespaceShape, tool, where)
            tools.leave_out(tool, _NAMESPACE)
            _add_namespace(tools, namespace, where)
            tools.shown.append({**tool, "description": namespace.description})
        elif kind == "mcp":
            _add_server(tools, tool, where, servers)
        elif kind == SEARCH:
            _add_search(tools, tool, where)
            tools.shown.append({**tool})
        elif not _add_own(tools, tool, where, None):
            tools.ignored.append(f"tools.{escape_text(str(kind), _SHOWN)}")
        else:
            tools.shown.append(_shown(tool))
    if len(tools.specs) > MOST_TOOLS:
        raise RequestInvalid(
            f"tools: expected at most {MOST_TOOLS} in all, counting those in namespaces",
            param="tools",
        )
    return tools


def _add_search(tools: RequestTools, tool: Mapping[str, Any], where: str) -> None:
    """Add the search for tools: of the client's, if it runs it itself."""
    tools.leave_out(tool, _SEARCH)
    described, schema = tool.get("description"), tool.get("parameters")
    words = described if isinstance(described, str) and described else OURS.spec.description
    if tool.get("execution") != "client":
        tools.search = SearchTool(ToolSpec(SEARCH, words, OURS.spec.parameters))
        return
    parameters = cast("Mapping[str, Any]", schema) if isinstance(schema, Mapping) else OURS.spec.parameters
    tools.add(ToolSpec(SEARCH, words, parameters), NamedTool("search", SEARCH), where)


def names_of(given: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the model's names of the tools in a `tool_search_output` item."""
    names: list[str] = []
    for tool in given:
        inside: object = tool.get("tools") if tool.get("type") == "namespace" else None
        namespace = tool.get("name") if inside is not None else None
        for each in cast("list[object]", inside) if isinstance(inside, list) else [tool]:
            name = flat_tool(cast("Mapping[str, Any]", each)).get("name") if isinstance(each, Mapping) else None
            if isinstance(name, str):
                names.append(joined_name(name, namespace if isinstance(namespace, str) else None))
    return names


def add_found(tools: RequestTools, given: Sequence[Mapping[str, Any]], names: Container[str] | None = None) -> None:
    """Add the tools of `tool_search_output` items: they are defined behind the item that holds them.

    `names`: those of them that were found; None: all.
    """
    before = set(tools.client)
    # Clients send all outputs of a conversation, and searches find the same tools again and again.
    distinct = {json.dumps(tool, sort_keys=True): tool for tool in given}
    add_tools(tools, [*distinct.values()])
    tools.hidden |= {name for name in tools.client.keys() - before if names is None or name in names}


def add_tools(tools: RequestTools, given: Sequence[Mapping[str, Any]]) -> None:
    """Add the tools of `additional_tools` items, which clients repeat; one that can't be served is only named."""
    try:
        check_schemas(given)
    except RequestInvalid as error:
        tools.ignored.append(f"input.additional_tools: {escape_text(error.message, _SHOWN)}")
        return
    for tool in given[:MOST_TOOLS]:
        alone = RequestTools(tools.entries)
        try:
            if tool.get("type") == "namespace":
                _add_namespace(alone, checked_part(NamespaceShape, tool, "tools"), "tools")
            elif not _add_own(alone, tool, "tools", None):
                alone.ignored.append(f"input.additional_tools.{escape_text(str(tool.get('type')), _SHOWN)}")
        except RequestInvalid as error:
            alone.ignored.append(f"input.additional_tools: {escape_text(error.message, _SHOWN)}")
        for spec in alone.specs:
            # The same item may stand in the history more than once.
            if spec.name not in tools.client and len(tools.specs) < MOST_TOOLS:
                tools.add(spec, alone.client[spec.name], "tools")
                tools.brought.add(spec.name)
                tools.definitions |= {spec.name: alone.definitions[spec.name]}
        tools.ignored += alone.ignored


def _add_own(tools: RequestTools, tool: Mapping[str, Any], where: str, namespace: str | None) -> bool:
    """Add a function or a free-form tool of the client; return False where the tool is neither."""
    read = read_client_tool(tool, where)
    if read is None:
        return False
    tools.name_ignored(read.unused)
    spec = replace(read.spec, name=joined_name(read.spec.name, namespace))
    tools.add(spec, NamedTool(read.kind, read.spec.name, namespace), where)
    tools.definitions[spec.name] = _shown(tool)
    if read.deferred:
        tools.hidden.add(spec.name)
    return True


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool of the client in this API's own shape."""
    fields = flat_tool(tool)
    if fields["type"] == "function":
        return fields
    del fields["parameters"]
    form: object = fields.get("format")
    inside: object = cast("Mapping[str, Any]", form).get("grammar") if isinstance(form, Mapping) else None
    if isinstance(inside, Mapping):
        fields["format"] = {"type": "grammar", **cast("Mapping[str, Any]", inside)}
    return fields


def _add_namespace(tools: RequestTools, namespace: NamespaceShape, where: str) -> None:
    for number, tool in enumerate(namespace.tools):
        if not _add_own(tools, tool, f"{where}.tools[{number}]", namespace.name):
            tools.ignored.append(f"tools.{escape_text(str(tool.get('type')), _SHOWN)}")


def _add_server(
    tools: RequestTools, tool: Mapping[str, Any], where: str, servers: Callable[[], frozenset[str]]
) -> None:
    for name in _ADDRESSES:
        if tool.get(name):
            raise RequestInvalid(
                f"{where}.{name}: only servers in the gateway's configuration can be used: name one in server_label",
                param=f"{where}.{name}",
            )
    server = checked_part(McpShape, tool, where)
    tools.leave_out(tool, _SERVER)
    label, before = server.server_label, tools.servers or {}
    if label in before or label not in servers():
        words = "is named twice" if label in before else "is not one of the gateway's servers that you may use"
        place = f"{where}.server_label"
        raise RequestInvalid(f"{place}: {escape_text(label, _SHOWN)!r} {words}", param=place)
    wanted = [entry for entry in tools.entries if entry.server == label and server.allows(entry)]
    tools.servers = {**before, label: frozenset(entry.name for entry in wanted)}
    tools.strict.update(entry.name for entry in wanted if server.asks(entry))
    tools.shown.append({**tool})


def _listed(name: str, definition: Mapping[str, Any]) -> dict[str, Any]:
    told = {key: definition[key] for key in ("description", "annotations") if definition.get(key) is not None}
    return {"name": name, "input_schema": definition.get("inputSchema") or {"type": "object"}, **told}
