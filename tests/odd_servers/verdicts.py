"""What both official SDKs made of each odd server, directly; `verdicts.json` keeps it.

`python -m tests.odd_servers` writes the file: the Python SDK of the lock runs here, the TypeScript SDK in a Node that
`make odd-servers-install` fetches. The suite has no npm: it tries the Python SDK anew and takes the other's word.
"""

import json
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("verdicts.json")
BEYOND: Final = {
    "nested 300 deep": "the gateway reads JSON up to about 200 levels, as the Python SDK does",
    "NaN in the answer": "JSON has no such number; the TypeScript SDK and the gateway refuse it",
    "length given twice": "a response with two lengths can be read in two ways; Node and the gateway refuse it",
}
"""Behaviours that one of the SDKs takes and the gateway does not, and why."""

ELSEWHERE: Final = "link and embedded resource"
"""The behaviour whose answer differs through the gateway: its URIs lead back to their server (docs/adr/0033)."""

Verdicts = dict[str, dict[str, dict[str, str]]]
"""Transport, behaviour, SDK: `answer`, `error CODE` or `nothing`."""


def read_verdicts() -> Verdicts:
    """The verdicts as they were last written."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def usable(verdict: str) -> bool:
    """Whether a client got what the server had for it."""
    return verdict != "nothing"
