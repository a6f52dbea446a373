"""Which map a client names, and which names are refused."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import MapUnknown
from gateway.serve.mcp.result_ids import SessionMaps
from leaf_sdk.vocab import load_map

VECTOR = Path(__file__).parents[3] / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
MAP = load_map(json.dumps(json.loads(VECTOR.read_bytes())).encode())
HEX = MAP.map_id.removeprefix("sha256:")
MAPS = SessionMaps({MAP.map_id: MAP})


@pytest.mark.parametrize(
    "header",
    [
        f"sha256:{HEX}",
        f"sha256:{HEX.upper()}",
        f"https://maps.example/m.json;sha256={HEX}",
        f"sha256={HEX}; url=https://maps.example/m.json",
        f"  https://evil.example/a.json ; sha256={HEX}  ",
    ],
)
def test_header_names_a_map_by_its_hash_alone(header):
    assert MAPS.from_header(header) is MAP


@pytest.mark.parametrize(
    "header",
    [
        "",
        "https://maps.example/m.json",
        f"https://maps.example/m.json;sha256={'0' * 64}",
        "sha256:xyz",
        f"sha256={HEX};sha256={'0' * 64}",
        f"sha256={HEX};sha256={HEX}",
        f"md5={HEX}",
    ],
)
def test_malformed_or_unknown_header_is_refused_with_the_names_that_are_accepted(header):
    with pytest.raises(MapUnknown, match=MAP.map_id):
        MAPS.from_header(header)


@pytest.mark.parametrize("value", [None, 7, {"map_id": MAP.map_id}, "", "sha256:00", "auto"])
def test_meta_value_that_is_no_held_map_is_refused(value):
    with pytest.raises(MapUnknown, match=MAP.map_id):
        MAPS.from_meta(value)


def test_meta_value_names_a_map():
    assert MAPS.from_meta(MAP.map_id) is MAP


def test_gateway_without_maps_says_that_none_can_be_named():
    with pytest.raises(MapUnknown, match="has no maps"):
        SessionMaps({}).from_header(f"sha256:{HEX}")


def test_control_characters_of_a_name_do_not_reach_the_message():
    with pytest.raises(MapUnknown) as raised:
        MAPS.from_meta("sha256:\x1b[31m\n")

    assert raised.value.message.isprintable()


@given(st.text())
def test_any_header_gives_the_map_or_our_own_refusal(header):
    try:
        found = MAPS.from_header(header)
    except MapUnknown as error:
        found, message = None, error.message
    else:
        message = MAP.map_id

    assert found in (MAP, None)
    assert MAP.map_id in message


def test_request_names_its_own_map_or_has_that_of_its_client():
    named = {"_meta": {"ai.codec/map": MAP.map_id}}

    assert MAPS.choose(named, None) is MAP
    assert MAPS.choose({"_meta": {}}, MAP) is MAP
    assert MAPS.choose({}, None) is None
    with pytest.raises(MapUnknown, match="must be a string"):
        MAPS.choose({"_meta": {"ai.codec/map": None}}, MAP)
