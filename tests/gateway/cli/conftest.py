"""Configurations whose servers offer what a test says."""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

OFFERS = Path(__file__).parent / "servers" / "offers.py"
READS_ONLY = {"annotations": {"readOnlyHint": True}}


@pytest.fixture
def tool() -> Callable[..., dict[str, Any]]:
    """Makes a tool's definition: one that changes nothing and needs no arguments."""

    def make(name: str = "look", **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "description": f"{name} at it",
            "inputSchema": {"type": "object"},
            **READS_ONLY,
            **more,
        }

    return make


@pytest.fixture
def servers(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of servers: name to what it offers, or to the entry itself (it has a command or a URL)."""

    def write(**offers: Mapping[str, Any]) -> Path:
        entries = {
            name: offer
            if "command" in offer or "url" in offer
            else {"command": sys.executable, "args": [str(OFFERS), json.dumps(offer)]}
            for name, offer in offers.items()
        }
        path = tmp_path / "servers.json"
        path.write_text(json.dumps({"mcpServers": entries}))
        return path

    return write
