"""`make soak`: one gateway with the embedded engine and a server under mixed operations, for minutes.

Prints what was done, and ends with 1 where an answer was wrong or the memory grew by more than the bound.
"""

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import anyio

from tests.e2e.faults.conftest import bytes_of
from tests.soak.load import soak, soaked_gateway

BOUND = 0.5
"""MB in 10,000 operations of the second half."""


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, soaked_gateway(Path(folder)) as gateway:
        memory = partial(bytes_of, gateway.process.pid)
        outcome = anyio.run(soak, gateway.url, memory, asked.minutes * 60, asked.seed)
    print(f"{asked.minutes:g} minutes, seed {asked.seed}:", *outcome.lines(), sep="\n")
    return 1 if outcome.wrong or outcome.growth() > BOUND else 0


if __name__ == "__main__":
    sys.exit(main())
