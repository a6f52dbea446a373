"""Bytes of MCP's answers, plain and with gzip: `python -m bench.mcp.answers`.

A list of the 41 tools of four public servers, as recorded by `tests/exchanges`, and one result of 30 characters,
without ids and with them. Only bodies are counted, not heads. Writes `results/mcp_answers.json`; nothing here depends
on the machine.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.record import write
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.protocol.messages import encode_response
from leaf_sdk import MetaTokenizer, open_map, wrap_tool_call
from leaf_sdk.wire import Coding, open_encoder

_RECORDINGS: Final = Path(__file__).parents[2] / "tests" / "exchanges" / "recordings"
_TEXT: Final = "# codec-gateway\n\ncodec-gateway"
_CODINGS: Final[tuple[Coding, ...]] = ("identity", "gzip")
_PACKAGES: Final = ("codec-gateway", "codec-leaf")


def tools() -> list[Any]:
    """Return the tools that the recorded servers list."""
    recordings = (json.loads(path.read_text(encoding="utf-8")) for path in sorted(_RECORDINGS.glob("*.json")))
    lists = (step for each in recordings for step in each["exchanges"] if step["method"] == "tools/list")
    return [tool for step in lists for tool in step["result"]["tools"]]


def sizes(result: Mapping[str, Any]) -> dict[str, int]:
    """Return the bytes of one answer in every coding."""
    body = encode_response(7, result)
    return {coding: _coded(body, coding) for coding in _CODINGS}


def _coded(data: bytes, coding: Coding) -> int:
    encoder = open_encoder(coding, None, "whole")
    return len(encoder.write(data) + encoder.close())


def measure() -> dict[str, Any]:
    """Count everything once."""
    listed = tools()
    plain = {"content": [{"type": "text", "text": _TEXT}]}
    token_map = open_map(packaged_model())
    leaf = wrap_tool_call(plain, MetaTokenizer(token_map.map_id, token_map, token_map.encode))
    return {"tools": len(listed), "list": sizes({"tools": listed}), "call": sizes(plain), "call with ids": sizes(leaf)}


if __name__ == "__main__":
    write("mcp_answers", _PACKAGES, measure())
