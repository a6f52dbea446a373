"""`python -m tests.exchanges.public`: lists and one call of each server, by six clients, with and without the gateway.

Prints how many servers each client used and what differs, and ends with 1 if anything does."""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench.processes import serving_gateway
from bench.toolchain import node
from tests.exchanges.public import recording
from tests.exchanges.public.agents import AGENTS, run_agent
from tests.exchanges.public.catalog import FOLDER, SERVERS, prepare
from tests.exchanges.public.compare import differences, even, even_agent
from tests.exchanges.public.inspector import inspect

_SETTINGS: Final = '[engine]\nkind = "none"\n\n[tokens]\nmap = "none"\n'
_ROOT: Final = Path(__file__).parents[3]
CLIENTS: Final = ("python", "typescript", "inspector", *AGENTS)
Servers = Mapping[str, dict[str, Any]]


def ask(client: str, servers: Servers, calls: Servers) -> dict[str, Any]:
    """Give what a client gets of the servers. `calls`: the tool and the arguments, by server."""
    if client in AGENTS:
        wanted = {name: (call["tool"], call["arguments"]) for name, call in calls.items()}
        model, printed = run_agent(AGENTS[client], servers, wanted)
        missing = [name for name in calls if name not in model.results]
        if missing:
            print(f"{client} called no tool of {missing}:\n{printed[-2000:]}", file=sys.stderr)
        return even_agent(model.tools, model.results, servers)
    asked = {name: {**each, **calls[name]} for name, each in servers.items()}
    if client == "inspector":
        return even(inspect(asked))
    command = [sys.executable, "-m", "tests.exchanges.public.sdk_client"]
    if client == "typescript":
        # Node looks for packages from where a program lies.
        program = shutil.copy(Path(__file__).with_name("sdk_client.mjs"), FOLDER / "node")
        command = [str(node()), program]
    done = subprocess.run(command, cwd=_ROOT, input=json.dumps(asked).encode(), stdout=subprocess.PIPE, check=True)
    return even(json.loads(done.stdout))


def main() -> int:
    """Ask what the command line says; give the exit code."""
    chosen = _arguments()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="public-") as temporary:
        # The servers say paths as they resolve them.
        folder = Path(temporary).resolve()
        prepare(folder / "work")
        picked = [SERVERS[name] for name in chosen.server or SERVERS]
        servers = {each.name: each.configured(folder / "work") for each in picked}
        calls = {each.name: {"tool": each.tool, "arguments": each.call(folder / "work")} for each in picked}
        with serving_gateway(folder / "gateway", servers, settings=_SETTINGS) as gateway:
            views = {name: {"url": f"{gateway.url}/mcp/{name}"} for name in servers}
            for client in chosen.client or CLIENTS:
                direct = ask(client, servers, calls)
                if chosen.write and client == "python":
                    recording.write(direct, str(folder / "work"))
                lines = [*_failures(client, direct, calls), *differences(direct, ask(client, views, calls))]
                print(f"{client}: {len(servers)} servers, {len(lines)} differences")
                print(*(f"  {line}" for line in lines), sep="\n", end="\n" if lines else "", flush=True)
                bad += len(lines)
    return 1 if bad else 0


def _failures(client: str, direct: Mapping[str, Any], calls: Servers) -> list[str]:
    """Name the servers that a client could not use directly: nothing would be compared there."""
    if client in AGENTS:
        return [f"{name}: not called directly" for name in calls if f"call of {name}" not in direct]
    return [f"{name}: no tools directly: {direct[name]}" for name in calls if not direct[name].get("tools")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.exchanges.public", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--server", action="append", choices=sorted(SERVERS), help="may be repeated; default: all")
    parser.add_argument("--client", action="append", choices=CLIENTS, help="may be repeated; default: all")
    parser.add_argument("--write", action="store_true", help="keep what the Python SDK got directly, in short")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
