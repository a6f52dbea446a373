"""Completions of a plain prompt: the request in each form, and the answer whole and in chunks."""

from collections.abc import AsyncGenerator
from typing import Any

import msgpack
import pytest

from gateway.agent.events import Finished, IdsGenerated
from gateway.errors import RequestInvalid
from gateway.serve.http.request_parts import BodyUnread
from gateway.serve.openai.completions import CompletionReply, read_codec_request
from gateway.toolcalls.stream.output_events import Content
from leaf_sdk.wire.wide import WideRequest
from tests.gateway.serve.generation.three_apis import COMPLETIONS, TINY, Apis, running

MSGPACK, PROTOBUF = "application/x-msgpack", "application/x-protobuf"
DONE = Finished(reason="stop", prompt_ids=2, cached_ids=1, completion_ids=3)


@pytest.fixture
async def apis() -> AsyncGenerator[Apis]:
    async with running(context=100) as found:
        yield found


@pytest.mark.anyio
async def test_answer_has_the_text_and_the_ids_that_were_asked_for(apis: Apis) -> None:
    plain = await apis.ask(COMPLETIONS, {"prompt": "one two"}, "three")
    ids = await apis.ask(COMPLETIONS, {"prompt": [1, 2, 3], "return_token_ids": True}, "three")

    (choice,) = plain["choices"]
    assert plain["object"] == "text_completion"
    assert (choice["index"], choice["text"], choice["finish_reason"], choice["logprobs"]) == (0, "three", "stop", None)
    assert not {"token_ids", "prompt_token_ids"} & choice.keys()
    assert plain["model"] == "scripted"
    assert plain["created"] > 1_600_000_000
    assert ids["choices"][0]["prompt_token_ids"] == [1, 2, 3]
    assert TINY.decode(ids["choices"][0]["token_ids"]).startswith("three")
    assert ids["usage"]["prompt_tokens"] == 3


@pytest.mark.anyio
async def test_chunks_joined_are_the_answer_and_the_prompt_is_told_once(apis: Apis) -> None:
    chunks = await apis.events(COMPLETIONS, {"prompt": [1, 2], "return_token_ids": True}, "three four")
    asked = await apis.events(COMPLETIONS, {"prompt": "x", "stream_options": {"include_usage": True}}, "three")

    choices = [chunk["choices"][0] for chunk in chunks]
    assert "".join(each["text"] for each in choices) == "three four"
    assert [("prompt_token_ids" in each) for each in choices] == [True, *[False] * (len(choices) - 1)]
    assert choices[0]["prompt_token_ids"] == [1, 2]
    assert [each["finish_reason"] for each in choices] == [*[None] * (len(choices) - 1), "stop"]
    assert "usage" in chunks[-1]
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["prompt_tokens"] > 0
    assert "usage" not in asked[-2]


@pytest.mark.anyio
async def test_completion_is_cut_at_its_bound(apis: Apis) -> None:
    cut = await apis.ask(COMPLETIONS, {"prompt": "x", "max_tokens": 2}, "one two three four five")

    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [(COMPLETIONS, "text/plain", 415), (f"{COMPLETIONS}/codec", "application/json", 415), (COMPLETIONS, None, 400)],
)
async def test_body_that_can_not_be_read_is_refused(apis: Apis, path: str, kind: str | None, status: int) -> None:
    answer = await apis.http.post(path, content=b"{}", headers={"content-type": kind or "application/json"})

    assert answer.status_code == status


@pytest.mark.anyio
async def test_request_in_msgpack_gets_frames(apis: Apis) -> None:
    apis.engine.texts = ["three"]
    answer = await apis.http.post(
        f"{COMPLETIONS}/codec", content=msgpack.packb({"prompt_ids": [1, 2]}), headers={"content-type": MSGPACK}
    )

    assert (answer.status_code, answer.headers["content-type"]) == (200, MSGPACK)
    assert len(answer.content) > 0


@pytest.mark.parametrize("kind", [MSGPACK, "application/msgpack; x=1", "APPLICATION/MSGPACK"])
def test_map_of_msgpack_is_a_request(kind: str) -> None:
    fields = {"prompt_ids": [1, 2], "max_tokens": 5, b"temperature": 0.5, "stop": ["x"]}
    read = read_codec_request(kind, msgpack.packb({name: fields[name] for name in fields if name != b"temperature"}))

    assert (read.prompt, read.max_tokens, read.stream, read.stream_format) == ([1, 2], 5, True, "msgpack")
    assert read.stops == ("x",)


@pytest.mark.parametrize("kind", [PROTOBUF, "application/protobuf"])
def test_message_of_protobuf_is_a_request_and_what_it_leaves_out_is_not_given(kind: str) -> None:
    bare = read_codec_request(kind, WideRequest(prompt_ids=[1]).SerializeToString())
    full = WideRequest(prompt_ids=[1, 2], max_tokens=5, temperature=0.0, stop=["x"], stream_format="msgpack")
    read = read_codec_request(kind, full.SerializeToString())

    assert (bare.prompt, bare.max_tokens, bare.temperature, bare.stream_format) == ([1], None, None, "protobuf")
    assert (read.prompt, read.max_tokens, read.temperature, read.stops) == ([1, 2], 5, 0.0, ("x",))
    assert (read.stream_format, read.stream) == ("msgpack", True)


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        (MSGPACK, b"\xc1", "the body is not valid msgpack: "),
        (MSGPACK, b"", "the body is not valid msgpack: "),
        (MSGPACK, msgpack.packb([1]), "the body must be a msgpack map"),
        (MSGPACK, msgpack.packb({"prompt": "x"}), "prompt_ids: expected the prompt as ids"),
        (MSGPACK, msgpack.packb({"prompt_ids": [1], "max_tokens": "x"}), "max_tokens"),
        (PROTOBUF, b"\xff\xff", "the body is not a valid CodecRequest message"),
    ],
)
def test_body_that_is_no_request_is_refused_with_the_reason(kind: str, body: bytes, words: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        read_codec_request(kind, body)

    assert words in refused.value.message
    assert not refused.value.message.endswith(": ")


def test_other_kinds_of_bodies_are_not_read() -> None:
    with pytest.raises(BodyUnread, match="application/x-msgpack"):
        read_codec_request("application/json", b"{}")


def fed(reply: CompletionReply, *events: Any) -> list[dict[str, Any]]:
    return [chunk for event in events for chunk in reply.feed(event)]


def test_ids_stand_with_the_text_that_follows_them() -> None:
    reply = CompletionReply("m", 7, usage_chunk=False, prompt_ids=[8, 9])
    chunks = fed(reply, IdsGenerated((1,)), IdsGenerated((2,)), Content("ab"), IdsGenerated((3,)), DONE)

    assert reply.begin() == []
    assert [chunk["choices"][0]["token_ids"] for chunk in chunks] == [[1, 2], [3]]
    assert [chunk["choices"][0].get("prompt_token_ids") for chunk in chunks] == [[8, 9], None]
    assert [chunk["choices"][0]["index"] for chunk in chunks] == [0, 0]
    assert chunks[0]["id"].startswith("cmpl-")
    assert len(chunks[0]["id"]) == len("cmpl-") + 24
    assert reply.completion()["choices"][0]["token_ids"] == [1, 2, 3]


def test_completion_before_the_end_is_a_fault_of_the_program() -> None:
    with pytest.raises(RuntimeError):
        CompletionReply("m", 7, usage_chunk=False).completion()
