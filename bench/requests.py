"""What whole requests cost compared with an earlier commit: `python -m bench.requests COMMIT`.

Counts the instructions of the gateway's process, under valgrind and over the stub engine of `bench.path`: for new
requests of `/v1/chat/completions` without tools and with five, and for conversations of ten requests, which end with 20
messages. CPU time on a machine that others use differs by more than what is looked for. Writes `results/requests.json`.
"""

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
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

    def ask(self, messages: Sequence[Json], **more: Any) -> Json:
        """Return the message of an answer."""
        body = {"model": "any", "messages": messages, "max_tokens": _IDS, "temperature": 0, **more}
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        answer = self._connection.getresponse()
        told = answer.read()
        if answer.status != 200:
            raise SystemExit(f"the gateway answered {answer.status}: {told[:500]!r}")
        return json.loads(told)["choices"][0]["message"]


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


KINDS: Final = {"without tools": _new(), "five tools": _new(tools=TOOLS), "conversation": _conversation}
COUNTS: Final = {"without tools": (8, 20), "five tools": (8, 20), "conversation": (1, 3)}
"""How many come before the count, and how many are counted."""


def instructions(engine: Engine, folder: Path, code: Path | None = None) -> dict[str, int]:
    """Return the instructions for each of a kind, counted over some."""
    folder.mkdir()
    counter = ("valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/out")
    settings = f'[engine]\nurl = "{engine.url}"\n'
    found: dict[str, int] = {}
    with serving_gateway(folder, {}, settings=settings, code=code, under=counter) as gateway:
        client = Client(gateway)
        for number, (kind, (before, counted)) in enumerate(COUNTS.items(), 1):
            for _ in range(before):
                KINDS[kind](client, next(_NEW))
            for words in (["-z"], ["-i", "on"]):
                _control(gateway, *words)
            for _ in range(counted):
                KINDS[kind](client, next(_NEW))
            for words in (["-i", "off"], ["-d"]):
                _control(gateway, *words)
            found[kind] = _total(folder / f"out.{number}") // counted
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
