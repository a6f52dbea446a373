"""What is learned of tests before mutants are tried."""

import subprocess
import sys
from pathlib import Path

from tests.mutation.trying import Known

ROOT = Path(__file__).parents[2]
CASES = """
import pytest

@pytest.mark.parametrize("n", [1, 2], ids=["plain", "\u00e9"])
def test_given(n):
    assert n

@pytest.mark.parametrize("n", ["\u00e9"])
def test_made(n):
    assert n
"""


LOST = """
import sys
from gateway.escape import escape_text

def test_first():
    sys.settrace(None)

def test_second():
    assert escape_text("a", 9) == "a"
"""


def told(folder: Path, source: str, show: str) -> str:
    (folder / "test_cases.py").write_text(source, encoding="utf-8")
    learn = "known = learn(['gateway/escape.py'], sys.argv[1:])"
    code = f"import sys\nfrom tests.mutation.trying import learn\n{learn}\n{show}"
    command = [sys.executable, "-c", code, str(folder)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_ids_that_pytest_escapes_anew_at_each_collection_are_left_out(tmp_path: Path) -> None:
    names = told(tmp_path, CASES, "print(*known.seconds)").split()

    assert [name.partition("::")[2] for name in names] == ["test_given[plain]", r"test_made[\xe9]"]


def test_lines_are_noted_though_a_test_before_took_the_tracer_away(tmp_path: Path) -> None:
    show = "print(*{test for tests in known.lines['gateway/escape.py'].values() for test in tests if test})"

    assert told(tmp_path, LOST, show).split()[0].endswith("::test_second")


FUNCTIONS = """
def outer():
    before()
    async def inner():
        try:
            work()
        finally:
            clean_up()
    after()
"""


def test_tests_of_the_whole_function_come_after_those_of_the_line(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(FUNCTIONS, encoding="utf-8")
    lines = {"3": ["outside"], "6": ["works", "cleans"], "8": ["cleans"]}
    known = Known(dict.fromkeys(("cleans", "outside", "works"), 1.0), {str(module): lines})

    assert known.tests_of(str(module), range(8, 9)) == ["cleans", "works"]
    assert known.tests_of(str(module), range(3, 4)) == ["outside", "cleans", "works"]


BODIES = ("return text[:limit]", "if text.isprintable()")
MADE = """
from gateway.escape import cut_text, escape_text

CUT = cut_text("abc", 2)

def test_made():
    assert escape_text(CUT) == CUT
"""


def test_function_that_ran_at_the_import_is_known_so_that_it_is_imported_anew(tmp_path: Path) -> None:
    source = Path("gateway/escape.py").read_text().splitlines()
    cut, escaped = (
        next(number for number, line in enumerate(source, 1) if line.startswith(f"    {text}")) for text in BODIES
    )
    show = f"print(*(known.is_nobodys('gateway/escape.py', range(line, line + 1)) for line in ({cut}, {escaped})))"

    assert told(tmp_path, MADE, show).split() == ["True", "False"]
