"""What requests of all APIs may ask for, in the agent's terms: how much to think, whose tools, how to begin. Pure."""

from collections.abc import Container, Mapping
from typing import Final, Literal

from gateway.agent import EVERY_TOOL, NO_TOOL, ToolChoice, ToolScope
from gateway.errors import RequestInvalid
from gateway.toolcalls import AnswerForm

GatewayTools = Literal["all", "none"]

_SWITCHES: Final = ("enable_thinking", "thinking", "reasoning")
"""What chat templates call the switch of reasoning, each one of these if it has one."""


def thinking_options(effort: str | None, *, thinks: bool | None = None) -> dict[str, str | bool]:
    """What the chat template is told of how much to think. `thinks`: whether at all, where that was said."""
    wanted = False if effort == "none" else thinks
    switched: dict[str, str | bool] = {} if wanted is None else dict.fromkeys(_SWITCHES, wanted)
    return switched if effort is None else {"reasoning_effort": effort, **switched}


def is_unheard(effort: str | None, used: Container[str]) -> bool:
    """Whether the template makes nothing of an effort. `used`: options that it knows."""
    return effort is not None and not any(name in used for name in thinking_options(effort))


def scope_of(gateway_tools: GatewayTools, servers: Mapping[str, frozenset[str] | None] | None) -> ToolScope:
    """The gateway's tools that a request wants to see. `servers`: those that it narrows itself to, if it does."""
    if gateway_tools == "none":
        return NO_TOOL
    return EVERY_TOOL if servers is None else ToolScope(servers)


def must_begin_freely(form: AnswerForm | None, choice: ToolChoice, where: str, way_out: str) -> None:
    """Raise `RequestInvalid` for an answer that goes on with a text and that a grammar holds from its beginning."""
    if form is not None or choice.mode == "required":
        words = f"{where}: what a grammar holds (a form of the answer, a required call) begins with the grammar; "
        raise RequestInvalid(words + way_out, param=where)
