"""The tools of a request to `/v1/messages`, sorted by who runs them.

Turns the list into the client's own tools, the gateway's servers that the request restricts itself to (`mcp_toolset`),
and the names of tools that are left out: those that Anthropic's servers run, and those that its models know without a
schema. The model here does not get these. Pure.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic import Field

from gateway.errors import RequestInvalid
from gateway.observe.escape import escape_text
from gateway.serve.generation.client_tools import read_client_tool
from gateway.serve.generation.fields import FAIL_FAST, ApiModel, checked_part
from gateway.serve.generation.schemas import check_schemas
from gateway.toolcalls import ToolSpec

_SHOWN: Final = 64
_LEFT_OUT: Final = 32


class _Enabled(ApiModel):
    enabled: bool | None = None


class _Toolset(ApiModel):
    mcp_server_name: str | None = None
    default_config: _Enabled = _Enabled()
    configs: Annotated[Mapping[str, _Enabled], FAIL_FAST] = Field(default_factory=dict[str, _Enabled])


class SortedTools:
    """The tools of one request."""

    def __init__(self, tools: Sequence[Mapping[str, Any]]) -> None:
        """Sort the tools. Raises `RequestInvalid` that names the entry."""
        self.client = list[ToolSpec]()
        self.eager: set[str] = set()
        """Names of the client's tools whose arguments it wants piece by piece."""
        self.servers: dict[str, frozenset[str] | None] = {}
        self.left_out: list[str] = []
        for number, tool in enumerate(tools):
            self._sort(tool, f"tools[{number}]")
        check_schemas(tool.parameters for tool in self.client)

    def check_servers(self, known: Collection[str]) -> None:
        """Raise `RequestInvalid` for a server that is not one of `known`."""
        for name in self.servers:
            if name not in known:
                words = f"tools: {escape_text(name, _SHOWN)!r} is not one of the gateway's servers that you may use"
                raise RequestInvalid(words, param="tools")

    def _sort(self, tool: Mapping[str, Any], where: str) -> None:
        kind = tool.get("type")
        if kind == "mcp_toolset":
            self._narrow(checked_part(_Toolset, tool, where), where)
            return
        if kind == "custom" and not {"custom", "format"} & tool.keys():
            # Here that is the type of a function, of one without a schema too.
            tool = {**tool, "type": "function"}
        if (read := read_client_tool(tool, where)) is None:
            self._leave_out(f"{where}: {escape_text(str(kind), _SHOWN)}")
            return
        self.client.append(read.spec)
        if read.has_unheld_format:
            self._leave_out(f"{where}.format")
        if tool.get("eager_input_streaming") is True:
            self.eager.add(read.spec.name)

    def _leave_out(self, what: str) -> None:
        if len(self.left_out) < _LEFT_OUT:
            self.left_out.append(what)

    def _narrow(self, tool: _Toolset, where: str) -> None:
        if not tool.mcp_server_name:
            words = f"{where}.mcp_server_name: expected the name of one of the gateway's servers"
            raise RequestInvalid(words, param=f"{where}.mcp_server_name")
        if tool.default_config.enabled is False:
            enabled = frozenset(name for name, config in tool.configs.items() if config.enabled)
            self.servers[tool.mcp_server_name] = enabled
        elif any(config.enabled is False for config in tool.configs.values()):
            raise RequestInvalid(
                f"{where}.configs: tools can't be disabled one by one: set "
                "'default_config': {'enabled': false}, and enable the tools that you want",
                param=f"{where}.configs",
            )
        else:
            self.servers[tool.mcp_server_name] = None
