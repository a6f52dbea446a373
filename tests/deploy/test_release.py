"""The parts of a release that decide: what the changelog becomes, which versions agree, what is summed."""

import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from deploy.release.artifacts import DISTRIBUTIONS, SUMS, checksums, constraints
from deploy.release.changelog import KINDS, ChangelogInvalid, cut, faults, sections, version_section
from deploy.release.versions import PLACES, VersionsDiffer, agreed, stated

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
TEXT = """# Changelog

What users notice.

## Unreleased

### Added

- One thing,
  on two lines.

### Fixed

- Another.

## 0.1.0 - 2026-01-02

### Added

- Everything.
"""


def test_changelog_of_the_repository_has_each_heading_once_in_order_and_no_entry_twice() -> None:
    assert faults(CHANGELOG) == []
    assert next(iter(sections(CHANGELOG))) == "Unreleased"


def test_cut_makes_unreleased_a_version_with_its_day_and_leaves_an_empty_one() -> None:
    done = cut(TEXT, "0.2.0", "2026-03-04")

    assert list(sections(done)) == ["Unreleased", "0.2.0 - 2026-03-04", "0.1.0 - 2026-01-02"]
    assert sections(done)["Unreleased"].strip() == ""
    assert done.replace("\n## 0.2.0 - 2026-03-04\n", "", 1) == TEXT


def test_notes_of_a_version_are_its_section_alone() -> None:
    done = cut(TEXT, "0.2.0", "2026-03-04")

    assert version_section(done, "0.2.0") == ("### Added\n\n- One thing,\n  on two lines.\n\n### Fixed\n\n- Another.\n")
    assert version_section(done, "0.2") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("### Fixed", "### Added", 1), "each once"),
        (TEXT.replace("### Fixed", "### Mended", 1), "Mended"),
        (TEXT.replace("### Added", "### Security", 1), "in the order"),
        (TEXT.replace("- Another.", "- One thing, on two\n  lines."), "says twice"),
        (cut(TEXT, "0.2.0", "2026-03-04"), "already"),
        (cut(TEXT, "0.3.0", "2026-03-04"), "nothing to release"),
        (TEXT.replace("## Unreleased", "## Next"), "nothing to release"),
    ],
)
def test_changelog_that_can_not_be_cut_says_why(text: str, why: str) -> None:
    with pytest.raises(ChangelogInvalid, match=why):
        cut(text, "0.2.0", "2026-03-04")


def test_kinds_are_those_of_keep_a_changelog() -> None:
    assert KINDS == ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files of the repository that state a version."""
    for name in {each.file for each in stated(ROOT)}:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_files_of_the_repository_state_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", agreed(ROOT))


@pytest.mark.parametrize("file", sorted({each.file for each in stated(ROOT)} - {"pyproject.toml"}))
def test_file_with_another_version_is_named(file: str, tree: Path) -> None:
    path = tree / file
    path.write_text(path.read_text().replace(agreed(ROOT), "9.8.7"))

    with pytest.raises(VersionsDiffer, match=rf"{re.escape(file)} says '9\.8\.7'"):
        agreed(tree)


def test_pin_of_a_distribution_of_ours_is_held_as_well(tree: Path) -> None:
    path = tree / "pyproject.toml"
    path.write_text(path.read_text().replace(f"codec-leaf[wire]=={agreed(ROOT)}", "codec-leaf[wire]==9.8.7"))

    with pytest.raises(VersionsDiffer, match=r"pyproject.toml says '9\.8\.7'"):
        agreed(tree)


def test_place_that_states_no_version_is_an_error(tree: Path) -> None:
    (tree / "gateway" / "__init__.py").write_text("")
    with pytest.raises(VersionsDiffer, match=r"gateway/__init__\.py' states no version"):
        agreed(tree)

    (tree / "gateway" / "__init__.py").unlink()
    with pytest.raises(VersionsDiffer, match="names no file"):
        agreed(tree)


def test_every_distribution_is_among_the_places() -> None:
    projects = [path for pattern, _ in PLACES if pattern.endswith("pyproject.toml") for path in ROOT.glob(pattern)]
    names = {re.findall(r'^name = "(.+)"$', path.read_text(), re.MULTILINE)[0] for path in projects}

    assert names == set(DISTRIBUTIONS)


def test_checksums_are_what_sha256sum_checks(tmp_path: Path) -> None:
    (tmp_path / "b.whl").write_bytes(b"b")
    (tmp_path / "a.tar.gz").write_bytes(b"a")
    (tmp_path / SUMS).write_text(checksums(tmp_path))

    assert checksums(tmp_path).splitlines() == [
        f"{hashlib.sha256(b'a').hexdigest()}  a.tar.gz",
        f"{hashlib.sha256(b'b').hexdigest()}  b.whl",
    ]
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", SUMS], cwd=tmp_path, check=True)
    (tmp_path / "b.whl").write_bytes(b"c")
    assert subprocess.run(["sha256sum", "--check", "--status", SUMS], cwd=tmp_path, check=False).returncode == 1


def test_every_line_of_the_lock_becomes_a_constraint_with_its_marker() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = constraints(lock)

    assert len(found) == len(re.findall(r"^[\w.-]+(?:\[[\w,-]+\])?==", lock, re.MULTILINE))
    assert any(each.startswith("tokenizers==") for each in found)
    assert constraints('a[x,y]==1.0 ; python_version < "3.12" \\\n    --hash=sha256:00\nb==2 \\\n') == [
        'a==1.0 ; python_version < "3.12"',
        "b==2",
    ]
    assert json.loads(json.dumps(found)) == found
