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
from gateway.serve.generation.request_fields import (
    ApiModel,
    GenerationFields,
    RequestModel,
    WatchIds,
    WatchTexts,
    checked_part,
    must_be_finite,
)
from tests.cases import each_of


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


@each_of("model", sorted(set(parts_of_requests()), key=str))
@each_of("wrong", [[], {}, "a", -1, 7, None, [[]]])
def test_list_of_many_wrong_entries_costs_no_error_for_each(model: type[ApiModel], wrong: object) -> None:
    for name, field in model.model_fields.items():
        for many in ([wrong] * MANY, {str(n): wrong for n in range(MANY)}):
            errors = 0
            try:
                model.model_validate({field.alias or name: many})
            except ValidationError as error:
                errors = error.error_count()
            assert errors < 50, name


def asked(**fields: object) -> GenerationFields:
    return GenerationFields.of_body(json.dumps(fields).encode())


@each_of(
    ("name", "taken", "refused"),
    [
        ("temperature", (0, 100), (-0.1, 100.1)),
        ("top_p", (0, 1), (-0.1, 1.1)),
        ("min_p", (0, 1), (-0.1, 1.1)),
        ("top_k", (0, 1, 2**31 - 1), (-2, 2**31)),
        ("presence_penalty", (-2, 2), (-2.1, 2.1)),
        ("frequency_penalty", (-2, 2), (-2.1, 2.1)),
        ("seed", (-(2**63), 2**63 - 1), (-(2**63) - 1, 2**63)),
        ("max_tokens", (1, 2**40), (0, -2)),
    ],
)
def test_number_is_taken_within_its_bounds_and_refused_by_name_beyond_them(
    name: str, taken: tuple[float, ...], refused: tuple[float, ...]
) -> None:
    assert [getattr(asked(**{name: value}), name) for value in taken] == list(taken)
    for value in refused:
        with pytest.raises(RequestInvalid) as error:
            asked(**{name: value})
        assert error.value.param == name


@pytest.mark.parametrize("bias", [-100.1, 100.1, "x"])
def test_bias_is_a_number_between_minus_100_and_100(bias: object) -> None:
    assert asked(logit_bias={"1": -100, "2": 100}).logit_bias == {"1": -100.0, "2": 100.0}
    with pytest.raises(RequestInvalid, match="logit_bias"):
        asked(logit_bias={"1": bias})


def test_biases_may_be_a_list_of_pairs_with_false_for_a_token_that_must_not_come() -> None:
    assert asked(logit_bias=[[1, 5], ["2", False]]).logit_bias == {"1": 5.0, "2": -100.0}
    for wrong in ([[1]], [[1, 2, 3]], [1], [[1, 2], 3]):
        with pytest.raises(RequestInvalid, match="logit_bias"):
            asked(logit_bias=wrong)


def test_biases_are_bounded_in_number() -> None:
    many = {str(n): 1 for n in range(1024)}

    assert len(asked(logit_bias=many).logit_bias or ()) == 1024
    with pytest.raises(RequestInvalid, match="logit_bias"):
        asked(logit_bias={**many, "1024": 1})


@pytest.mark.parametrize(
    ("fields", "watched"),
    [
        ({}, None),
        ({"tool_watcher": False, "tool_watcher_start": "<a>"}, None),
        ({"tool_watcher": True}, WatchTexts("<tool_call>", "</tool_call>")),
        (
            {"tool_watcher": True, "tool_watcher_start": "<a>", "tool_watcher_end": "</a>"},
            WatchTexts("<a>", "</a>"),
        ),
        ({"tool_watcher": {"start_id": 0, "end_id": 2**32 - 1}}, WatchIds(0, 2**32 - 1)),
    ],
)
def test_markers_of_calls_are_named_by_texts_or_ids(fields: dict[str, object], watched: object) -> None:
    assert asked(**fields).watched == watched


@pytest.mark.parametrize("wrong", [{"start_id": -1, "end_id": 2}, {"start_id": 1, "end_id": 2**32}, {"start_id": 1}])
def test_marker_that_is_no_id_is_refused_by_the_field(wrong: dict[str, int]) -> None:
    with pytest.raises(RequestInvalid) as error:
        asked(tool_watcher=wrong)
    assert error.value.param == "tool_watcher"


def test_usage_comes_in_a_chunk_of_its_own_only_where_it_is_asked_for() -> None:
    told = [asked(), asked(stream_options={}), asked(stream_options={"include_usage": True})]

    assert [each.usage_chunk for each in told] == [False, False, True]


def test_form_is_that_of_the_one_field_that_asks_for_one() -> None:
    assert asked().form is None
    assert asked(guided_choice=["a"]).form == asked(structured_outputs={"choice": ["a"]}).form
    with pytest.raises(RequestInvalid, match="already has the form of json_schema") as error:
        _ = asked(json_schema={"type": "object"}, guided_choice=["a"]).form
    assert error.value.param == "guided_choice"


def test_part_of_a_request_is_refused_by_its_place_in_it() -> None:
    assert checked_part(Paint, {"colour": None}, "walls[0]") == Paint()
    with pytest.raises(RequestInvalid, match=r"^walls\[0\]\.colour: ") as error:
        checked_part(Paint, {"colour": 5}, "walls[0]")
    assert error.value.param == "walls[0].colour"


@pytest.mark.parametrize(("length", "shown"), [(78, 80), (79, 80), (5000, 80)])
def test_value_that_is_refused_is_shown_up_to_80_characters(length: int, shown: int) -> None:
    with pytest.raises(RequestInvalid) as error:
        asked(temperature="x" * length)

    value = str(error.value).rpartition("got ")[2]
    assert len(value) == shown
    assert (value == repr("x" * length)) == (length == 78)


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ("NaN", "the body"),
        ('{"a": {"b": [1, 2.5, NaN]}}', "a.b.2"),
        ('{"a": [[], [true, -Infinity]], "b": NaN}', "a.1.1"),
        ("[[1], {}, 1e999]", "2"),
        (f"[1, {10**309}]", "1"),
    ],
)
def test_number_that_json_lacks_is_named_by_its_place(body: str, place: str) -> None:
    with pytest.raises(RequestInvalid) as error:
        must_be_finite(body.encode())

    assert str(error.value).startswith(f"{place}: NaN and Infinity are not JSON numbers")
    assert error.value.param == (None if place == "the body" else place)
