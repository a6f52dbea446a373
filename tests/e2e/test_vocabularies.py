"""One result of a tool reaches models of two vocabularies, and clients that read two, each in its own ids.

The second model is the packaged one with two words of its vocabulary exchanged: another map, and other ids for texts
that hold one of them.
"""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import make_meta_tokenizer, open_map, wrap_tool_call
from leaf_sdk.leaf import MapPin
from leaf_sdk.vocab import TokenMap
from tests.e2e.conftest import RunningGateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

TEXT = "There was heavy rain in the morning, and the sun came out at noon."
WORDS = ("Ġrain", "Ġnoon")
VERSION = "2026-07-28"
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
ENGINES = """
[engines.one]
kind = "embedded"
context = 2048
slots = 1
aliases = ["first"]

[engines.two]
kind = "embedded"
model = "{second}"
context = 2048
slots = 1
aliases = ["second"]
"""


def exchanged(model: bytes, one: str, other: str) -> bytes:
    """A GGUF file with two tokens of one length, each in the other's place; its merges stay as they are."""
    words = [struct.pack("<Q", len(word.encode())) + word.encode() for word in (one, other)]
    places = [model.index(word) for word in words]
    made = bytearray(model)
    for place, word in zip(places, reversed(words), strict=True):
        made[place : place + len(word)] = word
    return bytes(made)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    second = tmp_path_factory.mktemp("models") / "second.gguf"
    second.write_bytes(exchanged(packaged_model().read_bytes(), *WORDS))
    return {"first": packaged_model(), "second": second}


@pytest.fixture(scope="module")
def maps(models: dict[str, Path]) -> dict[str, TokenMap]:
    return {name: open_map(path) for name, path in models.items()}


@pytest.fixture(scope="module")
def gateway(
    models: dict[str, Path],
    maps: dict[str, TokenMap],
    tmp_path_factory: pytest.TempPathFactory,
    run_gateway: Callable[..., Any],
    says: Callable[..., dict[str, Any]],
) -> Iterator[RunningGateway]:
    folder = tmp_path_factory.mktemp("vocabularies")
    (folder / "codec-gateway.toml").write_text(ENGINES.format(second=models["second"]))
    pins = [MapPin(maps[name].map_id, path) for name, path in models.items()]
    (leaf,) = wrap_tool_call({"content": [{"type": "text", "text": TEXT}]}, make_meta_tokenizer(maps=pins))["content"]
    with run_gateway(folder, {"plain": says({"type": "text", "text": TEXT}), "leaf": says(leaf)}) as started:
        yield started


@pytest.fixture(scope="module")
def chat(gateway: RunningGateway) -> Iterator[openai.OpenAI]:
    with gateway.client() as client:
        yield client


@pytest.mark.parametrize(("server", "source"), [("plain", "shim"), ("leaf", "leaf")])
def test_one_result_is_spliced_in_the_ids_of_each_model(
    chat: openai.OpenAI, maps: dict[str, TokenMap], server: str, source: str
) -> None:
    spliced: dict[str, list[int]] = {}
    for model in ("first", "second"):
        answer: Any = chat.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "What was the weather like?"}],
            tool_choice={"type": "function", "function": {"name": f"{server}__say"}},
            max_tokens=60,
            temperature=0,
            extra_body={"return_token_ids": True},
        )
        (part,) = [each for each in answer.codec["spliced"] if each["source"] == source]
        spliced[model] = part["ids"]
        turn = answer.codec["turns"][1]
        assert turn["held"] == turn["cache_n"]

    assert {model: maps[model].decode(ids) for model, ids in spliced.items()} == dict.fromkeys(maps, TEXT)
    assert spliced["first"] != spliced["second"]


def test_one_result_reaches_clients_of_two_maps_in_the_ids_of_each(
    gateway: RunningGateway, maps: dict[str, TokenMap]
) -> None:
    for server in ("plain", "leaf"):
        params = {"name": f"{server}__say", "arguments": {}, "_meta": ENVELOPE}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        told: dict[str, list[int]] = {}
        for model, token_map in maps.items():
            headers = {
                "X-Codec-Map": token_map.map_id,
                "MCP-Protocol-Version": VERSION,
                "Mcp-Method": "tools/call",
                "Mcp-Name": f"{server}__say",
                "Accept": "application/json, text/event-stream",
            }
            answer = httpx2.post(f"{gateway.url}/mcp", json=body, headers=headers).json()
            (block,) = answer["result"]["content"]
            payload = block["_meta"]["ai.codec/leaf-tokenization"]
            told[model] = payload["ids"] if payload["map_id"] == token_map.map_id else []

        assert {model: maps[model].decode(ids) for model, ids in told.items()} == dict.fromkeys(maps, TEXT)
