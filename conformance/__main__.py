"""`python -m conformance`: the suite against the reference server, then against the gateway in front of it.

Starts the reference server over HTTP, the gateway in front of it, and the gateway in front of the same server over
standard input and output; runs every leg against each, prints the tables side by side, and exits with 1 if anything
failed or is worse than directly. Before that, the suite is the server and the gateway its client.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from bench.processes import free_port, running, serving_gateway, wait_for_port
from bench.toolchain import python_sdk
from conformance.replicas import balanced
from conformance.report import Outcomes, client_problems, problems, table
from conformance.suite import CLIENT_LEGS, LEGS, run, run_client

TARGETS: Final = ("direct", "gateway", "stdio")
REPLICAS: Final = "replicas"
SETTINGS: Final = """
[engine]
kind = "none"

[tokens]
map = "none"

[serve]
sse_close_after = 0.15
"""
EXCUSED: Final[dict[str, dict[str, str]]] = {
    "stdio": {
        "server-sse-polling": "the client's first call starts a process of its own for it, which takes longer than the "
        "suite, which comes back once, waits"
    }
}
"""By target and scenario, the reason why it can't have the same outcome as directly."""


@contextmanager
def started(target: str) -> Generator[str]:
    """Run a target with everything behind it; yields the address that the suite is to test.

    `direct` is the reference server itself, `gateway` the gateway in front of it, `replicas` three gateways behind a
    balancer without stickiness, `stdio` the gateway in front of the same server over standard input and output.
    """
    source = python_sdk(version("mcp")) / "examples" / "servers" / "everything-server"
    env = {**os.environ, "PYTHONPATH": str(source)}
    reference = [sys.executable, "-m", "conformance.reference"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-")))
        if target == "stdio":
            server = {"command": reference[0], "args": [*reference[1:], "stdio"], "env": {"PYTHONPATH": str(source)}}
        else:
            port = free_port()
            wait_for_port(stack.enter_context(running("reference server", [*reference, str(port)], env=env)), port)
            # The name, not the IP address: both servers check the Host under which they are called.
            server = {"url": f"http://localhost:{port}/mcp"}
            if target == "direct":
                yield server["url"]
                return
        if target == REPLICAS:
            url = stack.enter_context(balanced(folder, server, SETTINGS))
        else:
            url = stack.enter_context(serving_gateway(folder, {"reference": server}, settings=SETTINGS)).url
        yield url.replace("127.0.0.1", "localhost") + "/mcp"


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    chosen = _arguments()
    targets = chosen.target or list(TARGETS)
    bad = [] if chosen.target else list(_client_problems(chosen))
    for leg in LEGS:
        if chosen.leg and leg.name not in chosen.leg:
            continue
        outcomes: dict[str, Outcomes] = {}
        for target in targets:
            # Everything is restarted for each leg, so that none begins with what the one before has left behind.
            with started(target) as url:
                outcomes[target] = run(leg, url, scenario=chosen.only)
        print(*table(leg, outcomes), "", sep="\n", flush=True)
        for target in targets:
            print(
                *(f"{target}, {name} does not count: {why}" for name, why in EXCUSED.get(target, {}).items()), sep="\n"
            )
        bad += problems(leg, outcomes, whole=chosen.only is None, excused=EXCUSED)
    print(*bad, sep="\n")
    print(f"{len(bad)} problems" if bad else "nothing failed, nothing is worse than directly", file=sys.stderr)
    return 1 if bad else 0


def _client_problems(chosen: argparse.Namespace) -> Iterator[str]:
    """Run the legs in which the suite is the server and the gateway its client."""
    for leg in CLIENT_LEGS:
        if not chosen.leg or leg.name in chosen.leg:
            outcomes = run_client(leg, [sys.executable, "-m", "conformance.client"], scenario=chosen.only)
            print(*table(leg, {"gateway": outcomes}), "", sep="\n", flush=True)
            yield from client_problems(leg, outcomes, whole=chosen.only is None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--target",
        action="append",
        choices=[*TARGETS, REPLICAS],
        help=f"may be repeated; default: all but {REPLICAS}, and as a client",
    )
    parser.add_argument(
        "--leg", action="append", choices=[leg.name for leg in (*CLIENT_LEGS, *LEGS)], help="may be repeated"
    )
    parser.add_argument("--only", metavar="SCENARIO", help="one scenario of every leg")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
