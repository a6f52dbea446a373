"""Requests about the model itself: what it is called, texts as ids and back, and embeddings."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from gateway.errors import EngineRefused, EngineUnavailable
from tests.gateway.serve.generation.three_apis import EMBEDDINGS, END, TINY, Apis, running

pytestmark = pytest.mark.anyio
MODEL = {"map_id": TINY.map_id, "context": 100, "tool_format": "hermes"}


@pytest.fixture
async def apis() -> AsyncGenerator[Apis]:
    async with running(context=100) as found:
        yield found


async def test_model_is_listed_and_described_by_its_name(apis: Apis) -> None:
    listed = (await apis.http.get("/v1/models")).json()
    one = await apis.http.get("/v1/models/scripted")
    other = await apis.http.get("/v1/models/other")

    (model,) = listed["data"]
    assert listed["object"] == "list"
    assert (model["id"], model["object"], model["owned_by"], model["codec"]) == (
        "scripted",
        "model",
        "llama.cpp",
        MODEL,
    )
    assert model["created"] > 1_600_000_000
    assert one.json() == model
    assert (other.status_code, other.json()["error"]["code"]) == (404, "model_not_found")


async def test_text_is_ordinary_unless_special_tokens_are_asked_for(apis: Apis) -> None:
    plain = await apis.ask("/tokenize", {"prompt": "a<|im_end|>"})
    special = await apis.ask("/tokenize", {"prompt": "a<|im_end|>", "add_special_tokens": True})
    shown = await apis.ask("/tokenize", {"prompt": "a b", "return_token_strs": True})

    assert plain == {
        "count": len(plain["tokens"]),
        "max_model_len": 100,
        "tokens": TINY.encode("a<|im_end|>"),
        "token_strs": None,
    }
    assert special["tokens"] == TINY.encode("a<|im_end|>", specials=True)
    assert END in special["tokens"]
    assert END not in plain["tokens"]
    assert "".join(shown["token_strs"]) == "a b"
    assert len(shown["token_strs"]) == shown["count"]


async def test_messages_are_tokenized_as_the_engine_would_get_them(apis: Apis) -> None:
    told = await apis.ask("/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    back = await apis.ask("/detokenize", {"tokens": told["tokens"]})

    assert back["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {"tokens": []}, "tokens"),
        ("/detokenize", {"tokens": [1, 10**6]}, "tokens"),
        (EMBEDDINGS, {"input": [1, 10**6]}, "input"),
        (EMBEDDINGS, {"input": [[1], []]}, "input"),
    ],
)
async def test_request_that_can_not_be_meant_is_refused_by_its_field(
    apis: Apis, path: str, body: dict[str, Any], param: str
) -> None:
    answer = await apis.post(path, body, "x")

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "a" * 40_000}),
        (EMBEDDINGS, {"input": "a" * 40_000}),
        (EMBEDDINGS, {"input": ["a", "a" * 40_000]}),
    ],
)
async def test_text_that_can_not_fit_is_refused_before_it_is_tokenized(
    apis: Apis, path: str, body: dict[str, Any]
) -> None:
    answer = await apis.post(path, body, "x")

    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", EMBEDDINGS])
async def test_only_json_is_read(apis: Apis, path: str) -> None:
    answer = await apis.http.post(path, content=b"{}", headers={"content-type": "text/plain"})

    assert answer.status_code == 415


@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        ("a b", [TINY.encode("a b")]),
        (["a", "b"], [TINY.encode("a"), TINY.encode("b")]),
        (["a"], [TINY.encode("a")]),
        ([5], [[5]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ("<|im_end|>", [TINY.encode("<|im_end|>")]),
    ],
)
async def test_engine_gets_ids_for_every_input(
    apis: Apis, monkeypatch: pytest.MonkeyPatch, given: Any, inputs: list[list[int]]
) -> None:
    asked: list[Any] = []

    async def embed(found: Sequence[Sequence[int]], *how: Any) -> dict[str, Any]:
        asked.append(([list(each) for each in found], how))
        return {"object": "list", "data": [], "model": "of the engine"}

    monkeypatch.setattr(apis.engine, "embed", embed)
    answer = await apis.ask(EMBEDDINGS, {"input": given, "encoding_format": "base64", "dimensions": 5})

    assert asked == [(inputs, ("base64", 5))]
    assert answer == {"object": "list", "data": [], "model": "scripted"}


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (EngineRefused("no pooling", 501), 501, "not_supported"),
        (EngineRefused("odd", 400), None, None),
        (EngineUnavailable("away"), 503, None),
    ],
)
async def test_engine_that_does_not_embed_is_told_from_one_that_refuses(
    apis: Apis, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int | None, code: str | None
) -> None:
    async def embed(*_: Any) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(apis.engine, "embed", embed)
    answer = await apis.post(EMBEDDINGS, {"input": "a"})

    said = answer.json()["error"]
    assert ("start it with an embedding model" in said["message"]) is (status == 501)
    assert status in (None, answer.status_code)
    assert answer.status_code != 200
    assert code in (None, said["code"])
