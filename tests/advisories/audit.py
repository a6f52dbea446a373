"""Every lock in the repository against an advisory database, by pip-audit.

Without a database pip-audit skips packages and finds nothing, as it does where there is nothing to find. So a package
with known advisories is asked for first: a database that has none for it is not one.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = ROOT / ".tools" / "advisories" / "venv" / "bin" / "pip-audit"
SERVICES: Final = {"pypi": "https://pypi.org/pypi/NAME/VERSION/json", "osv": "https://api.osv.dev/v1/query"}
KNOWN: Final = "jinja2==2.4.1"
"""A release with advisories since 2014."""


class NoDatabase(Exception):
    """The database can't be reached, or is none."""


@dataclass(frozen=True, slots=True)
class Advisory:
    """A known flaw of a package that a lock names."""

    package: str
    version: str
    name: str
    fixed_in: tuple[str, ...]

    def __str__(self) -> str:
        """Show it in one line."""
        return f"{self.package} {self.version}: {self.name}, fixed in {', '.join(self.fixed_in) or 'no version yet'}"


def locks() -> list[Path]:
    """The locks of the project: its own, and those of the programs that checks install."""
    return [ROOT / "requirements.lock", *sorted((ROOT / "tests").rglob("requirements*.lock"))]


def check_database(service: str, scratch: Path, program: Sequence[str | Path] = (PROGRAM,)) -> None:
    """Raise `NoDatabase` unless the service knows advisories for a package that has some."""
    known = scratch / "known.txt"
    known.write_text(KNOWN + "\n", encoding="utf-8")
    if not audited(known, service, program, "--no-deps"):
        raise NoDatabase(f"{SERVICES[service]} has no advisory for {KNOWN}, which has several")


def audited(
    lock: Path, service: str, program: Sequence[str | Path] = (PROGRAM,), how: str = "--require-hashes"
) -> list[Advisory]:
    """The advisories for the packages of a lock. Raises `NoDatabase` if not all of them could be looked up."""
    asked = ("--strict", "--disable-pip", how, "--vulnerability-service", service, "--format", "json")
    more = ("--progress-spinner", "off", "--timeout", "30", "--requirement", lock)
    done = subprocess.run([*program, *asked, *more], capture_output=True, text=True, check=False)
    try:
        found: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]
        raise NoDatabase(f"{SERVICES[service]}: {last:.500}") from None
    return [
        Advisory(each["name"], each["version"], flaw["id"], tuple(flaw["fix_versions"]))
        for each in found
        for flaw in each["vulns"]
    ]
