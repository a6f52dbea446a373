"""A system without a library that llama.cpp needs, stood in for by a package whose import fails as there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MISSING = "libgomp.so.1: cannot open shared object file: No such file or directory"
COMMANDS = {
    "serve": ["gateway", "serve", "--engine", "embedded", "--port", "0", "--admin-port", "0"],
    "serve with workers": ["gateway", "serve", "--engine", "embedded", "--workers", "2", "--port", "0"],
    "engine": ["gateway", "engine", "--port", "0"],
    "demo": ["gateway", "demo"],
}


def run(tmp_path: Path, reason: str, *command: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({reason!r})\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_one_message_names_the_library_and_the_command_that_installs_it(tmp_path: Path, command: list[str]) -> None:
    done = run(tmp_path, MISSING, *command)

    assert done.returncode == 3, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("codec-gateway: the embedded engine can't start: 'libgomp.so.1' is not installed")
    assert "apt-get install libgomp1" in last
    assert done.stderr.count("codec-gateway: ") == 1


@pytest.mark.parametrize(
    ("reason", "named"),
    [
        ("libother.so.2: cannot open shared object file: No such file or directory", "'libother.so.2'"),
        ("/lib/libc.so.6: version `GLIBC_9.9' not found (required by it)", "GLIBC_9.9"),
    ],
)
def test_what_another_system_lacks_is_named(tmp_path: Path, reason: str, named: str) -> None:
    done = run(tmp_path, reason, "gateway.engine.embedded.child_process")

    assert done.returncode == 3
    assert done.stdout == ""
    assert named in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_system_that_has_it_is_told_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gateway.engine.embedded.child_process"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "the embedded engine can start\n", "")
