"""The ways in which one stream is requested: from the engine itself in JSON, and from the gateway in each of its forms.

Turns a way and a prompt into the bytes of a request, made once, and says how its answer is to be read. Knows no socket.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from bench.wire.streams import dictionary
from leaf_sdk.wire import Coding, Dictionary, Format


@dataclass(frozen=True, slots=True)
class Way:
    """One way to request a stream."""

    name: str
    form: Literal["json"] | Format
    coding: Coding = "identity"
    flush: Literal["interactive", "batch", "at_once"] = "interactive"
    of: Literal["engine", "gateway"] = "gateway"
    """Who is asked."""

    def request(self, prompt: Sequence[int], count: int, **settings: Any) -> bytes:
        """Return the whole request for `count` ids after a prompt."""
        fields: dict[str, Any] = {"prompt": list(prompt), "max_tokens": count, "stream": True, **settings}
        if self.form != "json":
            fields |= {"stream_format": self.form, "stream_flush": self.flush}
        body = json.dumps(fields).encode()
        head = (
            "POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            f"accept-encoding: {self.coding}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def dictionary(self) -> Dictionary | None:
        """Return the dictionary that its coding uses."""
        return dictionary(self.form) if self.coding == "zstd" and self.form != "json" else None


ENGINE: Final = Way("the engine's own JSON events", "json", of="engine")
JSON: Final = Way("JSON events", "json")
PROTOBUF: Final = Way("protobuf, gzip, 40 ms", "protobuf", "gzip")
MSGPACK: Final = Way("msgpack, gzip, 40 ms", "msgpack", "gzip")
PROTOBUF_ZSTD: Final = Way("protobuf, zstd with a dictionary, 40 ms", "protobuf", "zstd")
PROTOBUF_BATCH: Final = Way("protobuf, gzip, batch", "protobuf", "gzip", "batch")
WAYS: Final = (ENGINE, JSON, PROTOBUF, MSGPACK, PROTOBUF_ZSTD, PROTOBUF_BATCH)
