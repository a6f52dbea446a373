"""The command builds, names and shows maps; what goes wrong is one line on stderr."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from leaf_sdk import load_map
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import map_digest
from tests.leaf_sdk.cli.conftest import run, run_installed


def test_build_writes_a_map_of_a_model_and_prints_its_hash(smollm_path, tmp_path):
    output = tmp_path / "smollm.json"
    done = run("map", "build", smollm_path, "-o", output, "--id", "lab/smollm")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == map_digest(output.read_bytes()) + "\n"
    assert load_map(output.read_bytes()).id == "lab/smollm"


def test_hash_names_the_bytes_of_a_map(map_path):
    assert run("map", "hash", map_path).stdout == tiny_map().map_id + "\n"


def test_show_says_what_a_map_holds(map_path):
    shown = run("map", "show", map_path).stdout
    assert "codec-test/tiny" in shown
    assert tiny_map().map_id in shown
    assert "272 (4 special)" in shown
    assert "qwen25" in shown


def test_a_source_that_is_not_there_is_one_line_and_exit_code_3(tmp_path):
    for verb in ("hash", "show"):
        done = run("map", verb, tmp_path / "none.json")
        assert done.returncode == 3
        assert done.stdout == ""
        assert done.stderr.startswith("codec-leaf: map source")
        assert done.stderr.count("\n") == 1


def test_a_file_of_another_kind_builds_nothing(tmp_path):
    (tmp_path / "package.json").write_text('{"name": "x"}')
    done = run("map", "build", tmp_path / "package.json", "-o", tmp_path / "out.json")
    assert done.returncode == 3
    assert "tokenizer.json" in done.stderr
    assert not (tmp_path / "out.json").exists()


def test_an_output_that_can_not_be_written_is_named(smollm_path, tmp_path):
    done = run("map", "build", smollm_path, "-o", tmp_path / "no" / "out.json")
    assert done.returncode == 3
    assert "out.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_shows_every_verb():
    done = run("map", "--help")
    assert done.returncode == 0
    verbs = ("build", "convert", "diff", "fetch", "hash", "publish", "show", "verify")
    assert all(verb in done.stdout for verb in verbs)


@pytest.mark.parametrize("words", [["-h"], ["map", "-h"], ["check", "-h"]])
def test_help_has_its_short_name_everywhere(words):
    done = run(*words)
    assert done.returncode == 0
    assert done.stdout == run(*words[:-1], "--help").stdout


def test_version_is_that_of_the_package():
    assert run_installed("--version").stdout == f"codec-leaf {version('codec-leaf')}\n"


def test_a_missing_file_is_named_once(tmp_path):
    missing = tmp_path / "nowhere.json"
    done = run_installed("map", "show", missing)
    assert done.returncode == 3
    assert done.stderr == f"codec-leaf: map source {str(missing)!r} can't be read: No such file or directory\n"


def test_a_command_that_is_not_there_is_named_by_the_verdict():
    done = run("check", "--", "no-such-command")
    assert (done.returncode, done.stderr) == (1, "")
    assert "can't be checked: 'no-such-command': No such file or directory" in done.stdout


def test_a_program_that_speaks_no_mcp_gets_a_line_and_no_traceback():
    done = run("check", "--", sys.executable, "-c", "print('starting')")
    assert (done.returncode, done.stderr) == (1, "")
    assert "send its own messages to standard error" in done.stdout


def test_without_its_extra_the_command_says_what_to_install():
    program = "import sys; sys.modules['typer'] = None; from leaf_sdk.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert "codec-leaf[cli]" in done.stderr
    assert "Traceback" not in done.stderr
