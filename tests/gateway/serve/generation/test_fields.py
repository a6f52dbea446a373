"""Fields of a request: served, refused by name, or accepted without effect and named."""

import json
from collections.abc import Mapping
from typing import ClassVar

import pytest

from gateway.errors import RequestInvalid
from gateway.serve.generation.fields import RequestModel


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
    with pytest.raises(RequestInvalid, match="later: this is not served: ask again when it is wanted") as raised:
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
