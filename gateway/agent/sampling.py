"""Sampling requests of MCP servers (`sampling/createMessage`), answered by our own engine.

Turns MCP's messages into the engine's and its answer into a CreateMessageResult. No tools are offered and none are run:
a sampling request is one generation. It knows no server and no budget: `proxy/upstream/sampling.py` does the counting.
`turn.py` generates; `app` joins the two.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from gateway.agent.agent import Agent
from gateway.agent.choice import ToolChoice
from gateway.agent.events import AgentEvent, Finished
from gateway.agent.turn import AnswerOptions
from gateway.engine.interface import Sampling
from gateway.errors import GatewayError, RpcError
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS
from gateway.proxy.caller import ANYBODY, Principal
from gateway.toolcalls import Content

_NO_CALL: Final = ToolChoice("none")


class EngineSampler:
    """Answers sampling requests (`proxy.upstream.sampling.Sampler`)."""

    def __init__(self, agent: Callable[[], Agent]) -> None:
        """`agent`: returns the agent; called only when needed, since the agent needs the proxy that needs this."""
        self._agent = agent

    async def sample(
        self, params: Mapping[str, Any], most: int, payer: Principal = ANYBODY
    ) -> tuple[dict[str, Any], int]:
        """The CreateMessageResult, and the number of tokens that were generated.

        Raises:
            RpcError: the messages hold something other than text, or the engine can't answer.
        """
        parts: list[str] = []

        async def take(event: AgentEvent) -> None:
            if isinstance(event, Content):
                parts.append(event.text)

        try:
            agent = self._agent()
            conversation = await agent.open(engine_messages(params), choice=_NO_CALL, principal=payer, bare=True)
            options = AnswerOptions(_NO_CALL, max_tokens=most, sampling=_sampling(params), stops=_stops(params))
            finished = await agent.answer(conversation, options, take)
        except GatewayError as error:
            if isinstance(error, RpcError):
                raise
            raise RpcError({"code": INTERNAL_ERROR, "message": f"the gateway's engine: {error.message}"}) from None
        content = {"type": "text", "text": "".join(parts)}
        result = {
            "role": "assistant",
            "content": content,
            "model": conversation.ready.facts.model,
            "stopReason": _reason(finished),
        }
        return result, finished.completion_ids


def engine_messages(params: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a CreateMessageRequest in the engine's shape. Raises `RpcError` for what is not text."""
    messages: list[dict[str, Any]] = []
    system: object = params.get("systemPrompt")
    if isinstance(system, str) and system:
        messages.append({"role": "system", "content": system})
    given: object = params.get("messages")
    for message in cast("list[object]", given) if isinstance(given, list) else []:
        fields = cast("dict[str, Any]", message) if isinstance(message, dict) else {}
        if fields.get("role") not in ("user", "assistant"):
            raise _refused("each message needs the role 'user' or 'assistant'")
        messages.append({"role": fields["role"], "content": _text(fields.get("content"))})
    if not any(message["role"] == "user" for message in messages):
        raise _refused("at least one message must have the role 'user'")
    return messages


def _text(content: object) -> str:
    blocks = cast("list[object]", content) if isinstance(content, list) else [content]
    texts: list[str] = []
    for block in blocks:
        fields = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
        if fields.get("type") != "text" or not isinstance(fields.get("text"), str):
            raise _refused(f"the gateway's engine reads text only, not {str(fields.get('type'))[:40]!r}")
        texts.append(fields["text"])
    return "\n".join(texts)


def _sampling(params: Mapping[str, Any]) -> Sampling:
    temperature: object = params.get("temperature")
    return Sampling(temperature=float(temperature) if isinstance(temperature, int | float) else None)


def _stops(params: Mapping[str, Any]) -> tuple[str, ...]:
    stops: object = params.get("stopSequences")
    return (
        tuple(stop for stop in cast("list[object]", stops) if isinstance(stop, str)) if isinstance(stops, list) else ()
    )


def _reason(finished: Finished) -> str:
    return "maxTokens" if finished.reason == "length" else "endTurn"


def _refused(message: str) -> RpcError:
    return RpcError({"code": INVALID_PARAMS, "message": message})
