"""MCP's messages as plain values: JSON-RPC, lines, event streams, and what differs between the two protocol eras.

Sans-IO and raw: a message is a method and a dict, and fields that we don't know stay in it. Nothing here knows a
server, a client or a setting.
"""

from gateway.protocol.messages import (
    Failure,
    Malformed,
    Notification,
    Request,
    RequestId,
    Response,
    RpcMessage,
    encode_failure,
    encode_notification,
    encode_request,
    encode_response,
    parse_message,
)

__all__ = [
    "Failure",
    "Malformed",
    "Notification",
    "Request",
    "RequestId",
    "Response",
    "RpcMessage",
    "encode_failure",
    "encode_notification",
    "encode_request",
    "encode_response",
    "parse_message",
]
