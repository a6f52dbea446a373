"""What is learned of tests before mutants are tried."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.trying import Known

ROOT = Path(__file__).parents[2]
MODULE = "gateway/escape.py"
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


MADE = """
from gateway.escape import cut_text, escape_text

CUT = cut_text("abc", 2)

def test_made():
    assert escape_text(CUT) == CUT
"""
LEARN = f"""
import dataclasses, json, sys
from tests.mutation.trying import learn
print(json.dumps(dataclasses.asdict(learn([{MODULE!r}], sys.argv[1:]))))
"""


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Known:
    """What is learned of all of these tests. Pytest takes them in the order of their files."""
    folder = tmp_path_factory.mktemp("tests")
    for name, source in {"cases": CASES, "lost": LOST, "made": MADE}.items():
        (folder / f"test_{name}.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-c", LEARN, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return Known(**json.loads(done.stdout))


def test_ids_that_pytest_escapes_anew_at_each_collection_are_left_out(known: Known) -> None:
    names = [name.partition("test_cases.py::")[2] for name in known.seconds]

    assert [name for name in names if name] == ["test_given[plain]", r"test_made[\xe9]"]


def test_lines_are_noted_though_a_test_before_took_the_tracer_away(known: Known) -> None:
    noted = {test.rpartition("/")[2] for tests in known.lines[MODULE].values() for test in tests}

    assert {test for test in noted if "lost" in test} == {"test_lost.py::test_second"}


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


def test_function_that_ran_at_the_import_is_known_so_that_it_is_imported_anew(known: Known) -> None:
    source = Path(MODULE).read_text().splitlines()
    cut, escaped = (
        next(number for number, line in enumerate(source, 1) if line.startswith(f"    {text}")) for text in BODIES
    )

    assert [known.is_nobodys(MODULE, range(line, line + 1)) for line in (cut, escaped)] == [True, False]
