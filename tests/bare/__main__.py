"""`make bare-check`: on each bare tree, clone what is committed and type what README says, as an ordinary user (root).

Prints one line a step, with its seconds; what each step printed is under .tools/bare/logs. Exits with 1 if one failed,
and does not go on with that tree. `--short` leaves out the whole test suite; `--only WORD` takes the steps after the
first command whose names hold it.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.bare.circumstances import CIRCUMSTANCES
from tests.bare.readme import Step, packages_of, steps_of
from tests.bare.tree import PROGRAMS, Tree

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".tools" / "bare"
RELEASES = ("trixie", "bookworm")
CLONE = Step("git clone", "cd && git clone --quiet /tmp/head.bundle clone")


def timed(name: str, release: str, work: Callable[[Path], int]) -> bool:
    """Do it, with a file to print to; print its line and, if it failed, the end of that file."""
    log = FOLDER / "logs" / f"{release}-{name.replace(' ', '-').replace('/', '-')}.log"
    began = time.monotonic()
    code = work(log)
    print(
        f"{release:<9} {name:<34} {time.monotonic() - began:7.1f} s  {f'FAILED ({code})' if code else 'passed'}",
        flush=True,
    )
    if code:
        print("\n".join(f"    {line}" for line in log.read_text(errors="replace").splitlines()[-25:]))
        print(f"    all of it: {log}")
    return not code


def check(tree: Tree, steps: list[Step], bundle: Path) -> bool:
    def make(log: Path) -> int:
        with log.open("wb") as sink:
            code = tree.make(sink)
        shutil.copy(bundle, tree.root / "tmp")
        return code

    def typed(step: Step) -> bool:
        return timed(
            step.name, tree.release, lambda log: tree.run(step.script, log, network=step.network, seconds=step.seconds)
        )

    return timed("tree", tree.release, make) and all(typed(step) for step in steps)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bare", description=__doc__)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--release", choices=RELEASES, action="append")
    arguments = parser.parse_args()
    if missing := [program for program in PROGRAMS if shutil.which(program) is None]:
        sys.exit(f"{', '.join(missing)}: not installed here: make bare-check-install")
    if os.getuid() != 0:
        sys.exit("making a tree and entering it needs root")
    (FOLDER / "logs").mkdir(parents=True, exist_ok=True)
    bundle, readme = FOLDER / "head.bundle", FOLDER / "README.md"
    subprocess.run(["git", "bundle", "create", "--quiet", bundle, "HEAD"], cwd=ROOT, check=True)
    readme.write_bytes(subprocess.check_output(["git", "show", "HEAD:README.md"], cwd=ROOT))
    packages = packages_of(readme.read_text(encoding="utf-8"))
    print(f"installed: {' '.join(packages)}")
    first, *rest = [*steps_of(readme), *CIRCUMSTANCES]
    wanted = [step for step in rest if arguments.only in step.name and not (arguments.short and step.is_suite)]
    trees = [Tree(FOLDER, release, packages) for release in arguments.release or RELEASES]
    passed = [check(tree, [CLONE, first, *wanted], bundle) for tree in trees]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    # Whatever ends this program early ends what it has started; a shell lets programs behind it ignore INT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(main())
    except LookupError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
