"""Random schemas: what the grammar takes fits, or the schema was refused."""

import json
import random
from typing import Any

import jsonschema

from gateway.errors import RequestInvalid
from gateway.toolcalls.formats.registry import format_named
from gateway.toolcalls.formats.structured_output import AnswerForm, answer_grammar
from tests.cases import each_of
from tests.gateway.toolcalls.gbnf_oracle import Gbnf

KEYS = ("a", 'b"', "kind")


def schema_of(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """One schema: now and then with a keyword that it shares with others, or that no grammar holds."""
    if depth > 2:
        return chance.choice([{"type": "integer"}, {"enum": ["x", 1, None]}, {"$ref": "#/$defs/leaf"}, {}])
    made = chance.choice([_object, _array, _string, _number, _union])(chance, depth)
    if chance.random() < 0.15:
        made |= chance.choice(
            [{"description": "d"}, {"type": ["string", "null"]}, {"uniqueItems": True}, {"const": "x"}]
        )
    return made


def _object(chance: random.Random, depth: int) -> dict[str, Any]:
    names = chance.sample(KEYS, chance.randint(0, 3))
    made: dict[str, Any] = {"type": "object", "properties": {name: schema_of(chance, depth + 1) for name in names}}
    made["required"] = chance.sample(KEYS, chance.randint(0, 2)) if chance.random() < 0.2 else names[:1]
    extra: list[dict[str, Any]] = [{}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}]
    return made | chance.choice(extra) | chance.choice([{}, {"minProperties": 1}, {"maxProperties": 2}])


def _array(chance: random.Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array", "items": schema_of(chance, depth + 1)}
    if chance.random() < 0.3:
        made["prefixItems"] = [schema_of(chance, depth + 1)]
    return made | chance.choice([{}, {"minItems": 1}, {"maxItems": 2}, {"minItems": 2, "maxItems": 2}])


def _string(chance: random.Random, _: int) -> dict[str, Any]:
    return {"type": "string"} | chance.choice([{}, {"maxLength": 3}, {"minLength": 2}, {"pattern": "^[ab]{2}$"}])


def _number(chance: random.Random, _: int) -> dict[str, Any]:
    bounds = chance.choice([{}, {"minimum": 3}, {"maximum": -2.5}, {"minimum": 0, "exclusiveMaximum": 1}])
    return {"type": chance.choice(["integer", "number"]), **bounds}


def _union(chance: random.Random, depth: int) -> dict[str, Any]:
    key = chance.choice(["anyOf", "oneOf", "allOf"])
    return {key: [schema_of(chance, depth + 1) for _ in range(chance.randint(1, 3))]}


@each_of("seed", [*range(20), 121, 171])
def test_all_that_is_taken_fits_or_the_schema_was_refused(seed):
    chance = random.Random(seed)
    held = 0
    for _ in range(60):
        schema = {**schema_of(chance), "$defs": {"leaf": schema_of(chance, 2)}}
        try:
            form = AnswerForm.of_schema(schema, "schema")
        except RequestInvalid:
            continue
        held += 1
        grammar = Gbnf(answer_grammar(format_named("hermes"), form, (), parallel=False, prompt_tail="</think>\n"))
        for number in range(6):
            text = grammar.sample(random.Random(number))
            errors = list(jsonschema.Draft202012Validator(schema).iter_errors(json.loads(text)))
            assert not errors, (schema, text)
    assert held > 10
