"""`python -m tests.clients`: each client holds its conversation through the gateway, and without it.

Through the gateway twice: with the embedded engine, and with a llama.cpp server whose template has tools, which is then
asked without the gateway too. Prints a row a client, and ends with 1 where one through the gateway is not as it should
be. `--write` keeps the numbers and puts them into the page that states them.
"""

import argparse
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.processes import serving_gateway
from gateway.engine.embedded.packaged_model import packaged_model
from tests.clients.clients import CLIENTS, Client
from tests.clients.conversation import template_server, through_engine, through_gateway
from tests.clients.judgement import Judgement
from tests.clients.page import row, write

TEMPLATE = "Qwen-Qwen2.5-7B-Instruct"
"""A template for the packaged model's own marks that has tools, where the model's own has none."""
REQUESTS = 10
"""Those of a conversation, at least."""
CLOCK = Path(__file__).parents[1] / "e2e" / "servers" / "clock.py"


def main() -> int:
    """Hold the conversations that the command line asks for; give the exit code."""
    chosen = _arguments()
    results: dict[str, Any] = {}
    bad = 0
    for name in chosen.client or CLIENTS:
        client = CLIENTS[name]
        for seed in range(1, chosen.seeds + 1):
            sampling = {"temperature": chosen.temperature, "seed": seed}
            held = {"embedded": _embedded(client, sampling), "gateway": _behind(client, sampling)}
            for where, judgement in held.items():
                bad += _tell(f"{client.words}, {where}, seed {seed}", judgement)
            if seed == 1 and not chosen.ours:
                with template_server(TEMPLATE) as url:
                    held["alone"] = through_engine(client.command(), url, **sampling)
                _tell(f"{client.words}, the server alone", held["alone"])
                # Faults name files of this machine.
                told = {where: asdict(each) | {"faults": len(each.faults)} for where, each in held.items()}
                results[name] = {"version": client.version, **told}
    print(*(row(name, result) for name, result in results.items()), sep="\n")
    if chosen.write:
        write(results)
    return 1 if bad else 0


def _tell(what: str, judgement: Judgement) -> int:
    """Print how a conversation went; give how much is wrong with it."""
    faults = [*judgement.faults, *([] if judgement.is_whole else ["not all was found again"])]
    if judgement.requests < REQUESTS:
        faults.append(f"there were {judgement.requests} requests, not {REQUESTS}")
    print(f"{what}: {judgement}", *(f"  {fault}" for fault in faults), sep="\n", flush=True)
    return len(faults)


def _embedded(client: Client, sampling: dict[str, float]) -> Judgement:
    return _through(client, '[engine]\nkind = "embedded"\n', sampling)


def _behind(client: Client, sampling: dict[str, float]) -> Judgement:
    with template_server(TEMPLATE) as url:
        engine = f'[engine]\nkind = "url"\nurl = "{url}"\n\n[tokens]\nmap = "{packaged_model()}"\n'
        return _through(client, engine, sampling)


def _through(client: Client, settings: str, sampling: dict[str, float]) -> Judgement:
    with tempfile.TemporaryDirectory(prefix="clients-") as temporary:
        folder = Path(temporary)
        calls = folder / "calls"
        clock = {"command": sys.executable, "args": [str(CLOCK), str(calls)]}
        with serving_gateway(folder / "gateway", {"clock": clock}, settings=settings) as gateway:
            return through_gateway(client.command(), gateway.url, calls, **sampling)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--client", action="append", choices=sorted(CLIENTS), help="may be repeated; default: all")
    parser.add_argument("--seeds", type=int, default=1, help="how many conversations each holds through the gateway")
    parser.add_argument("--temperature", type=float, default=0.8, help="of the model's choice")
    parser.add_argument("--ours", action="store_true", help="leave out the server alone")
    parser.add_argument("--write", action="store_true", help="keep the numbers, and put them into the page")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
