"""Streams of frames from the real engine: the model's context rebuilt id by id, by us and by other people's clients."""

import gzip
import json
import time
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import anyio
import codecai
import httpx2
import msgpack
import pytest

from leaf_sdk.vocab import map_digest
from leaf_sdk.wire import MEDIA_TYPES, Decoder, Dictionary, Frame, FrameReader
from leaf_sdk.wire.codec_pb2 import CodecRequest

GREEDY = {"temperature": 0, "seed": 1, "max_tokens": 24}
FORMATS = ["msgpack", "protobuf"]
PARIS = [{"role": "user", "content": "What time is it in Paris?"}]


@pytest.fixture(scope="module")
def site(trained_site):
    return trained_site


@pytest.fixture(scope="module")
def client(site):
    with httpx2.Client(base_url=site.url, timeout=240) as client:
        yield client


def read(form, body: bytes) -> list[Frame]:
    reader = FrameReader(form)
    frames = reader.feed(body)
    reader.close()
    return frames


def context_of(frames: list[Frame]) -> list[int]:
    return [token_id for frame in frames for token_id in frame.context_ids]


def asked(client: httpx2.Client, path: str, coding: str = "identity", **body: Any) -> httpx2.Response:
    response = client.post(path, json={**GREEDY, **body}, headers={"accept-encoding": coding})
    assert response.status_code == 200, response.text
    return response


@pytest.fixture(scope="module")
def plain(client) -> dict[str, Any]:
    """A completion as JSON, with its ids."""
    return asked(client, "/v1/completions", prompt="The capital of France is", return_token_ids=True).json()


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("coding", ["identity", "gzip", "br"])
def test_completion_in_frames_holds_the_ids_of_the_one_in_json(client, plain, model_map, form, coding):
    response = asked(client, "/v1/completions", coding, prompt="The capital of France is", stream_format=form)

    frames = read(form, response.content)
    (choice,) = plain["choices"]
    assert response.headers["content-type"] == MEDIA_TYPES[form]
    assert response.headers.get("content-encoding", "identity") == coding
    assert response.headers["codec-tokenizer-map"] == model_map.map_id
    assert response.headers["vary"] == "Accept-Encoding, Codec-Client-Version"
    assert context_of(frames) == choice["token_ids"]
    assert model_map.decode(context_of(frames)) == choice["text"]
    assert frames[-1].finish_reason == choice["finish_reason"] == "length"
    assert frames[-1].extras.usage.completion_tokens == len(choice["token_ids"]) == 24
    assert frames[-1].extras.seq == len(frames) - 1


def test_prompt_of_ids_is_the_prompt_of_its_text(client, plain, model_map):
    ids = model_map.encode("The capital of France is")
    again = asked(client, "/v1/completions", prompt=ids, return_token_ids=True).json()

    assert again["choices"][0]["prompt_token_ids"] == ids == plain["choices"][0]["prompt_token_ids"]
    assert again["choices"][0]["text"] == plain["choices"][0]["text"]


def test_event_stream_carries_each_id_once_with_its_text(client, plain, model_map):
    body = asked(client, "/v1/completions", prompt="The capital of France is", stream=True, return_token_ids=True).text

    *lines, done = [line.removeprefix("data: ") for line in body.split("\n\n") if line]
    choices = [json.loads(line)["choices"][0] for line in lines]
    assert done == "[DONE]"
    assert [i for choice in choices for i in choice["token_ids"]] == plain["choices"][0]["token_ids"]
    assert "".join(choice["text"] for choice in choices) == plain["choices"][0]["text"]
    assert ["prompt_token_ids" in choice for choice in choices] == [True] + [False] * (len(choices) - 1)


@pytest.mark.parametrize(
    ("tool", "source"), [("time_leaf__get_current_time", "leaf"), ("plain_time__get_time", "shim")]
)
def test_chat_with_a_tool_gives_the_engines_whole_context(client, model_map, tool, source):
    choice = {"type": "function", "function": {"name": tool}}
    body = {
        "messages": PARIS,
        "tool_choice": choice,
        "stream_format": "protobuf",
        "return_token_ids": True,
        "show_calls": True,
    }
    response = asked(client, "/v1/chat/completions", "gzip", **{**body, "max_tokens": 200})

    frames = read("protobuf", response.content)
    context = context_of(frames)
    (call,) = [call for frame in frames for call in frame.tool_calls]
    spliced = [part for frame in frames for part in frame.extras.spliced]
    (answer,) = [part for part in spliced if part.call_id is not None]
    assert (call.name, answer.call_id, answer.source) == (tool, call.id, source)
    assert [part.source for part in spliced] == ["scaffold", source, "scaffold"]
    assert frames[-1].finish_reason == "eos_token"
    # Token in, token out: of what the client put together, the engine must find every id in its cache but the last.
    again = asked(client, "/v1/completions", prompt=context, max_tokens=1, return_token_ids=True).json()
    assert again["usage"]["prompt_tokens"] == len(context)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(context) - 1


def test_chat_in_json_tells_the_same_context(client):
    choice = {"type": "function", "function": {"name": "time_leaf__get_current_time"}}
    body = {"messages": PARIS, "tool_choice": choice, "return_token_ids": True, "max_tokens": 200}
    answer = asked(client, "/v1/chat/completions", **body).json()

    ids, written = list(answer["prompt_token_ids"]), answer["choices"][0]["token_ids"]
    at = 0
    for part in answer["codec"]["spliced"]:
        ids += written[at : part["at"]] + part["ids"]
        at = part["at"]
    ids += written[at:]
    again = asked(client, "/v1/completions", prompt=ids, max_tokens=1).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == len(ids) - 1


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
def test_codecai_reads_our_streams(client, plain, form):
    response = asked(client, "/v1/completions", prompt="The capital of France is", stream_format=form)

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(response.content), 7):
            yield response.content[at : at + 7]

    async def decoded() -> list[codecai.CodecFrame]:
        return [frame async for frame in codecai.decode_stream(pieces(), form)]

    frames = anyio.run(decoded)
    assert [i for frame in frames for i in frame.ids] == plain["choices"][0]["token_ids"]
    assert frames[-1].done


def test_client_that_is_not_ours_reads_what_it_asked_for(site, plain):
    body = {**GREEDY, "prompt": "The capital of France is", "stream_format": "msgpack"}
    headers = {"content-type": "application/json", "accept-encoding": "deflate, gzip"}
    asked = urllib.request.Request(f"{site.url}/v1/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=240) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        out = gzip.decompress(answer.read())

    assert context_of(read("msgpack", out)) == plain["choices"][0]["token_ids"]


def test_client_that_leaves_takes_its_generation_with_it(site, client):
    before = site.metric("codec_chat_requests_total", outcome="cancelled")
    body = {**GREEDY, "max_tokens": 4000, "prompt": "Count:", "stream_format": "msgpack", "stream_flush": "at_once"}
    with client.stream("POST", "/v1/completions", json=body) as response:
        next(response.iter_raw())

    # Both slots are free again: this would wait for thousands of ids otherwise.
    asked(client, "/v1/completions", prompt="The capital of France is", max_tokens=1)
    # It is counted behind the end of its generation.
    until = time.monotonic() + 60
    while site.metric("codec_chat_requests_total", outcome="cancelled") == before:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "x", "n": 2, "stream_format": "msgpack"}, "n"),
        ({"prompt": "x", "stream_format": "protobuf-delta"}, "stream_format"),
        ({"prompt": "x", "stream_flush": "sometimes"}, "stream_flush"),
        ({"prompt": [], "stream_format": "msgpack"}, "prompt"),
        ({"prompt": [1, 4_000_000_000], "stream_format": "msgpack"}, "prompt"),
        ({"prompt": [1, -1]}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": "x", "tool_watcher": {"start_id": 1}}, "tool_watcher"),
    ],
)
def test_request_that_cannot_be_served_is_refused_by_its_field(client, body, param):
    answer = client.post("/v1/completions", json=body)

    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("form", ["msgpack", "protobuf"])
def test_codec_request_is_answered_as_the_json_one(client, plain, form):
    ids = plain["choices"][0]["prompt_token_ids"]
    greedy = CodecRequest(prompt_ids=ids, max_tokens=24, temperature=0.0).SerializeToString()
    packed = msgpack.packb({"prompt_ids": ids, "max_tokens": 24, "temperature": 0.0})
    body = gzip.compress(packed if form == "msgpack" else greedy)
    headers = {"content-type": MEDIA_TYPES[form], "content-encoding": "gzip", "accept-encoding": "identity"}

    answer = client.post("/v1/completions/codec", content=body, headers=headers)

    assert answer.headers["content-type"] == MEDIA_TYPES[form]
    assert context_of(read(form, answer.content)) == plain["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"content-type": "application/json"}, b"{}", 415),
        ({"content-type": "application/x-msgpack", "content-encoding": "compress"}, b"{}", 415),
        ({"content-type": "application/x-msgpack", "content-encoding": "gzip"}, gzip.compress(bytes(50_000_000)), 413),
        ({"content-type": "application/x-msgpack"}, bytes(33 << 20), 413),
        ({"content-type": "application/x-msgpack", "content-encoding": "gzip"}, b"no gzip", 400),
        ({"content-type": "application/x-protobuf"}, b"\xff\xff", 400),
    ],
)
def test_bad_codec_request_has_its_status(client, headers, body, status):
    answer = client.post("/v1/completions/codec", content=body, headers=headers)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_map_is_found_by_index_name_and_hash_and_kept_for_ever(client, model_map, model_map_bytes):
    index = client.get("/.well-known/codec/index.json")
    (pointer,) = index.json()["maps"]
    assert index.json()["codec_version"] == client.get("/codec/version").json()["version"]
    by_name = client.get(f"/.well-known/codec/maps/{pointer['id']}.json")
    bytes_of_it = client.get(pointer["url"])

    assert (pointer["hash"], by_name.json()) == (model_map.map_id, pointer)
    assert map_digest(bytes_of_it.content) == model_map.map_id
    assert bytes_of_it.content == model_map_bytes
    assert "immutable" in bytes_of_it.headers["cache-control"]
    assert "max-age=300" in index.headers["cache-control"]
    assert {answer.headers["access-control-allow-origin"] for answer in (index, by_name, bytes_of_it)} == {"*"}
    again = client.get(pointer["url"], headers={"if-none-match": bytes_of_it.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_codecai_finds_and_checks_our_map(site, client, model_map):
    async def load() -> codecai.TokenizerMap:
        pointer = client.get("/.well-known/codec/index.json").json()["maps"][0]
        return await codecai.load_map(url=pointer["url"], hash=pointer["hash"])

    assert anyio.run(load).id == model_map.id


@pytest.mark.parametrize(
    "path", ["maps/no/such.json", f"maps/sha256/{'0' * 64}.json", "dicts/00.zstd", "version-policy.json"]
)
def test_what_is_not_there_is_not_found(client, path):
    assert client.get(f"/.well-known/codec/{path}").status_code == 404


def test_schema_and_version_are_served(client):
    schema = client.get("/codec/schema")
    version = client.get("/codec/version").json()

    assert schema.headers["content-type"].startswith("text/plain")
    assert "message CodecFrame" in schema.text
    assert version["version"] == "0.5"
    assert {"json", "msgpack", "protobuf"} <= set(version["stream_formats"])


def test_operator_may_demand_a_version_and_offer_dictionaries(start_gateway, tmp_path):
    dictionary = tmp_path / "words.zstd"
    dictionary.write_bytes(b"a dictionary of some bytes, which need no format")
    own = f'[wire]\nminimum_version = "0.4"\ndictionary_msgpack = "{dictionary}"\n'
    (tmp_path / "codec-gateway.toml").write_text(own)
    gateway = start_gateway({}, "--engine", "embedded")
    body = {**GREEDY, "prompt": "The capital of France is", "stream_format": "msgpack"}
    new = {"codec-client-version": "0.5", "accept-encoding": "zstd"}
    with httpx2.Client(base_url=gateway.url, timeout=240) as client:
        refused = client.post("/v1/completions", json=body)
        plain = client.post("/v1/completions", json={**body, "stream_format": "json"})
        with client.stream("POST", "/v1/completions", json=body, headers=new) as served:
            data = b"".join(served.iter_raw())
        policy = client.get("/.well-known/codec/version-policy.json").json()
        kept = client.get(f"/.well-known/codec/dicts/{served.headers['codec-zstd-dict'].removeprefix('sha256:')}.zstd")

    error = codecai.parse_version_required(refused)
    assert (refused.status_code, error.body.minimum_version, error.body.client_version) == (426, "0.4", "0.2")
    assert plain.status_code == 200
    assert policy == {"minimum_version": "0.4", "required_features": []}
    assert kept.content == dictionary.read_bytes()
    decoder = Decoder("zstd", dictionary=Dictionary(kept.content))
    assert read("msgpack", decoder.feed(data))[-1].done
