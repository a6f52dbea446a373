"""What is recorded of a client's request: a line in the audit log, and a span of a trace.

Makes both from a request while it runs, as far as the operator has configured them; if neither is configured, nothing
here runs. It changes no request and no answer.
"""

import asyncio
from collections.abc import Awaitable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, cast

from gateway.errors import RpcError
from gateway.observe.audit import Audit, AuditLine
from gateway.protocol.eras import VERSION_KEY, meta_of
from gateway.protocol.headers import NAMED_BY
from gateway.protocol.messages import RequestId
from gateway.proxy.proxy import Proxy
from gateway.proxy.results import CallOutcome
from gateway.serve.mcp.sessions import ClientCall

if TYPE_CHECKING:
    from gateway.observe.tracing import Tracing

_FAULT: Final = "refused"


class Recorder:
    """Records the requests of one endpoint."""

    def __init__(self, servers: Proxy, audit: Audit | None, tracing: "Tracing | None") -> None:
        """Either of `audit` and `tracing` may be None."""
        self._servers = servers
        self._audit = audit
        self._tracing = tracing

    def begin(self, request_id: RequestId, method: str, params: Mapping[str, Any], call: ClientCall) -> "RequestRecord":
        """Begin the record of a request."""
        audit = self._audit if method in NAMED_BY else None
        return RequestRecord(
            request_id, method, params, call, self._server_of(method, params, call), audit, self._tracing
        )

    def _server_of(self, method: str, params: Mapping[str, Any], call: ClientCall) -> str | None:
        name = params.get("name")
        return (
            self._servers.server_of(name, call.principal.view)
            if method == "tools/call" and isinstance(name, str)
            else None
        )


class RequestRecord:
    """The record of one request while it runs."""

    def __init__(
        self,
        request_id: RequestId,
        method: str,
        params: Mapping[str, Any],
        call: ClientCall,
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
        self._outcome: CallOutcome | None = None

    async def around(self, awaited: Awaitable[CallOutcome]) -> CallOutcome:
        """Await the outcome inside the request's span."""
        try:
            self._outcome = await (awaited if self._tracing is None else self._spanned(self._tracing, awaited))
        except asyncio.CancelledError:
            self._write(0, "cancelled", None)
            raise
        return self._outcome

    def end(self, bytes_out: int) -> None:
        """Finish the record: the answer has been made. Not called for a cancelled request, which has no answer."""
        outcome = self._outcome
        self._write(bytes_out, _FAULT if outcome is None else outcome.ended, outcome)

    def _write(self, bytes_out: int, ended: str, outcome: CallOutcome | None) -> None:
        if self._audit is None:
            return
        name, arguments = self._params.get(NAMED_BY[self._method]), self._params.get("arguments")
        self._audit.record(
            AuditLine(
                principal=self._call.principal.name,
                endpoint="mcp-stdio" if self._call.headers is None else "mcp-http",
                method=self._method,
                outcome=ended,
                server=self._server,
                tool=name if isinstance(name, str) else None,
                map=None if outcome is None else outcome.map_id,
                source="none" if outcome is None else outcome.source,
                bytes_in=self._call.size,
                bytes_out=bytes_out,
                ids=0 if outcome is None else outcome.ids,
                duration_ms=(perf_counter() - self._began) * 1000,
                request_id=self._request_id,
                arguments=cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else None,
            )
        )

    async def _spanned(self, tracing: "Tracing", awaited: Awaitable[CallOutcome]) -> CallOutcome:
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
                outcome = await awaited
            except RpcError as error:
                traced.failed(error)
                raise
            traced.answered(outcome.result)
            return outcome
