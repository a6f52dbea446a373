"""The MCP servers behind the gateway: connected, supervised, named and called; and the token ids of their results."""

from gateway.proxy.caller import ANYBODY, NOBODY, Caller, ClientSession, Exchange, Principal
from gateway.proxy.naming import ToolEntry
from gateway.proxy.proxy import ListChange, Proxy
from gateway.proxy.result_tokens import IdPiece, ResultIds, ResultTokens
from gateway.proxy.statuses import UpstreamStatus

__all__ = [
    "ANYBODY",
    "NOBODY",
    "Caller",
    "ClientSession",
    "Exchange",
    "IdPiece",
    "ListChange",
    "Principal",
    "Proxy",
    "ResultIds",
    "ResultTokens",
    "ToolEntry",
    "UpstreamStatus",
]
