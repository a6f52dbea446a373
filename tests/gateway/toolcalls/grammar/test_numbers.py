"""A grammar of numbers takes all of those within its bounds and no other."""

from decimal import Decimal
from itertools import product

import pytest

from gateway.toolcalls.grammar.gbnf import Grammar
from gateway.toolcalls.grammar.numbers import (
    NumberBounds,
    integer_bounds,
    integer_rules,
    most_digits,
    number_rules,
)
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

EDGES = (None, -100, -57, -10, -9, -1, 0, 1, 9, 10, 57, 100)
WHOLE = [*range(-12, 13), *(sign * each for each in (19, 55, 56, 57, 58, 59, 60, 99, 100, 101) for sign in (1, -1))]
FINE = tuple(map(Decimal, ("-1.05", "-1", "-0.5", "0", "0.1", "0.95", "1", "2.5")))
TRIED = [Decimal(each) / 20 for each in range(-50, 60, 3)]
TRIED += [each + nudge for each in FINE for nudge in map(Decimal, ("0", "0.001", "-0.001"))]


def empty() -> Grammar:
    return Grammar((), parallel=False, schemas=lambda *_: "")


def taken(expression: str, grammar: Grammar, texts: list[str]) -> list[str]:
    if not expression:
        return []
    read = Gbnf(grammar.text(expression))
    return [text for text in texts if read.takes(text)]


@each_of("low", EDGES)
def test_whole_numbers_within_bounds_are_taken_and_no_others(low: int | None) -> None:
    for high in EDGES:
        g = empty()
        within = [str(n) for n in WHOLE if (low is None or low <= n) and (high is None or n <= high)]

        assert taken(integer_rules(g, low, high), g, [*map(str, WHOLE), "-0", "00", "01", "", "-"]) == within, high


@pytest.mark.parametrize("most", [3, 4])
def test_whole_number_without_a_bound_has_so_many_digits(most: int) -> None:
    g = empty()
    texts = ["9" * most, "9" * (most + 1), "-" + "9" * most, "-" + "9" * (most + 1)]

    assert taken(integer_rules(g, None, None, most), g, texts) == [texts[0], texts[2]]
    assert taken(integer_rules(g, 12, None, most), g, ["12", *texts]) == ["12", texts[0]]


@each_of("low", [None, *FINE])
def test_numbers_with_a_fraction_within_bounds_are_taken_and_no_others(low: Decimal | None) -> None:
    for high, above, below in product([None, *FINE], (False, True), (False, True)):
        g = empty()
        bounds = NumberBounds(low, above and low is not None, high, below and high is not None)

        def within(number: Decimal, of: NumberBounds = bounds) -> bool:
            over = of.low is None or number > of.low or (number == of.low and not of.above)
            under = of.high is None or number < of.high or (number == of.high and not of.below)
            return over and under

        expected = [f"{number:f}" for number in TRIED if within(number)]
        found = taken(number_rules(g, bounds), g, [f"{number:f}" for number in TRIED])

        # Of 0 with a minus sign nothing is promised.
        assert [each for each in found if Decimal(each)] == [each for each in expected if Decimal(each)], bounds


@each_of(
    ("schema", "bounds"),
    [
        ({}, (None, None)),
        ({"minimum": 3, "maximum": 7}, (3, 7)),
        ({"minimum": 2.5, "maximum": 7.5}, (3, 7)),
        ({"exclusiveMinimum": 3, "exclusiveMaximum": 7}, (4, 6)),
        ({"exclusiveMinimum": 2.5, "exclusiveMaximum": 6.5}, (3, 6)),
        ({"minimum": 5, "exclusiveMinimum": 3, "maximum": 8, "exclusiveMaximum": 7}, (5, 6)),
        ({"minimum": True, "maximum": "7"}, (None, None)),
        ({"minimum": -(10**20), "maximum": 10**20}, (None, None)),
        ({"minimum": 1 - 10**20, "maximum": 10**20 - 1}, (1 - 10**20, 10**20 - 1)),
    ],
)
def test_bounds_of_whole_numbers_are_the_tightest_that_can_be_written(
    schema: dict[str, object], bounds: tuple[int | None, int | None]
) -> None:
    assert integer_bounds(schema) == bounds


@pytest.mark.parametrize(
    ("schema", "digits"),
    [({}, 20), ({"minimum": 10**20 - 1}, 20), ({"minimum": 10**20}, 100), ({"exclusiveMaximum": -(10**20)}, 100)],
)
def test_whole_number_has_more_digits_than_usual_only_where_its_bound_has(schema: object, digits: int) -> None:
    assert most_digits(schema) == digits


@each_of(
    ("schema", "bounds"),
    [
        ({}, NumberBounds()),
        ({"minimum": 1, "maximum": 2.5}, NumberBounds(Decimal(1), False, Decimal("2.5"), False)),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 2}, NumberBounds(Decimal(1), True, Decimal(2), True)),
        ({"minimum": 1, "exclusiveMinimum": 1}, NumberBounds(Decimal(1), True)),
        ({"minimum": 2, "exclusiveMinimum": 1}, NumberBounds(Decimal(2), False)),
        ({"maximum": 1, "exclusiveMaximum": 1}, NumberBounds(None, False, Decimal(1), True)),
        ({"maximum": 1, "exclusiveMaximum": 2}, NumberBounds(None, False, Decimal(1), False)),
        ({"minimum": 0.1}, NumberBounds(Decimal("0.1"))),
        ({"minimum": 10**15 - 1}, NumberBounds(Decimal(10**15 - 1))),
        ({"minimum": 10**15}, None),
        ({"minimum": 1, "maximum": float("inf")}, None),
        ({"maximum": 1e-14}, NumberBounds(None, False, Decimal("1E-14"))),
        ({"maximum": 1e-15}, None),
        ({"minimum": "1"}, None),
    ],
)
def test_bounds_of_numbers_are_read_as_they_were_written(
    schema: dict[str, object], bounds: NumberBounds | None
) -> None:
    assert NumberBounds.of(schema) == bounds
