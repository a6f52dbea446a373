"""What pip-audit says, read: a database that is missing is never taken for one that knows of nothing."""

import json
import sys
from pathlib import Path

import pytest

from tests.advisories.audit import Advisory, NoDatabase, audited, check_database, locks


def program(tmp_path: Path, says: str, error: str = "", status: int = 0) -> tuple[str, Path]:
    """A program in place of pip-audit."""
    path = tmp_path / "program.py"
    path.write_text(f"import sys\nprint({says!r})\nprint({error!r}, file=sys.stderr)\nsys.exit({status})\n")
    return sys.executable, path


def report(*flaws: dict[str, object]) -> str:
    return json.dumps({"dependencies": [{"name": "jinja2", "version": "2.4.1", "vulns": list(flaws)}], "fixes": []})


def test_advisories_are_named_with_the_versions_that_fix_them(tmp_path: Path) -> None:
    flaws = {"id": "PYSEC-2014-8", "fix_versions": ["2.7.2"], "aliases": []}, {"id": "GHSA-1", "fix_versions": []}
    found = audited(tmp_path, "pypi", program(tmp_path, report(*flaws), status=1))

    assert found == [Advisory("jinja2", "2.4.1", "PYSEC-2014-8", ("2.7.2",)), Advisory("jinja2", "2.4.1", "GHSA-1", ())]
    assert [str(each) for each in found] == [
        "jinja2 2.4.1: PYSEC-2014-8, fixed in 2.7.2",
        "jinja2 2.4.1: GHSA-1, fixed in no version yet",
    ]


def test_database_that_cannot_be_reached_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoDatabase, match=r"api\.osv\.dev/v1/query: Failed to resolve"):
        audited(tmp_path, "osv", program(tmp_path, "", "Traceback:\nFailed to resolve 'api.osv.dev'", 1))


def test_database_that_knows_of_nothing_is_none(tmp_path: Path) -> None:
    with pytest.raises(NoDatabase, match=r"has no advisory for jinja2==2\.4\.1"):
        check_database("pypi", tmp_path, program(tmp_path, report()))


def test_every_lock_is_looked_up() -> None:
    names = [path.parent.name for path in locks()]
    assert len(names) == len(set(locks())) > 5
    assert {"oauth", "clients", "agents", "advisories"} < set(names)
