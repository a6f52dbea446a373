"""`make deploy-check`: every step in order, and the table of what passed, failed, or can't be done here.

A step that needs what another one makes (an image, the running stack) fails if that one did. The exit code is 1 if
anything failed; a skipped step says why, and is not a failure. `--only WORD` runs the steps whose name contains it;
`--record` writes down what was measured, if nothing failed.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from deploy.check import activation, alone, chart, files, images, page, rolling, stack_checks
from deploy.check.outcome import PACKAGES, Failed, Skipped, missing

Step = tuple[str, Callable[[], str]]
_MARKS = {"passed": "+", "failed": "!", "skipped": "-"}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    name: str
    became: str
    seconds: float
    words: str


def steps() -> Iterator[Step]:
    """Yield all steps, cheap ones first."""
    yield "compose file", files.check_compose
    yield "Dockerfiles", files.check_dockerfiles
    yield "Prometheus rules", files.check_rules
    yield "systemd units", files.check_units
    yield "socket activation", activation.check_activation
    yield from chart.steps()
    yield "base image", images.make_base
    for name in images.BUILDS:
        yield f"image {name}", lambda name=name: images.build(name)
        yield f"image {name}: rules", lambda name=name: images.inspect(name)
    yield "start and memory", alone.check_alone
    yield from stack_checks.steps()
    yield "rolling restart", rolling.check_rolling_restart


def run_step(name: str, step: Callable[[], str]) -> Row:
    """Run one step and return its row; a fault of the check itself is a failure too."""
    began = time.monotonic()
    try:
        became, words = "passed", step()
    except Skipped as reason:
        became, words = "skipped", str(reason)
    except Failed as fault:
        became, words = "failed", str(fault)
    except Exception:  # noqa: BLE001 - the table must be printed whatever a step does
        became, words = "failed", traceback.format_exc()
    return Row(name, became, time.monotonic() - began, words)


def show(row: Row) -> None:
    """Print a row as soon as it is known."""
    first, *rest = row.words.splitlines() or [""]
    sys.stdout.write(f"{_MARKS[row.became]} {row.name:<28} {row.became:<8} {row.seconds:6.1f} s  {first}\n")
    sys.stdout.writelines(f"    {line}\n" for line in rest)
    sys.stdout.flush()


def main() -> int:
    """Run the steps; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m deploy.check", description=__doc__)
    parser.add_argument("--only", default="", help="run only the steps whose name holds this")
    parser.add_argument("--record", action="store_true", help="write the numbers into bench/results and docs/deploy.md")
    arguments = parser.parse_args()
    only: str = arguments.only
    if lacking := missing():
        packages = " ".join(sorted({PACKAGES[program] for program in lacking}))
        sys.stdout.write(
            f"not installed here: {', '.join(lacking)}; steps that need them are skipped. "
            f"`make deploy-install` brings them ({packages})\n"
        )
    rows: list[Row] = []
    try:
        for name, step in steps():
            if only in name:
                rows.append(run_step(name, step))
                show(rows[-1])
    finally:
        stack_checks.close()
    count = {became: sum(row.became == became for row in rows) for became in _MARKS}
    sys.stdout.write(
        f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped, "
        f"{sum(row.seconds for row in rows):.0f} s\n"
    )
    if arguments.record and not count["failed"]:
        page.record(None if only else sum(row.seconds for row in rows))
    return 1 if count["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
