"""Which calls of tools somebody has to approve before they are made."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import Field

from gateway.config.section import Section

Ask = Literal["never", "destructive", "writes", "always"]
"""From the loosest to the strictest."""


@dataclass(frozen=True, slots=True)
class ApprovalsConfig:
    """Which calls wait for an approval."""

    ask: Ask = "never"
    """For every tool that `tools` does not name."""
    tools: Mapping[str, Ask] = field(default_factory=dict[str, Ask])
    """By public names, or patterns of these."""


APPROVALS: Final = ApprovalsConfig()


class ApprovalsSection(Section):
    """`[approvals]`: which calls somebody has to approve before they are made ([how](approvals.md))."""

    ask: Ask = Field(
        default=APPROVALS.ask,
        description="Whose calls need approval. `never`: no tool's; `destructive`: those of tools that may delete or "
        "overwrite something, by their annotations; `writes`: those of tools that are not annotated as read-only; "
        "`always`: all. A tool without annotations counts as one that may delete. Where nobody can be asked, such a "
        "call is refused.",
    )
    tools: dict[str, Ask] = Field(
        default={},
        description="The same for single tools, by their public names or patterns (`*`, `?`). A name counts before "
        "patterns, and of several patterns the strictest counts.",
    )


def build_approvals(values: Mapping[str, Any]) -> ApprovalsConfig:
    """The settings from a checked layer."""
    return ApprovalsConfig(values.get("ask", APPROVALS.ask), dict(values.get("tools", {})))
