"""Machines that refuse something: a full disk, no temporary folder. One short message, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMANDS = {"check": ["check"], "model": ["model"], "help": ["--help"], "docs": ["docs"]}


def environment(**more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")} | more


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_output_on_a_full_disk_is_one_message(tmp_path: Path, command: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "gateway", *command],
            cwd=tmp_path, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip

    assert done.stderr == "codec-gateway: the output can't be written: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.engine
def test_no_temporary_folder_is_one_message(tmp_path: Path) -> None:
    """The tests may run as root, who may write everywhere: Python is told of one folder, which is none."""
    hidden = "import tempfile; tempfile._candidate_tempdir_list = lambda: ['/dev/full']"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    done = subprocess.run(
        [sys.executable, "-m", "gateway", "demo"],
        cwd=tmp_path, env=environment(PYTHONPATH=str(tmp_path)), capture_output=True, text=True, check=False,
    )  # fmt: skip

    last = done.stderr.splitlines()[-1]
    assert last.startswith("codec-gateway: the demo can't write its temporary files: ")
    assert "['/dev/full']" in last
    assert last.endswith("name another folder in TMPDIR")
    assert "Traceback" not in done.stderr
    assert done.returncode == 3
