"""What `make bare-check` takes from README: if README no longer says it, the suite tells before the check does."""

from pathlib import Path

import pytest

from tests.bare.circumstances import CIRCUMSTANCES
from tests.bare.readme import packages_of, steps_of

README = Path(__file__).parents[2] / "README.md"


def test_packages_are_those_of_the_command_in_the_text() -> None:
    assert packages_of("Debian: `apt-get install python3-venv git libgomp1`. In a clone:") == [
        "python3-venv",
        "git",
        "libgomp1",
    ]


def test_text_that_names_no_packages_is_refused() -> None:
    with pytest.raises(LookupError, match="README says nowhere"):
        packages_of("You need make and git.")


def test_steps_are_the_commands_of_the_readme() -> None:
    steps = {step.name: step for step in steps_of(README)}

    assert list(steps)[:2] == ["make demo", "make test"]
    assert [name for name, step in steps.items() if step.is_suite] == ["make test"]
    assert "codec-plain-time" in steps["serve and one request"].script
    assert "http://127.0.0.1:8600/v1" in steps["serve and one request"].script
    assert "$HOME/clone/.venv/bin/codec-gateway stdio" in steps["tools/list over stdio"].script


def test_readme_without_its_commands_is_refused_by_name(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text("```\nmake setup\n```\n")

    with pytest.raises(LookupError, match="no block with 'make demo'"):
        list(steps_of(page))


def test_names_of_steps_are_unique() -> None:
    names = [step.name for step in (*steps_of(README), *CIRCUMSTANCES)]

    assert len(set(names)) == len(names)
