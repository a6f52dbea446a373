"""Clients of both eras that make calls, answer questions, cancel, come back for streams, and end their sessions.

They speak HTTP through the balancer by themselves (aiohttp): they are to cost little, to do what an SDK can't be told
to, and to see which replica was asked. They try again what they are told to try again (503), and nothing else.
"""

import json
import random
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import aiohttp
import anyio

from tests.replicas.ledger import ANSWERED, CALL_GONE, CANCELLED, SESSION_GONE, UNANSWERED, Call, Ledger
from tests.replicas.server import TOOLS, answer_of
from tests.replicas.site import SERVERS, TOKEN, now

Era = Literal["2025", "2026"]
KINDS = {"quick": 78, "ask": 8, "slow": 4, "resume": 6, "cancel": 4}
"""What calls are, and how many of a hundred."""
SHARED_KINDS = {**KINDS, "quick": 70, "late": 8}
"""With a store: clients also come back when their answer waits for them, and perhaps nobody has it any more."""
_STREAMS = ("resume", "late")
"""Of 2025 alone."""
_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "check", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
_GREETING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "check", "version": "1"},
}
_BROKEN = (aiohttp.ClientError, OSError, TimeoutError)
_TIMES = 400


class Ended(Exception):
    """A call is over, and was not answered."""


class Said(Exception):
    """An HTTP status that is no answer of MCP."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text[:200]}")
        self.status = status


@dataclass
class Tickets:
    """The numbers of calls, each given once."""

    most: int
    given: int = 0
    answered: int = 0

    def end(self) -> None:
        """Give no more."""
        self.most = self.given

    def __iter__(self) -> Iterator[int]:
        while self.given < self.most:
            self.given += 1
            yield self.given


@dataclass
class Client:
    """One client; sequential, as agents are."""

    http: aiohttp.ClientSession
    url: str
    era: Era
    ledger: Ledger
    owner: Callable[[str], str | None]
    """Where a session lives."""
    draw: random.Random
    session: str | None = None
    since: float = 0.0
    leaves: float = 0.01
    """How often it ends its session behind a call."""
    kinds: Mapping[str, int] = field(default_factory=lambda: KINDS)
    key: str = TOKEN

    async def run(self, tickets: Tickets) -> None:
        """Make calls while there are tickets."""
        for number in tickets:
            kind = self.draw.choices([*self.kinds], [*self.kinds.values()])[0]
            if self.era == "2026" and kind in _STREAMS:
                kind = "slow"
            call = Call(number, self.era, kind)
            await self.make(call)
            tickets.answered += call.outcome == ANSWERED
            if self.session is not None and self.draw.random() < self.leaves:
                await self._leave()

    async def make(self, call: Call, timeout: float = 45.0) -> Call:
        """Make a call, in a session where its era has some; gives it when it is over."""
        if self.era == "2025" and self.session is None:
            await self.begin()
        self.ledger.calls.append(call)
        call.began = now()
        call.since = self.since if self.era == "2025" else call.began
        call.owner = self.owner(self.session) if self.session is not None else None
        server = f"s{self.draw.randrange(SERVERS)}"
        word = f"{self.draw.getrandbits(64):x}"
        try:
            async with _within(timeout):
                text = await Errand(self, call, server, word).text()
            told = f" and yes to {call.number}" if call.kind == "ask" else ""
            call.outcome = ANSWERED
            if text != (right := answer_of(server, call.number, word, told)):
                call.wrong = f"{text!r:.200}, not {right!r}"
        except Ended as ended:
            call.outcome = str(ended)
        call.ended = now()
        if call.outcome == SESSION_GONE:
            self.session = None
        return call

    async def begin(self) -> None:
        """Open a session, however often that must be tried."""
        for _ in range(_TIMES):
            try:
                async with self.http.post(
                    self.url, json=message_of("initialize", _GREETING, 0), headers=self._own
                ) as answer:
                    said = await answer.read()
                    if answer.status == 200 and b'"result"' in said:
                        self.session, self.since = answer.headers["mcp-session-id"], now()
                        break
            except _BROKEN:
                pass
            await anyio.sleep(0.2)
        else:
            raise RuntimeError("no session could be opened")
        await self.tell(message_of("notifications/initialized", {}))

    async def _leave(self) -> None:
        """End the session; it is gone for whoever is asked next."""
        headers = self.headers()
        asked = now()
        session, self.session = self.session, None
        assert session is not None
        try:
            async with self.http.delete(self.url, headers=headers) as ended:
                pass
            if ended.status != 200:
                return  # Its owner is gone, or about to be.
            async with self.http.post(self.url, json=message_of("ping", {}, 1), headers=headers) as after:
                if after.status not in (404, 503):
                    where = f"{ended.headers.get('x-replica')}, {after.headers.get('x-replica')}"
                    self.ledger.strange.append(
                        f"a session that was ended at {asked:.1f} answered {after.status} ({where})"
                    )
        except _BROKEN:
            return

    def headers(self, call: str | None = None) -> dict[str, str]:
        """Of a request; `call`: the tool that is called."""
        if self.era == "2025":
            named = {} if self.session is None else {"mcp-session-id": self.session}
            return {**self._own, "mcp-protocol-version": "2025-11-25", **named}
        named = {"mcp-method": "tools/call", "mcp-name": str(call)}
        return {**self._own, "mcp-protocol-version": "2026-07-28", **named}

    @property
    def _own(self) -> dict[str, str]:
        return {**HEADERS, "authorization": f"Bearer {self.key}"}

    async def tell(self, message: dict[str, Any]) -> bool:
        """What is not answered, until it is taken or its session is gone: it may come twice. Gives whether it was."""
        for _ in range(_TIMES):
            try:
                async with self.http.post(self.url, json=message, headers=self.headers()) as answer:
                    if answer.status < 500:
                        return answer.status == 202
            except _BROKEN:
                pass
            await anyio.sleep(0.1)
        return False


@asynccontextmanager
async def _within(seconds: float) -> AsyncGenerator[None]:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise Ended(f"no answer within {seconds:g} s") from None
    except _BROKEN:
        raise Ended(UNANSWERED) from None


class Errand:
    """One call on its way."""

    def __init__(self, client: Client, call: Call, server: str, word: str) -> None:
        self._client = client
        self._call = call
        tool = call.kind if call.kind in TOOLS else "slow"
        self._tool = f"{server}__{tool}"
        steps = {"resume": 4, "late": 4, "long": 30, "cancel": 100}.get(call.kind, 2)
        self._params: dict[str, Any] = {
            "name": self._tool,
            "arguments": {"number": call.number, "word": word, "steps": steps},
            "_meta": {} if tool == "quick" else {"progressToken": call.number},
        }
        if call.era == "2026":
            self._params["_meta"].update(_META)
        self._last: str | None = None

    async def text(self) -> str:
        """What the call is answered with. Raises `Ended`."""
        message = await self.answer()
        while (result := message.get("result", {})).get("resultType") == "input_required":
            message = await self.answer(self.next_round(result))
        return self._read(message)

    def next_round(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """What goes on with a call that asks for something: a yes to everything."""
        answers = {key: self._yes(asked["params"]) for key, asked in result["inputRequests"].items()}
        return {"requestState": result["requestState"], "inputResponses": answers}

    def _read(self, message: dict[str, Any]) -> str:
        if "error" in message:
            error = message["error"]
            if self._call.stopped:
                raise Ended(CANCELLED)
            if "requestState" in error["message"]:
                raise Ended(CALL_GONE)
            raise Ended(f"error {error['code']}: {error['message'][:80]}")
        text = message["result"]["content"][0]["text"]
        if message["result"].get("isError"):
            raise Ended(f"error result: {text[:80]}")
        return text

    async def answer(self, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """What the request is answered with. `more`: params of a further round. Raises `Ended`."""
        message = message_of("tools/call", {**self._params, **(more or {})}, self._call.number)
        for _ in range(_TIMES):
            try:
                return await self._said("post", json=message, headers=self._client.headers(self._tool))
            except Said as said:
                if said.status == 503:
                    self._call.again += 1
                    await anyio.sleep(0.1)
                    continue
                raise Ended(SESSION_GONE if said.status == 404 else f"HTTP {said.status}") from None
            except _BROKEN:
                if self._last is None or self._call.era == "2026":
                    raise
            except EOFError:
                if self._call.stopped:
                    raise Ended(CANCELLED) from None
                if self._last is None:
                    raise Ended("stream ended without an answer") from None
            return await self._resumed()
        raise Ended("told to come again, too often")

    async def _resumed(self) -> dict[str, Any]:
        """The rest of the stream, by the id of the last event."""
        if self._call.kind == "late" and not self._call.back:
            await anyio.sleep(self._client.draw.uniform(0.3, 5.0))
        self._call.back = self._call.back or now()
        for _ in range(_TIMES):
            self._call.resumed += 1
            headers = {**self._client.headers(), "last-event-id": str(self._last)}
            try:
                return await self._said("get", headers=headers)
            except Said as said:
                if said.status == 404:
                    raise Ended(SESSION_GONE) from None
                if said.status < 500:
                    raise Ended(f"resumed: HTTP {said.status}") from None
            except (*_BROKEN, EOFError):
                if self._call.stopped:
                    raise Ended(CANCELLED) from None
            await anyio.sleep(0.1)
        raise Ended("stream could not be taken up")

    async def _said(self, method: str, **request: Any) -> dict[str, Any]:
        """The answer's message. Raises `Said`, EOFError for a stream without one, or what breaks connections."""
        async with self._client.http.request(method, self._client.url, **request) as answer:
            if replica := answer.headers.get("x-replica"):
                self._call.asked.add(replica)
            if answer.content_type != "text/event-stream":
                body = await answer.read()
                if answer.status not in (200, 400) or not body.startswith(b'{"jsonrpc"'):
                    raise Said(answer.status, body.decode(errors="replace"))
                return json.loads(body)
            event_id = None
            async for line in answer.content:
                if line.startswith(b"id:"):
                    event_id = line[3:].strip().decode()
                elif line.startswith(b"data:") and line[5:].strip():
                    self._last = event_id or self._last
                    message = json.loads(line[5:])
                    if "method" not in message:
                        return message
                    if await self._heard(message):
                        break
        raise EOFError

    async def _heard(self, message: dict[str, Any]) -> bool:
        """Something that came before the answer; gives whether the stream is left."""
        call = self._call
        if message["method"] == "elicitation/create":
            answer = {"jsonrpc": "2.0", "id": message["id"], "result": self._yes(message["params"])}
            await self._client.tell(answer)
        elif call.kind == "cancel" and not call.stopped:
            call.stopped = True
            if call.era == "2026":
                return True
            await self._client.tell(message_of("notifications/cancelled", {"requestId": call.number}))
        return call.kind in _STREAMS and not call.resumed and self._last is not None

    def _yes(self, params: dict[str, Any]) -> dict[str, Any]:
        if params["message"] != str(self._call.number):
            self._call.wrong = f"the question of call {params['message']}"
        return {"action": "accept", "content": {"text": f"yes to {params['message']}"}}


HEADERS = {"authorization": f"Bearer {TOKEN}", "accept": "application/json, text/event-stream"}


def message_of(method: str, params: dict[str, Any], number: int | None = None) -> dict[str, Any]:
    """One message of JSON-RPC; without a number, a notification."""
    named = {} if number is None else {"id": number}
    return {"jsonrpc": "2.0", **named, "method": method, "params": params}
