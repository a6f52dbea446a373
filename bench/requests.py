"""What whole requests cost compared with an earlier commit: `python -m bench.requests COMMIT`.

Counts the instructions of the gateway's process, under valgrind and over the stub engine of `bench.path`: for new
requests of `/v1/chat/completions` without tools and with five, for streams that end with their first token, for
conversations of ten requests, which end with 20 messages, and for calls of a tool over `/mcp`. CPU time on a machine
that others use differs by more than what is looked for. Writes `results/requests.json`.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from time import perf_counter, sleep
from typing import Any, Final
from urllib.parse import urlsplit

from bench.commit import code_of
from bench.path.stand import Engine, stub_engine
from bench.processes import Gateway, serving_gateway
from bench.record import write

Json = dict[str, Any]
_IDS: Final = 8
"""Ids of an answer."""
_TURNS: Final = 10
_IDLE: Final = 10.0
"""Seconds for which an idle gateway is watched."""
_VERSION: Final = "2025-11-25"
_SERVERS: Final = {"clock": {"command": sys.executable, "args": ["-m", "plain_time"]}}
_NEW: Final = count()
"""Makes each conversation new to both gateways."""
TOOLS: Final = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"{name.replace('_', ' ').capitalize()} of the project, by its path.",
            "parameters": {
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Where it is"},
                    "limit": {"type": "integer", "minimum": 1, "description": "Most lines to return"},
                    "kind": {"type": "string", "enum": ["file", "folder", "link"]},
                },
                "required": ["path"],
            },
        },
    }
    for name in ("read_file", "write_file", "list_folder", "search_text", "run_tests")
]


class Client:
    """A client of a gateway, on one connection."""

    def __init__(self, gateway: Gateway) -> None:
        """Connect."""
        parts = urlsplit(gateway.url)
        self._connection = HTTPConnection(str(parts.hostname), parts.port)
        self._session = ""

    def ask(self, messages: Sequence[Json], **more: Any) -> Json:
        """Return the message of an answer."""
        return json.loads(self._chat(messages, **more))["choices"][0]["message"]

    def stream(self, messages: Sequence[Json], **more: Any) -> None:
        """Read a stream to its end."""
        if b"[DONE]" not in self._chat(messages, stream=True, **more):
            raise SystemExit("the gateway's stream has no end")

    def call(self) -> None:
        """Call the tool, in a session that is opened for the first call."""
        if not self._session:
            about = {"protocolVersion": _VERSION, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
            self._rpc("initialize", about)
            self._rpc("notifications/initialized", {})
        told = self._rpc("tools/call", {"name": "get_time", "arguments": {"city": "Rome"}})
        if b"Rome" not in told:
            raise SystemExit(f"the call of the tool failed: {told!r}")

    def _chat(self, messages: Sequence[Json], **more: Any) -> bytes:
        return self._post(
            "/v1/chat/completions",
            {"model": "any", "messages": messages, "max_tokens": _IDS, "temperature": 0, **more},
        )

    def _rpc(self, method: str, params: Json) -> bytes:
        number = {} if method.startswith("notifications/") else {"id": next(_NEW)}
        return self._post("/mcp", {"jsonrpc": "2.0", "method": method, "params": params, **number})

    def _post(self, path: str, body: Json) -> bytes:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if path == "/mcp" and self._session:
            headers |= {"mcp-session-id": self._session, "mcp-protocol-version": _VERSION}
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status not in (200, 202):
            raise SystemExit(f"the gateway answered {answer.status}: {told[:500]!r}")
        self._session = answer.getheader("mcp-session-id", self._session)
        return told


def _new(**more: Any) -> Callable[[Client, int], object]:
    return lambda client, number: client.ask([_user(number, 0)], **more)


def _conversation(client: Client, number: int) -> None:
    messages: list[Json] = []
    for turn in range(_TURNS):
        messages.append(_user(number, turn))
        answer = client.ask(messages, tools=TOOLS)
        messages.append({"role": "assistant", "content": answer["content"]})


def _user(number: int, turn: int) -> Json:
    return {"role": "user", "content": f"Question {turn} of talk {number}: what is in the files of the project?"}


KINDS: Final[Mapping[str, Callable[[Client, int], object]]] = {
    "without tools": _new(),
    "five tools": _new(tools=TOOLS),
    "first token": lambda client, number: client.stream([_user(number, 0)], tools=TOOLS, max_tokens=1),
    "conversation": _conversation,
    "tools/call": lambda client, _: client.call(),
}
COUNTS: Final = {
    "without tools": (8, 20),
    "five tools": (8, 20),
    "first token": (8, 20),
    "conversation": (1, 3),
    "tools/call": (100, 1000),
}
"""How many come before the count, and how many are counted."""


def instructions(engine: Engine, folder: Path, code: Path | None = None) -> dict[str, int]:
    """Return the instructions for each of a kind, counted over some, without those of an idle gateway in that time."""
    folder.mkdir()
    counter = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out")
    settings = f'[engine]\nurl = "{engine.url}"\n'
    found: dict[str, int] = {}
    with serving_gateway(folder, _SERVERS, settings=settings, code=code, under=counter) as gateway:
        client = Client(gateway)
        numbers = count(1)

        def counted(work: Callable[[], object]) -> tuple[int, float]:
            for words in (["-z"], ["-i", "on"]):
                _control(gateway, *words)
            began = perf_counter()
            work()
            took = perf_counter() - began
            for words in (["-i", "off"], ["-d"]):
                _control(gateway, *words)
            return _total(folder / f"out.{next(numbers)}"), took

        # Under valgrind everything takes so long that this is a tenth of a call of a tool.
        idle, took = counted(lambda: sleep(_IDLE))
        for kind, (before, times) in COUNTS.items():
            for _ in range(before):
                KINDS[kind](client, next(_NEW))
            total, seconds = counted(
                lambda kind=kind, times=times: [KINDS[kind](client, next(_NEW)) for _ in range(times)]
            )
            found[kind] = round((total - idle * seconds / took) / times)
    return found


def _control(gateway: Gateway, *words: str) -> None:
    subprocess.run(["callgrind_control", *words, str(gateway.running.pid)], check=True, capture_output=True)


def _total(file: Path) -> int:
    (found,) = re.findall(r"^totals: (\d+)$", file.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return int(found)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="codec-") as name, stub_engine() as engine, code_of(options.commit) as code:
        folder = Path(name)
        now, before = instructions(engine, folder / "now"), instructions(engine, folder / "before", code)
    kinds = {
        kind: {"now": count, "before": before[kind], "ratio": round(count / before[kind], 4)}
        for kind, count in now.items()
    }
    print(json.dumps(kinds, indent=1))
    write("requests", ("codec-gateway",), {"against": options.commit, "instructions": kinds})


if __name__ == "__main__":
    main()
