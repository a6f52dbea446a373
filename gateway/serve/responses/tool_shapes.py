"""The shapes of tools that only `/v1/responses` has.

Source: OpenAI's API reference, "Create a response", `tools`. Fields of a tool that are not listed here have no effect.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from gateway.proxy import ToolEntry
from gateway.proxy.approvals import is_read_only
from gateway.serve.generation.fields import FAIL_FAST, ApiModel
from gateway.serve.generation.schemas import MOST_TOOLS

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
    server_description: str | None = None
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
