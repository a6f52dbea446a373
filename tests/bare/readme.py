"""What README says to install and to type first, as scripts.

Turns README's text into the list of packages and the steps of the check. Where README does not say what a step needs,
`LookupError` says what was looked for: the check must not know more than README.
"""

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.pages import Block, blocks_of

CLONE: Final = "cd ~/clone\n"
_UNTIL_READY: Final = """
until python3 -c 'import urllib.request; urllib.request.urlopen("http://127.0.0.1:8601/healthz/ready", timeout=5)' 2>&-
do kill -0 $gateway || { cat gateway.log; exit 1; }; sleep 0.5; done
"""
_LIST: Final = [
    {
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "bare-check", "version": "1"},
        },
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
]


@dataclass(frozen=True, slots=True)
class Step:
    """One script. `network`: whether it may fetch; `seconds`: until when it must have ended."""

    name: str
    script: str
    network: bool = True
    seconds: float = 900
    is_suite: bool = False


def packages_of(text: str) -> list[str]:
    """The Debian packages that README says to install."""
    found = re.search(r"apt-get install ([a-z0-9.+ -]+)", text)
    if found is None:
        raise LookupError("README says nowhere what to `apt-get install`")
    return found[1].split()


def steps_of(readme: Path) -> Iterator[Step]:
    """The commands of README in its order, then the packages as a user of pip gets them."""
    blocks = list(blocks_of(readme))
    for line in _block(blocks, "make demo").text.splitlines():
        command = line.partition("#")[0].strip()
        suite = command == "make test"
        yield Step(command, CLONE + command, seconds=7200 if suite else 900, is_suite=suite)
    servers, serve = _block(blocks, "cat > servers.json"), _block(blocks, "serve --config servers.json")
    request = _block(blocks[blocks.index(serve) :], "/v1")
    yield Step(
        "serve and one request",
        f"{CLONE}{servers.text}\n{serve.text.strip()} >gateway.log 2>&1 & gateway=$!\n{_UNTIL_READY}\n{request.text}\n"
        "kill $gateway && wait $gateway",
        network=False,
    )
    entry = json.loads(_block(blocks, '"mcpServers"', "json").text)["mcpServers"]
    (client,) = entry.values()
    command = shlex.join([client["command"], *client["args"]]).replace("/path/to/clone", "$HOME/clone")
    *greeting, ask = (shlex.quote(json.dumps({"jsonrpc": "2.0", **each})) for each in _LIST)
    # Its list is empty until the server behind it has started.
    yield Step(
        "tools/list over stdio",
        f"{CLONE}mkfifo asked\n{command} <asked >answered & exec 3>asked\nprintf '%s\\n' {' '.join(greeting)} >&3\n"
        f"until grep get_time answered; do kill -0 $!; echo {ask} >&3; sleep 0.5; done; exec 3>&-; wait",
        network=False,
    )
    yield Step("pip install of the wheels, demo", f"{CLONE}make test-install")


def _block(blocks: list[Block], words: str, language: str = "") -> Block:
    found = next((block for block in blocks if words in block.text and block.language == language), None)
    if found is None:
        raise LookupError(f"README shows no block with {words!r}")
    return found
