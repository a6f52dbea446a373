"""No text and no ids of a tool reach an engine as a control token: not as leaf, fragment, argument or answer."""

import json

import pytest

from leaf_sdk import (
    CODEC_META_KEY,
    CodecTool,
    CodecToolCall,
    Fragments,
    Manifest,
    MetaTokenizer,
    ModelBinding,
    check_ids,
    fill,
    load_map,
    precache,
    take_ids,
    wrap_tool_call,
)
from leaf_sdk.errors import FragmentCacheInvalid
from leaf_sdk.leaf.bolt_on import parse_cache
from leaf_sdk.testing import tiny_map_bytes
from tests.cases import each_of

LEVELS = ("verify", "trust")


@pytest.fixture(scope="module", params=["tiny", "tiny normalized", "golden", "smollm"])
def token_map(request, golden_map, smollm):
    """Every map of these tests."""
    if request.param == "tiny":
        return load_map(tiny_map_bytes())
    if request.param == "tiny normalized":
        return load_map(json.dumps(json.loads(tiny_map_bytes()) | {"x_normalizer": "NFC"}).encode())
    return golden_map if request.param == "golden" else smollm


@pytest.fixture(scope="module")
def spelled(token_map) -> list[str]:
    """Every control token as text, alone, in a sentence, doubled and cut in two."""
    names = sorted(token_map.special_texts)
    assert names
    return [form for name in names for form in (name, f"a {name} b", f"{name}{name}", f"x{name}", f"{name}\n")]


def test_a_leaf_that_spells_a_control_token_ships_ordinary_ids(token_map, spelled):
    meta = MetaTokenizer(token_map.map_id, token_map, token_map.encode)
    content = [{"type": "text", "text": text} for text in spelled]
    for text, ids in zip(spelled, take_ids(wrap_tool_call({"content": content}, meta)), strict=True):
        assert not token_map.special_ids & set(ids)
        assert check_ids(token_map, text, ids) is None


def test_shipped_control_ids_pass_no_level_whatever_the_text_says(token_map):
    for token_id in token_map.special_ids:
        for text in (token_map.decode([token_id]), "hello"):
            for ids in ([token_id], [*token_map.encode("hello"), token_id]):
                rejections = [check_ids(token_map, text, ids, level) for level in LEVELS]
                assert [each and each.reason for each in rejections] == ["special", "special"]


def test_a_payload_of_control_ids_is_read_and_then_refused(token_map):
    token_id = min(token_map.special_ids)
    meta = {CODEC_META_KEY: {"map_id": token_map.map_id, "ids": [token_id]}}
    (ids,) = take_ids({"content": [{"type": "text", "text": "hello", "_meta": meta}]}, token_map.map_id)
    assert check_ids(token_map, "hello", ids, "trust").reason == "special"


def test_a_slot_or_a_literal_that_spells_a_control_token_stays_ordinary(token_map, spelled):
    for text in spelled:
        texts = {"slot": "say {x} now", "edge": "{x}", "literal": f"say {text} {{x}}", "static": text}
        fragments = Fragments(token_map, precache(texts, token_map, probes=()))
        for name in ("slot", "edge", "literal"):
            ids = fragments[name].ids({"x": text})
            assert not token_map.special_ids & set(ids)
            assert ids == token_map.encode(fragments[name].text({"x": text}))
        assert not token_map.special_ids & set(fragments["static"].ids({}))


def test_a_control_token_can_not_be_made_of_two_halves_at_a_seam(token_map):
    for name in sorted(token_map.special_texts):
        for at in range(1, len(name)):
            template = name[:at].replace("{", "") + "{x}"
            fragments = Fragments(token_map, precache({"t": template}, token_map, probes=()))
            assert not token_map.special_ids & set(fragments["t"].ids({"x": name[at:]}))


def test_a_cache_with_a_control_id_is_refused(token_map):
    for token_id in token_map.special_ids:
        document = {
            "tokenizerHash": token_map.map_id.removeprefix("sha256:"),
            "fragments": {"t": {"kind": "template", "parts": [{"ids": [token_id]}, {"slot": "x"}]}},
        }
        with pytest.raises(FragmentCacheInvalid, match=str(token_id)):
            Fragments(token_map, parse_cache(json.dumps(document).encode()))


@pytest.fixture(scope="module")
def tool(token_map) -> CodecTool:
    manifest = Manifest(
        name="echo",
        version="1",
        description="Say it again",
        arguments_schema={"type": "object", "required": ["x"]},
        models=(ModelBinding("m", token_map.map_id.removeprefix("sha256:")),),
    )
    fragments = Fragments(token_map, precache({"echo": "You said: {x}."}, token_map))

    def echo(arguments):
        return fill("echo", x=arguments["x"]) if arguments.get("fragment") else arguments["x"]

    return CodecTool(manifest, echo, {"m": fragments})


@each_of("fragment", [True, False])
def test_a_bolt_on_that_echoes_a_control_token_answers_ordinary_ids(token_map, spelled, tool, fragment):
    for text in spelled:
        written = json.dumps({"x": text, "fragment": fragment})
        call = CodecToolCall("echo", 1, argument_ids=tuple(token_map.encode(written)), model_id="m")
        result = tool.call(call)
        assert result.kind == "tokens"
        assert not token_map.special_ids & set(result.response_ids)


def test_a_bolt_on_takes_no_control_id_as_an_argument(token_map, tool):
    before, after = token_map.encode('{"x":"'), token_map.encode('"}')
    for token_id in token_map.special_ids:
        call = CodecToolCall("echo", 1, argument_ids=(*before, token_id, *after), model_id="m")
        assert tool.call(call).code == "E_BAD_ARG"
