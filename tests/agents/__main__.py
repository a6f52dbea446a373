"""`python -m tests.agents`: each agent does a task through the gateway; ends with 1 where one did not, or lost ids.

`--write` keeps the numbers, and puts them into the pages that state them.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from bench.toolchain import CACHE
from gateway.engine.embedded.packaged_model import packaged_model
from tests.agents import works_with
from tests.agents.running import do_task
from tests.agents.table import AGENTS, result_of, write

_FOLDER: Final = CACHE / "agents"
_MODEL: Final = _FOLDER / "one-layer.gguf"


def main() -> int:
    """Let the agents that the command line names do the task; give the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.agents", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--agent", action="append", choices=AGENTS, help="only this one (may be said several times)")
    parser.add_argument("--log", type=Path, help="keep prompts and what was printed below this folder")
    parser.add_argument("--write", action="store_true", help="keep the numbers, and put them into the pages")
    chosen = parser.parse_args()
    if not _MODEL.exists():
        cut = str(Path(__file__).with_name("cut_model.py"))
        subprocess.run([_FOLDER / "venv" / "bin" / "python", cut, packaged_model(), _MODEL], check=True)
    bad = 0
    results: dict[str, Any] = {}
    for name in chosen.agent or AGENTS:
        agent = AGENTS[name]
        done = do_task(agent, _MODEL, None if chosen.log is None else chosen.log / name)
        print(
            f"{agent.words} {agent.version} ({agent.api}): {done}", *(f"  {fault}" for fault in done.faults), sep="\n"
        )
        bad += len(done.faults)
        results[name] = result_of(agent, done)
    if chosen.write:
        write(results)
        works_with.PAGE.write_text(
            works_with.filled(works_with.PAGE.read_text(encoding="utf-8"), works_with.results()), encoding="utf-8"
        )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
