"""`make mutants` reaches every module outside the commands, each in one package that has tests."""

from tests.mutation.run import ROOT, modules_of, named_tests, packages


def test_every_module_but_those_of_the_commands_belongs_to_one_package() -> None:
    modules = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("gateway/**/*.py"))

    assert sorted(module for package in packages() for module in modules_of(package)) == [
        module for module in modules if not module.startswith("gateway/cli/")
    ]


def test_every_package_has_tests_that_are_there() -> None:
    for package in packages():
        named = [ROOT / test for test in named_tests(package)]
        assert [path for path in named if not path.exists()] == [], package
        assert any(path.is_file() or any(path.rglob("test_*.py")) for path in named), package


def test_package_inside_another_is_tried_by_the_tests_that_mirror_it() -> None:
    assert "tests/gateway/proxy/bolt_on" in named_tests("proxy/bolt_on")
    assert "tests/gateway/proxy/transport" in named_tests("proxy/transport/http")


def test_packages_of_one_room_are_tried_by_the_same_tests_which_are_run_once_to_learn_of_them() -> None:
    found = [package for package in packages() if package.partition("/")[0] == "engine"]

    assert len(found) > 1
    assert {tuple(named_tests(each)) for each in found} == {("tests/gateway/agent", "tests/gateway/engine")}
