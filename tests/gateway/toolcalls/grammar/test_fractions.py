"""Bounds of numbers: the grammar takes just the numbers that are within."""

import json
import random
from decimal import Decimal
from typing import Any

import jsonschema
import pytest

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.formats.structured_output import AnswerForm, answer_grammar
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

LEAST, MOST = ("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")


def within(schema: dict[str, Any]) -> Gbnf:
    form = AnswerForm.of_schema(schema, "schema")
    return Gbnf(answer_grammar(format_named("hermes"), form, (), parallel=False, prompt_tail="</think>\n"))


def random_bounds(chance: random.Random) -> dict[str, Any]:
    def bound() -> float:
        fine = round(chance.uniform(-3, 3), chance.randint(1, 3))
        return chance.choice([chance.randint(-20, 20), fine, round(chance.uniform(-200, 200), 1), 0, 0.1, 1e-5])

    schema: dict[str, Any] = {"type": "number"}
    for keys in (LEAST, MOST):
        if chance.random() < 0.7:
            schema[chance.choice(keys)] = bound()
    return schema


@each_of("seed", range(120))
def test_numbers_are_taken_where_they_are_within_the_bounds(seed):
    chance = random.Random(seed)
    schema = random_bounds(chance)
    low, high = ([schema[key] for key in keys if key in schema] for keys in (LEAST, MOST))
    if low and high and low[0] >= high[0] and (low[0] > high[0] or len({"minimum", "maximum"} & schema.keys()) < 2):
        with pytest.raises(RequestInvalid, match="within the bounds"):
            within(schema)
        return
    grammar = within(schema)

    for number in range(20):
        jsonschema.validate(json.loads(grammar.sample(random.Random(number))), schema)
    for _ in range(30):
        value = round(chance.uniform(-25, 25), chance.randint(1, 5))
        if value:
            fits = jsonschema.Draft202012Validator(schema).is_valid(value)
            assert grammar.takes(f"{Decimal(repr(value)):f}") == fits, (schema, value)


def test_number_has_no_more_digits_than_are_told_apart():
    grammar = within({"type": "number", "exclusiveMinimum": 1, "maximum": 1.00000000000002})

    assert grammar.takes("1.00000000000001")
    assert not grammar.takes("1.000000000000005")


def test_bounds_beyond_what_numbers_can_tell_apart_are_refused():
    for bound in (1e15, -1e300, 1e-15, 10**20):
        with pytest.raises(RequestInvalid, match="digits"):
            within({"type": "number", "minimum": bound})
