"""`python -m tests.exchanges`: every script directly, then through the gateway, on both transports and in both eras.

Prints how many exchanges were played and what differs in them, and ends with 1 if anything does. `--write` keeps what
the servers said directly, for the tests that have no npm.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.processes import serving_gateway, write_config
from tests.exchanges.compare import differences
from tests.exchanges.play import play
from tests.exchanges.servers import SERVERS, VERSION, Server
from tests.exchanges.wires import HttpWire, StdioWire, Wire

VARIANTS = [(transport, era) for transport in ("stdio", "http") for era in ("handshake", "modern")]
SETTINGS = '[engine]\nkind = "none"\n\n[tokens]\nmap = "none"\n'


def record(server: Server, folder: Path) -> dict[str, Any]:
    """Play a server's script with nothing in between."""
    command = server.configured(folder)
    env = {name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ} | command["env"]
    wire = StdioWire([command["command"], *command["args"]], env=env)
    return asyncio.run(play(wire, server.script(str(folder)), modern=False, folder=folder))


def through_gateway(server: Server, folder: Path, transport: str, era: str) -> dict[str, Any]:
    """Play it with the gateway in between."""
    work = folder / "work"
    command = server.configured(work)
    modern = era == "modern"
    with ExitStack() as stack:
        if transport == "http":
            gateway = stack.enter_context(
                serving_gateway(folder / "gateway", {server.name: command}, settings=SETTINGS)
            )
            wire: Wire = HttpWire(f"{gateway.url}/mcp", modern=modern)
        else:
            config = write_config(folder / "gateway", {server.name: command}, SETTINGS)
            wire = StdioWire([sys.executable, "-m", "gateway", "stdio", "--config", str(config)])
        return asyncio.run(play(wire, server.script(str(work)), modern=modern, folder=work))


def main() -> int:
    """Play what the command line asks for; give the exit code."""
    chosen = _arguments()
    bad = 0
    with tempfile.TemporaryDirectory(prefix="exchanges-") as temporary:
        for server in [SERVERS[name] for name in chosen.server or SERVERS]:
            # The servers say paths as they resolve them.
            folder = Path(temporary).resolve() / server.name
            direct = record(server, folder / "direct")
            print(f"{server.name}: {len(direct['exchanges'])} exchanges directly")
            if chosen.write:
                _write(server, direct)
                continue
            for transport, era in VARIANTS:
                if chosen.variant and f"{transport}-{era}" not in chosen.variant:
                    continue
                played = through_gateway(server, folder / f"{transport}-{era}", transport, era)
                lines = list(differences(direct, played, modern=era == "modern"))
                bad += len(lines)
                print(f"{server.name} {transport} {era}: {len(played['exchanges'])} exchanges, {len(lines)} differ")
                print(*(f"  {line}" for line in lines), sep="\n", end="\n" if lines else "", flush=True)
    return 1 if bad else 0


def _write(server: Server, direct: dict[str, Any]) -> None:
    kept = {"server": server.name, "version": VERSION, **direct}
    server.recording.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.exchanges", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", action="append", choices=sorted(SERVERS), help="may be repeated; default: all")
    parser.add_argument("--variant", action="append", choices=[f"{t}-{e}" for t, e in VARIANTS], help="may be repeated")
    parser.add_argument("--write", action="store_true", help="keep what the servers say directly in recordings/")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
