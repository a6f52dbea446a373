"""`make mutants` reaches every module outside the commands, each in one package that has tests."""

from pathlib import Path

from tests.mutation.run import ROOT, modules_of, named_tests, packages
from tests.mutation.trying import Known


def test_every_module_but_those_of_the_commands_belongs_to_one_package() -> None:
    modules = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("gateway/**/*.py"))

    assert sorted(module for package in packages() for module in modules_of(package)) == [
        module for module in modules if not module.startswith("gateway/cli/")
    ]


def test_every_package_has_tests() -> None:
    assert [package for package in packages() if not named_tests(package)] == []


def test_package_is_tried_by_the_tests_that_mirror_it_or_else_by_those_that_import_from_it() -> None:
    assert named_tests("protocol") >= {"tests/gateway/protocol/test_eras.py", "tests/gateway/protocol/test_lines.py"}
    assert not any("/gateway/proxy/" in test for test in named_tests("protocol"))
    assert "tests/gateway/engine/test_slots.py" in named_tests("engine/slots")
    assert "tests/gateway/engine/test_template.py" not in named_tests("engine/slots")


def test_tests_of_a_package_inside_another_are_its_own_and_others_belong_to_the_outer_one() -> None:
    assert "tests/gateway/agent/recall/test_shapes.py" in named_tests("agent")
    assert "tests/gateway/engine/wire/llama_cpp/test_repair.py" not in named_tests("engine")


def test_package_whose_tests_are_those_of_another_is_tried_by_these_too() -> None:
    assert "tests/gateway/agent/test_large_results.py" in named_tests("agent/results")
    assert named_tests("context/compose") >= {
        "tests/gateway/context/compose/test_definitions_bound.py",
        "tests/gateway/agent/recall/test_shapes.py",
    }
    assert "tests/gateway/proxy/test_idle.py" not in named_tests("context/compose")
    assert named_tests("proxy/upstream/supervision") >= {
        "tests/gateway/proxy/test_idle.py",
        "tests/gateway/proxy/upstream/test_listing.py",
    }


def test_mutant_gets_its_module_s_own_tests_first_then_the_quickest_for_a_while(tmp_path: Path) -> None:
    path = str(tmp_path / "a.py")
    Path(path).write_text("")
    seconds = {"t/test_b.py::slow": 1.5, "t/test_a.py::own": 2.0, "t/test_b.py::quick": 0.1}
    known = Known(seconds, {path: {"3": [*seconds, "left out"], "9": [""]}})

    assert known.tests_of(path, range(3, 4)) == ["t/test_a.py::own", "t/test_b.py::quick", "t/test_b.py::slow"]
    assert known.tests_of(path, range(9, 10)) == known.tests_of(path, range(3, 4))
    assert known.tests_of(path, range(4, 5)) == []
    # Its own file may hold a test of its constants alone, which runs none of its lines.
    constant = Known(seconds, {path: {"3": ["t/test_b.py::quick"], "9": [""]}})
    assert constant.tests_of(path, range(9, 10)) == ["t/test_a.py::own", "t/test_b.py::quick"]
    assert len(Known(seconds, {path: {"9": [""]}}).tests_of(path, range(9, 10))) == 3
    many = {f"t/test_b.py::{number:03}": 1.0 for number in range(100)}
    assert len(Known(many, {path: {"3": [*many]}}).tests_of(path, range(3, 4))) == 40
