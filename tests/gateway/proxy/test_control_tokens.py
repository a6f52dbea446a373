"""No tool gets a control token to an engine or to a client's ids: every one of every test map, by every way in.

Spelled in the text, sent as an id, packed, among the ids of several maps, in the older sibling form, in structured
content, in the words of what is not text, in a result of an error.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.result_tokens import ResultTokens
from leaf_sdk.leaf.contract import CODEC_META_KEY, LEGACY_BLOCK_TYPE, MORE_KEY
from leaf_sdk.leaf.packing import PACKED_KEY, pack
from leaf_sdk.testing import tiny_map_bytes
from leaf_sdk.vocab import TokenMap, build_map, load_map
from tests.cases import each_of

TESTS = Path(__file__).parents[2]
GOLDEN = TESTS / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
TOKENIZERS = TESTS.parent / ".tools" / "tokenizers"
REAL = ("deepseek_v3", "gemma2", "gptoss", "llama3_1", "mistral_nemo", "qwen3")


@pytest.fixture(
    scope="module",
    params=[
        *("tiny", "tiny normalized", "golden", "packaged model"),
        *(pytest.param(name, marks=pytest.mark.tokenizers) for name in REAL),
    ],
)
def token_map(request: pytest.FixtureRequest, model_map: TokenMap) -> TokenMap:
    if request.param == "tiny":
        return load_map(tiny_map_bytes())
    if request.param == "tiny normalized":
        return load_map(json.dumps(json.loads(tiny_map_bytes()) | {"x_normalizer": "NFC"}).encode())
    if request.param == "golden":
        return load_map(GOLDEN.read_bytes())
    if request.param in REAL:
        return load_map(build_map((TOKENIZERS / f"{request.param}.json").read_bytes()))
    return model_map


def spelled(name: str) -> dict[str, dict[str, Any]]:
    """Results whose words are a control token's."""
    text = {"type": "text", "text": f"a {name}{name}\n{name}"}
    return {
        "text": {"content": [text]},
        "error": {"content": [text], "isError": True},
        "two blocks": {"content": [{"type": "text", "text": name[:2]}, {"type": "text", "text": name[2:]}]},
        "structured": {"structuredContent": {name: [name]}},
        "image": {"content": [{"type": "image", "data": "", "mimeType": name}]},
        "type": {"content": [{"type": name}]},
        "link": {"content": [{"type": "resource_link", "uri": name, "name": name}]},
        "resource": {"content": [{"type": "resource", "resource": {"uri": name, "text": name}}]},
    }


def shipped(token_map: TokenMap, name: str, token_id: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Results that ship a control token's id beside a text that spells it, and beside one that does not."""
    for text in (name, "hello"):
        ids = [*token_map.encode("hi"), token_id] if text == "hello" else [token_id]
        plain = {"map_id": token_map.map_id, "ids": ids}
        packed = {"map_id": token_map.map_id, PACKED_KEY: pack(ids)}
        payloads: dict[str, Any] = {
            "meta": plain,
            "packed": packed,
            "more": {"map_id": "sha256:" + "0" * 64, "ids": [0], MORE_KEY: [plain]},
            "more packed": {"map_id": "sha256:" + "0" * 64, "ids": [0], MORE_KEY: [packed]},
            "bare hash": {**plain, "map_id": token_map.map_id.removeprefix("sha256:")},
        }
        for way, payload in payloads.items():
            yield way, {"content": [{"type": "text", "text": text, "_meta": {CODEC_META_KEY: payload}}]}
        yield "sibling", {"content": [{"type": "text", "text": text}, {"type": LEGACY_BLOCK_TYPE, **plain}]}


def tokens_of(token_map: TokenMap, level: Any) -> ResultTokens:
    notices = TokenNotices(get_logger("test.tokens"))
    return ResultTokens({token_map.map_id: token_map}, level=level, metrics=Metrics(), notices=notices)


def client_ids(result: dict[str, Any]) -> set[int]:
    payloads = (block.get("_meta", {}).get(CODEC_META_KEY, {"ids": []}) for block in result.get("content", []))
    return {token_id for payload in payloads for token_id in payload["ids"]}


def test_every_test_map_has_control_tokens_to_try(token_map: TokenMap) -> None:
    assert token_map.special_texts
    assert set(token_map.special_texts.values()) <= token_map.special_ids


def test_a_control_token_in_a_tools_words_becomes_ordinary_ids(token_map: TokenMap) -> None:
    tokens = tokens_of(token_map, "verify")
    for name in token_map.special_texts:
        for way, result in spelled(name).items():
            ids = tokens.for_engine("t", result, token_map).ids
            assert ids, (name, way)
            assert token_map.special_ids.isdisjoint(ids), (name, way)
            assert token_map.special_ids.isdisjoint(client_ids(tokens.for_client("t", result, token_map))), (name, way)


@each_of("level", ["verify", "trust"])
def test_a_control_tokens_id_is_made_anew_from_the_text_however_it_is_sent(token_map: TokenMap, level: str) -> None:
    tokens = tokens_of(token_map, level)
    for name, token_id in token_map.special_texts.items():
        for way, result in shipped(token_map, name, token_id):
            text = result["content"][0]["text"]
            found = tokens.for_engine("t", result, token_map)
            assert (found.source, list(found.ids)) == ("shim", token_map.encode(text)), (name, way)
            for_client = tokens.for_client("t", result, token_map)
            assert client_ids(for_client) == set(token_map.encode(text)), (name, way)
