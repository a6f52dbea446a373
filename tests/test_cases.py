"""One test over many small cases tries every one of them, and names those that fail."""

import pytest

from tests.cases import each_of


@each_of("left", [1, 2])
@each_of(("right", "total"), [(1, 2), (2, 3)])
def sum_is(left: int, right: int, total: int) -> None:
    assert left + right == total


def test_every_case_is_tried_and_those_that_fail_are_named() -> None:
    with pytest.RaisesGroup(pytest.RaisesGroup(AssertionError, AssertionError)) as failed:
        sum_is()

    (two,) = failed.value.exceptions
    assert two.__notes__ == ["with left = 2"]
    assert [each.__notes__ for each in two.exceptions] == [
        ["with right, total = (1, 2)"],
        ["with right, total = (2, 3)"],
    ]


def test_fixtures_are_given_to_every_case(tmp_path) -> None:
    @each_of("name", ["a", "b"])
    def is_new(name: str, tmp_path) -> None:
        (tmp_path / name).mkdir()

    is_new(tmp_path=tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a", "b"}


@pytest.mark.anyio
async def test_cases_of_an_asynchronous_test_are_tried_like_those_of_any_other() -> None:
    @each_of("left", [1, 2])
    async def is_one(left: int) -> None:
        assert left == 1

    with pytest.RaisesGroup(AssertionError) as failed:
        await is_one()

    assert failed.value.exceptions[0].__notes__ == ["with left = 2"]


def test_parameter_of_pytest_is_no_case() -> None:
    with pytest.raises(TypeError, match="a case is a value"):
        each_of("left", [pytest.param(1, id="one")])
