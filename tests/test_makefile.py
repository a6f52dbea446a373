"""`make help` and `make help-all`: what a newcomer needs, and every target once."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TARGETS = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def shown(target: str) -> list[str]:
    done = subprocess.run(["make", target], cwd=ROOT, capture_output=True, text=True, check=True)
    return re.findall(r"^  make (\S+)", done.stdout, re.MULTILINE)


def test_help_is_short_and_leads_to_the_rest() -> None:
    first = shown("help")

    assert len(first) == 7
    assert {"setup", "demo", "test", "check"} < set(first)
    assert first[-1] == "help-all"


def test_help_all_names_every_target_once() -> None:
    assert sorted(shown("help-all")) == sorted(TARGETS)
