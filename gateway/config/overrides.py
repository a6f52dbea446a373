"""What the operator changes about single tools, and which of their calls somebody has to approve."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.config.section import Section
from gateway.errors import ConfigError

AskLevel = Literal["never", "destructive", "writes", "always"]
"""From the loosest to the strictest."""


@dataclass(frozen=True, slots=True)
class ApprovalsConfig:
    """Which calls wait for an approval."""

    ask: AskLevel = "never"
    tools: Mapping[str, AskLevel] = field(default_factory=dict[str, AskLevel])


APPROVALS: Final = ApprovalsConfig()


class ApprovalsSection(Section):
    """`[approvals]`: which calls somebody has to approve before they are made ([how](approvals.md))."""

    ask: AskLevel = Field(
        default=APPROVALS.ask,
        description="Whose calls need approval. `never`: no tool's; `destructive`: those of tools that may delete or "
        "overwrite something, by their annotations; `writes`: those of tools that are not annotated as read-only; "
        "`always`: all. A tool without annotations counts as one that may delete. Where nobody can be asked, such a "
        "call is refused.",
    )
    tools: dict[str, AskLevel] = Field(
        default={},
        description="The same for single tools, by their public names or patterns (`*`, `?`). A name counts before "
        "patterns, and of several patterns the strictest counts.",
    )


def build_approvals(values: Mapping[str, Any]) -> ApprovalsConfig:
    """The settings from a checked layer."""
    return ApprovalsConfig(values.get("ask", APPROVALS.ask), dict(values.get("tools", {})))


OWN_TOOLS: Final = ("codec_search_tools", "codec_call_tool")
"""The names of the gateway's own tools (`tool_search`)."""
RESULT_TOOLS: Final = ("codec_read_result", "codec_search_result")
"""The names of those with which a model on `/v1` reads on in a result that was too large for it."""
Overrides = Mapping[str, "ToolOverride"]


@dataclass(frozen=True, slots=True)
class ToolOverride:
    """What clients see of one tool in place of what its server says; None and empty: the server's."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: Mapping[str, Any] = field(default_factory=dict[str, Any])
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])


def _json(values: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(values, allow_nan=False)
    except (TypeError, ValueError):
        raise PydanticCustomError("not_json", "values that JSON has, so no date, time, nan or inf") from None
    return values


class AnnotationsSection(Section):
    """`[upstreams.NAME.overrides.TOOL.annotations]`: what a tool does; [approvals](approvals.md) go by it."""

    # The names are those of MCP.
    title: str | None = Field(default=None, description="Title for people, in clients that know no `title` of a tool.")
    readOnlyHint: bool | None = Field(default=None, description="Whether it changes nothing.")  # noqa: N815
    destructiveHint: bool | None = Field(  # noqa: N815
        default=None, description="Whether it may delete or overwrite something."
    )
    idempotentHint: bool | None = Field(  # noqa: N815
        default=None, description="Whether a second call with the same arguments changes nothing more."
    )
    openWorldHint: bool | None = Field(  # noqa: N815
        default=None, description="Whether it reaches things outside, such as the web."
    )


class OverrideSection(Section):
    """`[upstreams.NAME.overrides.TOOL]`, `[views.NAME.overrides.TOOL]`: what clients see of a tool."""

    name: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="New name, used as it is, without a prefix. The former one can no longer be called "
        "([how](mcp-clients.md#change-what-clients-see-of-a-tool)).",
    )
    title: str | None = Field(default=None, description="New title for people.")
    description: str | None = Field(default=None, description="New description.")
    annotations: AnnotationsSection = AnnotationsSection()
    defaults: Annotated[dict[str, Any], AfterValidator(_json)] = Field(
        default={},
        description="Values for arguments that a caller leaves out. The listed schema shows them as `default`, and "
        "no longer requires these arguments.",
    )


def build_overrides(tables: Mapping[str, Mapping[str, Any]]) -> Overrides:
    """The overrides from checked tables, by tool."""
    return {tool: ToolOverride(**table) for tool, table in tables.items()}


def refuse_shared_names(upstreams: Mapping[str, Overrides], views: Mapping[str, Overrides]) -> None:
    """Refuse new names that another tool has, as far as the configuration alone tells. Raises `ConfigError`: names the
    table."""
    ours: dict[str, str] = dict.fromkeys((*OWN_TOOLS, *RESULT_TOOLS), "the gateway's own tool")
    taken = dict(ours)
    for server, overrides in upstreams.items():
        _claim(f"upstreams.{server}.overrides", overrides, taken)
    for view, overrides in views.items():
        tables = f"views.{view}.overrides"
        kept = {tool: f"{tables}.{tool}" for tool, override in overrides.items() if override.name is None}
        _claim(tables, overrides, {**ours, **kept})


def _claim(tables: str, overrides: Overrides, taken: dict[str, str]) -> None:
    for tool, override in overrides.items():
        table = f"{tables}.{tool}"
        if override.name and (whose := taken.setdefault(override.name, table)) != table:
            raise ConfigError(f"{table}.name: {override.name!r} is already the name of {whose}: choose another")
