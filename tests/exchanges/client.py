"""A raw MCP client of either era: plays one step and writes down all that came of it.

Turns a step into an exchange: the request, what was heard in its course (pushes, and questions with their answers), and
the result or the error, exactly as they came. Between the eras it evens out only what the protocol says must differ.
"""

import asyncio
from collections import deque
from typing import Any

import anyio

from tests.exchanges.steps import STEP_KEY, Step
from tests.exchanges.wires import Message, Wire

CAPABILITIES: dict[str, Any] = {
    "roots": {"listChanged": True},
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
}
_INFO = {"name": "exchanges", "version": "1"}
_PREFIX = "io.modelcontextprotocol/"
_TIME = 20.0
_PUSH_TIME = 5.0
_EMPTY = {"resultType": "complete"}


class Client:
    """One client of one server. Made by `async with`."""

    def __init__(self, wire: Wire, *, modern: bool, roots: list[dict[str, str]]) -> None:
        self.aside: list[Message] = []
        """What the server said or asked of its own accord, in the course of no request."""
        self.greeting: Message = {}
        """What it answered to `initialize` or `server/discover`."""
        self._wire = wire
        self._modern = modern
        self._roots = roots
        self._capabilities = CAPABILITIES
        self._last = 0
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._heard: list[Message] = []
        self._changed = asyncio.Event()
        self._answers: deque[dict[str, Any]] = deque()
        self._replies: set[asyncio.Task[None]] = set()
        self._streams: dict[str, int] = {}
        self._given_up: set[str] = set()

    async def __aenter__(self) -> "Client":
        await self._wire.open(self._take)
        if self._modern:
            self.greeting = await self._request("server/discover", {})
            return self
        params = {"protocolVersion": "2025-11-25", "capabilities": CAPABILITIES, "clientInfo": _INFO}
        self.greeting = await self._request("initialize", params)
        await self._wire.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        await self._wire.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._wire.close()

    async def play(self, step: Step) -> Message:
        """Send the step's request and give the exchange."""
        self._heard, self._answers = [], deque(step.answers)
        self._capabilities = {} if step.unasked else CAPABILITIES
        params = {**step.params, "_meta": {**step.params.get("_meta", {}), STEP_KEY: step.name}}
        exchange: Message = {"step": step.name, "method": step.method, "params": params}
        if self._modern and step.modern != "same":
            return {**exchange, "heard": [], **await self._stream(step)}
        if step.cancel:
            ended = await self._cancelled(step, params)
        else:
            ended = _outcome(await self._rounds(step.method, params, progress=step.progress))
        await self._hear(step.hears)
        if step.own:
            ended = {"own": "error" if "error" in ended else "result"}
        return {**exchange, "heard": list(self._heard), **ended}

    async def _cancelled(self, step: Step, params: Message) -> Message:
        # A modern gateway may first ask back what a server of the handshake era wants to know.
        call = asyncio.create_task(self._rounds(step.method, params, progress=step.progress))
        await self._hear(1)
        call.cancel()
        number = self._last
        # Later pushes may be on their way already.
        self._given_up.add(f"token {number}")
        if self._modern:
            await self._wire.abandon(number)
        else:
            said = {"requestId": number, "reason": "not wanted any more"}
            await self._wire.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": said})
        del self._heard[1:]
        return {"cancelled": True}

    async def _stream(self, step: Step) -> Message:
        """What replaces `resources/subscribe` in the modern era."""
        uri = step.params["uri"]
        if step.modern == "unlisten":
            await self._wire.abandon(self._streams.pop(uri))
            return {"result": dict(_EMPTY)}
        self._streams[uri] = number = self._last + 1
        await self._send(number, "subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
        await self._hear(1)
        return {"result": dict(_EMPTY)}

    async def _rounds(self, method: str, params: Message, *, progress: bool) -> Message:
        """Ask until the result is complete: a modern server asks back by its results."""
        answer = await self._request(method, params, progress=progress)
        while answer.get("result", {}).get("resultType") == "input_required":
            result = answer["result"]
            responses = {key: self._answer(asked) for key, asked in (result.get("inputRequests") or {}).items()}
            more = {"inputResponses": responses}
            if "requestState" in result:
                more["requestState"] = result["requestState"]
            answer = await self._request(method, {**params, **more}, progress=progress)
        return answer

    async def _request(self, method: str, params: Message, *, progress: bool = False) -> Message:
        number = self._last + 1
        waiting = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._send(number, method, params, progress=progress)
        with anyio.move_on_after(_TIME):
            return await waiting
        del self._waiting[number]
        return {"error": {"code": 0, "message": f"no answer within {_TIME:g} s"}}

    async def _send(self, number: int, method: str, params: Message, *, progress: bool = False) -> None:
        self._last = number
        meta = {**params.get("_meta", {}), **(self._envelope() if self._modern else {})}
        if progress:
            meta["progressToken"] = f"token {number}"
        if meta:
            params = {**params, "_meta": meta}
        await self._wire.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})

    def _envelope(self) -> Message:
        return {
            f"{_PREFIX}protocolVersion": "2026-07-28",
            f"{_PREFIX}clientInfo": _INFO,
            f"{_PREFIX}clientCapabilities": self._capabilities,
            f"{_PREFIX}logLevel": "debug",
        }

    def _take(self, message: Message) -> None:
        if "method" not in message:
            waiting = self._waiting.pop(message["id"], None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)
        elif "id" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": self._answer(message)}
            task = asyncio.create_task(self._wire.send(reply))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)
        else:
            self._note({"method": message["method"], "params": message.get("params", {})})
        self._changed.set()

    def _answer(self, asked: Message) -> dict[str, Any]:
        """Answer a question, and write both down."""
        if asked["method"] == "roots/list":
            answer: dict[str, Any] = {"roots": self._roots}
        else:
            answer = self._answers.popleft() if self._answers else {"action": "cancel"}
        question = {"method": asked["method"], "params": asked.get("params") or {}}
        self._note({"asked": question, "answered": answer})
        return answer

    def _note(self, pushed: Message) -> None:
        if pushed.get("params", {}).get("progressToken") in self._given_up:
            return
        (self.aside if _is_aside(pushed) else self._heard).append(_neutral(pushed))

    async def _hear(self, count: int) -> None:
        """Wait until that many pushes of this step were heard; they are compared afterwards, come or not."""
        with anyio.move_on_after(_PUSH_TIME):
            while len(self._heard) < count:
                self._changed.clear()
                await self._changed.wait()


def _is_aside(pushed: Message) -> bool:
    """Whether it belongs to the session: when it comes depends on clocks."""
    if pushed.get("asked", {}).get("method") == "roots/list":
        return True
    told = str(pushed.get("params", {}).get("data", ""))
    return pushed.get("method", "").endswith("list_changed") or told.startswith("Roots updated")


def _neutral(pushed: Message) -> Message:
    """A push without what ties it to one connection: its progress token, its stream."""
    params = dict(pushed.get("params", {}))
    if "progressToken" in params:
        params["progressToken"] = "<token>"
    meta = {key: value for key, value in params.get("_meta", {}).items() if not key.startswith(_PREFIX)}
    params.pop("_meta", None)
    if meta:
        params["_meta"] = meta
    return {**pushed, "params": params} if "params" in pushed else pushed


def _outcome(answer: Message) -> Message:
    if "error" in answer:
        return {"error": answer["error"]}
    return {"result": answer["result"]}
