"""Fields of a request: served, refused by name, or accepted without effect and named."""

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import walk_packages
from typing import ClassVar

import pytest
from pydantic import ValidationError

import gateway.serve
from gateway.errors import RequestInvalid
from gateway.serve.generation.fields import ApiModel, RequestModel


class Paint(RequestModel):
    refused: ClassVar[Mapping[str, str]] = {"later": "ask again when it is wanted"}

    colour: str = "white"


def read(**fields: object) -> Paint:
    return Paint.of_body(json.dumps(fields).encode())


def test_known_fields_are_served_and_others_are_named() -> None:
    request = read(colour="red", zeal=1, gloss={"a": 1})
    assert (request.colour, request.ignored) == ("red", ("gloss", "zeal"))


@pytest.mark.parametrize("nothing", [None, False, "", [], {}])
def test_field_that_is_refused_may_be_sent_where_it_asks_for_nothing(nothing: object) -> None:
    assert read(later=nothing).ignored == ()


def test_field_that_is_refused_is_named_with_the_way_out() -> None:
    with pytest.raises(
        RequestInvalid, match="later: this field is not supported; ask again when it is wanted"
    ) as raised:
        read(later=True)
    assert raised.value.param == "later"


def test_nulls_are_fields_that_were_left_out() -> None:
    assert read(colour=None, zeal=None) == Paint()


def test_client_cannot_say_itself_what_is_ignored() -> None:
    assert read(ignored=["colour"]).ignored == ("ignored",)


def test_names_of_fields_are_bounded_and_hold_no_control_characters() -> None:
    request = read(**{f"x{n:03}\x1b" + "y" * 200: 1 for n in range(100)})
    assert len(request.ignored) == 32
    assert all(len(name) <= 100 and name.isprintable() for name in request.ignored)


MANY = 3000


def parts_of_requests(of: type[ApiModel] = ApiModel) -> Iterator[type[ApiModel]]:
    """Every model of a request or of a part of one, of all modules that were imported."""
    for model in of.__subclasses__():
        yield from (model, *parts_of_requests(model))


for module in walk_packages(gateway.serve.__path__, "gateway.serve."):
    import_module(module.name)


@pytest.mark.parametrize("model", sorted(set(parts_of_requests()), key=str))
@pytest.mark.parametrize("wrong", [[], {}, "a", -1, 7, None, [[]]])
def test_list_of_many_wrong_entries_costs_no_error_for_each(model: type[ApiModel], wrong: object) -> None:
    for name, field in model.model_fields.items():
        for many in ([wrong] * MANY, {str(n): wrong for n in range(MANY)}):
            errors = 0
            try:
                model.model_validate({field.alias or name: many})
            except ValidationError as error:
                errors = error.error_count()
            assert errors < 50, name
