"""`make replicas-check`: replicas on hosts of their own, under load, lost, cut off, and asked by who may not.

Prints what was found, and ends with 1 for any fault. `--record` writes it to `bench/results/replicas_check.json`.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from bench.record import write
from tests.replicas.found import Options
from tests.replicas.network import in_own_namespaces, missing
from tests.replicas.scenes import SCENES


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.replicas", description=__doc__)
    parser.add_argument("--calls", type=int, default=50_000, help="of the load")
    parser.add_argument("--clients", type=int, default=64, help="of the load, half of each era")
    parser.add_argument("--seed", type=int, default=1, help="of what is drawn")
    parser.add_argument("--only", choices=[*SCENES], action="append", help="may be repeated; default: all")
    parser.add_argument("--shared", action="store_true", help="the replicas of the chat share a store")
    parser.add_argument("--record", action="store_true", help="write bench/results/replicas_check.json")
    chosen = parser.parse_args()
    if lacks := missing():
        print(f"this needs {', '.join(lacks)}: see make replicas-install")
        return 2
    code = in_own_namespaces("tests.replicas")
    if code is not None:
        return code
    options = Options(chosen.calls, chosen.clients, chosen.seed, chosen.shared)
    told: dict[str, object] = {}
    faults = 0
    for name in chosen.only or SCENES:
        with tempfile.TemporaryDirectory(prefix="replicas-") as folder:
            found = SCENES[name](Path(folder), options)
        print(f"== {name}", *found.lines, f"  faults: {len(found.faults)}", sep="\n", flush=True)
        print(*(f"! {fault}" for fault in found.faults[:20]), sep="\n", end="\n", flush=True)
        told[name] = {**found.told, "faults": len(found.faults)}
        faults += len(found.faults)
    if chosen.record:
        print(write("replicas_check", ["aiohttp", "mcp", "uvloop"], told))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
