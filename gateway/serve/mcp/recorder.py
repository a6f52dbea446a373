"""What is written down of a client's request: a line of the audit log, and a span.

Turns a request, while it runs, into both, as far as the operator wants them; where neither is wanted nothing here runs.
It changes no request and no answer.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.errors import RpcError
from gateway.observe.audit import Audit
from gateway.observe.audit_line import AuditLine, Source
from gateway.protocol.eras import VERSION_KEY, meta_of
from gateway.protocol.headers import NAMED_BY
from gateway.protocol.messages import RequestId
from gateway.proxy.blocks import content_of
from gateway.proxy.results import outcome_of
from gateway.serve.mcp.servers import Servers
from gateway.serve.mcp.sessions import Call
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.vocab import TokenMap

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

_FAULT: Final = "refused"


class Recorder:
    """Watches requests for one face."""

    def __init__(self, servers: Servers, audit: Audit | None, tracing: "Tracing | None") -> None:
        """One of the two may be None."""
        self._servers = servers
        self._audit = audit
        self._tracing = tracing

    def see(self, request_id: RequestId, method: str, params: Mapping[str, Any], call: Call) -> "CallRecord":
        """Begin with a request."""
        audit = self._audit if method in NAMED_BY else None
        return CallRecord(request_id, method, params, call, self._server_of(method, params), audit, self._tracing)

    def _server_of(self, method: str, params: Mapping[str, Any]) -> str | None:
        name = params.get("name")
        return self._servers.server_of(name) if method == "tools/call" and isinstance(name, str) else None


class CallRecord:
    """One request while it runs."""

    def __init__(
        self,
        request_id: RequestId,
        method: str,
        params: Mapping[str, Any],
        call: Call,
        server: str | None,
        audit: Audit | None,
        tracing: "Tracing | None",
    ) -> None:
        self._request_id = request_id
        self._method = method
        self._params = params
        self._call = call
        self._server = server
        self._audit = audit
        self._tracing = tracing
        self._began = perf_counter()
        self._outcome = _FAULT
        self._ended: str | None = None
        self._source: Source = "none"
        self._ids = 0
        self._map: TokenMap | None = None

    async def around(self, result: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        """Await the result inside the request's span, and keep in mind how it ended."""
        try:
            answer = await (result if self._tracing is None else self._spanned(self._tracing, result))
        except asyncio.CancelledError:
            self._outcome = "cancelled"
            self.end(0)
            raise
        self._outcome = self._ended or outcome_of(answer)
        return answer

    def made(self, before: Mapping[str, Any], after: Mapping[str, Any], token_map: TokenMap | None) -> None:
        """What the server's result became for the client: whose ids leave with it."""
        self._ended = outcome_of(before)
        if self._audit is None:
            return
        ours = _ids_in(after)
        theirs = ours if after is before else _ids_in(before)
        kept = [ids for ids in ours if ids in theirs]
        self._map = token_map
        self._ids = sum(map(len, ours))
        self._source = "none" if not ours else "leaf" if len(kept) == len(ours) else "mixed" if kept else "shim"

    def end(self, bytes_out: int) -> None:
        """The answer is made; a cancelled request has none."""
        if self._audit is None:
            return
        name, arguments = self._params.get(NAMED_BY[self._method]), self._params.get("arguments")
        self._audit.record(
            AuditLine(
                principal=self._call.principal.name,
                face="mcp-stdio" if self._call.headers is None else "mcp-http",
                method=self._method,
                outcome=self._outcome,
                server=self._server,
                tool=name if isinstance(name, str) else None,
                map=None if self._map is None else self._map.map_id,
                source=self._source,
                bytes_in=self._call.size,
                bytes_out=bytes_out,
                ids=self._ids,
                duration_ms=(perf_counter() - self._began) * 1000,
                request_id=self._request_id,
                arguments=cast(dict[str, Any], arguments) if isinstance(arguments, dict) else None,
            )
        )
        self._audit = None

    async def _spanned(self, tracing: "Tracing", result: Awaitable[dict[str, Any]]) -> dict[str, Any]:
        call = self._call
        version: object = meta_of(self._params).get(VERSION_KEY) if call.session is None else call.session.version
        with tracing.server_span(
            self._method,
            self._params,
            request_id=self._request_id,
            session_id=(call.session.session_id or None) if call.session is not None else None,
            version=version if isinstance(version, str) else None,
            transport="pipe" if call.headers is None else "tcp",
            headers=call.headers,
        ) as traced:
            try:
                answer = await result
            except RpcError as error:
                traced.failed(error)
                raise
            traced.answered(answer)
            return answer


def _ids_in(result: Mapping[str, Any]) -> list[list[int]]:
    """The ids of each block that has some."""
    found: list[list[int]] = []
    blocks = (cast(dict[str, Any], block) for block in content_of(result) if isinstance(block, dict))
    for block in blocks:
        payload: object = meta_of(block).get(CODEC_META_KEY)
        ids: object = cast(dict[str, Any], payload).get("ids") if isinstance(payload, dict) else None
        if isinstance(ids, list):
            found.append(cast(list[int], ids))
    return found
