"""Options that requests of several APIs share, in the agent's terms: reasoning, tools, the answer's beginning. Pure."""

from collections.abc import Container, Mapping
from typing import Final, Literal

from gateway.agent import EVERY_TOOL, NO_TOOL, ToolChoice, ToolScope
from gateway.errors import RequestInvalid
from gateway.toolcalls import AnswerForm

GatewayTools = Literal["all", "none"]

_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning")
"""Names of the option that switches reasoning on and off: a chat template that has it uses one of these."""


def thinking_options(effort: str | None, *, thinks: bool | None = None) -> dict[str, str | bool]:
    """The chat template's options for how much to think. `thinks`: whether to think at all, where the request says."""
    wanted = False if effort == "none" else thinks
    switched: dict[str, str | bool] = {} if wanted is None else dict.fromkeys(_SWITCHES, wanted)
    return switched if effort is None else {"reasoning_effort": effort, **switched}


def ignores_effort(effort: str | None, used: Container[str]) -> bool:
    """Whether the template ignores the effort asked for. `used`: the options that the template knows."""
    return effort is not None and not any(name in used for name in thinking_options(effort))


def scope_of(gateway_tools: GatewayTools, servers: Mapping[str, frozenset[str] | None] | None) -> ToolScope:
    """The gateway's tools that a request wants. `servers`: those that it restricts itself to; None: no restriction."""
    if gateway_tools == "none":
        return NO_TOOL
    return EVERY_TOOL if servers is None else ToolScope(servers)


def check_continuation(form: AnswerForm | None, choice: ToolChoice, where: str, way_out: str) -> None:
    """Raise `RequestInvalid` for an answer that must continue a text and also follow a grammar from its first id."""
    if form is not None or choice.mode == "required":
        words = f"{where}: an answer with a required form or a required call can't continue a text: "
        raise RequestInvalid(words + way_out, param=where)
