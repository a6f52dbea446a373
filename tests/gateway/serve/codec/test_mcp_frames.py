"""`/mcp` in frames: the published bytes, the negotiation, and what happens to answers of other kinds."""

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import RequestInvalid
from gateway.observe.metrics import Metrics
from gateway.serve.http.body import VALUES
from gateway.serve.mcp.frame_messages import EventReader, read_json, read_messages, wanted_form, write_frame
from gateway.serve.mcp.frames import FramedMcp
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
HELLO = {"jsonrpc": "2.0", "id": 1, "result": {"content": [{"type": "text", "text": "hello"}]}}
HELLO_JSON = json.dumps(HELLO).encode()
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
# Golden bytes of the reference gateway.
HELLO_MSGPACK = bytes.fromhex(
    "0000003883a76a736f6e727063a3322e30a2696401a6726573756c7481a7636f6e74656e749182a474797065a474657874a474657874a568"
    "656c6c6f"
)
HELLO_PROTOBUF = bytes.fromhex("0000003a0a38") + HELLO_MSGPACK[4:]
LIST_MSGPACK = bytes.fromhex("84a76a736f6e727063a3322e30a2696401a66d6574686f64aa746f6f6c732f6c697374a6706172616d7380")
MSGPACK, PROTOBUF = "application/x-codec-msgpack", "application/x-codec-protobuf"


def test_frames_are_the_published_bytes():
    assert write_frame("msgpack", HELLO) == HELLO_MSGPACK
    assert write_frame("protobuf", HELLO) == HELLO_PROTOBUF
    assert read_messages("msgpack", LIST_MSGPACK) == LIST
    assert read_messages("protobuf", b"\x0a\x2b" + LIST_MSGPACK) == LIST


@pytest.mark.parametrize(
    ("query", "accept", "form"),
    [
        ("stream_format=msgpack", "", "msgpack"),
        ("streamFormat=PROTOBUF", "", "protobuf"),
        ("stream_format=json", MSGPACK, None),
        ("stream_format=xml", PROTOBUF, "protobuf"),
        ("", f"application/json, {MSGPACK};q=0.5", "msgpack"),
        ("", "*/*", None),
        ("&".join(["a=b"] * 101) + "&stream_format=json", MSGPACK, "msgpack"),
    ],
)
def test_form_is_negotiated_as_published(query, accept, form):
    assert wanted_form(query, accept) == form


@pytest.mark.parametrize(
    "body", [b"", b"\x0a", b"\x0a\x05abc", b"\x12\x01\x80", b"\x0a\xff\xff\xff\xff\xff\xff", b"\x0a\x01\x01"]
)
def test_bad_envelope_is_refused(body):
    with pytest.raises(RequestInvalid):
        read_messages("protobuf", body)


def test_what_msgpack_cannot_say_does_not_break_an_answer():
    frame = write_frame("msgpack", {"big": 2**70, "half": "\ud800"})

    assert read_messages("msgpack", frame[4:]) == {"big": float(2**70), "half": "?"}


def test_integer_that_no_number_of_msgpack_comes_near_to_is_its_digits():
    said = read_json(b'{"far": -%s, "near": %s}' % (b"9" * 5000, b"9" * 300))
    frame = write_frame("msgpack", said)

    assert read_messages("msgpack", frame[4:]) == {"far": "-" + "9" * 5000, "near": float("9" * 300)}


@pytest.mark.parametrize("empty", [b"\x90", b"\x80"])
def test_body_of_very_many_lists_and_maps_is_refused_before_it_fills_the_memory(empty):
    def body(containers: int) -> bytes:
        return b"\xdd" + containers.to_bytes(4, "big") + empty * containers

    assert len(read_messages("msgpack", body(VALUES - 1))) == VALUES - 1
    with pytest.raises(RequestInvalid, match=f"more than {VALUES} lists, maps and members"):
        read_messages("msgpack", body(VALUES + 1))


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=300) | st.integers(0, 2**40)))
def test_any_message_comes_back_from_both_forms(message):
    for form in ("msgpack", "protobuf"):
        assert read_messages(form, write_frame(form, message)[4:]) == message


@given(st.integers(1, 9))
def test_events_are_read_however_they_are_cut(size):
    data = b'id: 1\ndata: {"a":\ndata: 1}\n\n: ping\n\nevent: message\ndata: {}\n\ndata: half'
    reader = EventReader()

    assert [e for at in range(0, len(data), size) for e in reader.feed(data[at : at + size])] == [b'{"a":\n1}', b"{}"]


class Endpoint:
    """An MCP endpoint that keeps what it was asked and answers what it is told to."""

    def __init__(self, kind=b"application/json", parts=(HELLO_JSON,)) -> None:
        self.scope: dict[str, object] = {}
        self.body = b""
        self._kind, self._parts = kind, parts

    async def __call__(self, scope, receive, send) -> None:
        self.scope, self.body = scope, (await receive()).get("body", b"")
        headers = [(b"content-type", self._kind), (b"mcp-session-id", b"s1")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        for n, part in enumerate(self._parts):
            await send({"type": "http.response.body", "body": part, "more_body": n < len(self._parts) - 1})


async def asked(endpoint, body=b"{}", query="", **headers):
    sent: list[dict[str, object]] = []

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message) -> None:
        sent.append(message)

    names = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": query.encode(), "headers": names}
    app = FramedMcp(endpoint, {TINY.map_id: TINY}, 10_000, Metrics().shim_detokenized)
    await app(scope, receive, send)
    start, *parts = sent
    return start["status"], dict(start["headers"]), [part["body"] for part in parts]


@pytest.mark.anyio
async def test_client_that_asks_for_nothing_gets_the_endpoint_s_own_messages():
    parts = [b'{"a', b'":1}']

    assert (await asked(Endpoint(parts=parts), accept="application/json"))[2] == parts


@pytest.mark.anyio
async def test_json_that_comes_in_pieces_is_one_frame_and_keeps_its_other_headers():
    whole = json.dumps(HELLO).encode()
    endpoint = Endpoint(parts=[whole[:9], whole[9:]])

    status, headers, (body,) = await asked(endpoint, accept=MSGPACK)

    assert (status, body) == (200, HELLO_MSGPACK)
    assert headers[b"content-type"] == MSGPACK.encode()
    assert headers[b"content-length"] == str(len(HELLO_MSGPACK)).encode()
    assert headers[b"mcp-session-id"] == b"s1"
    assert dict(endpoint.scope["headers"])[b"accept"] == b"application/json, text/event-stream"


@pytest.mark.anyio
async def test_batch_and_events_are_a_frame_a_message():
    batch = Endpoint(parts=[json.dumps([HELLO, HELLO]).encode()])
    events = Endpoint(b"text/event-stream", [b": ping\n\n", b"data: " + json.dumps(HELLO).encode() + b"\n", b"\n", b""])

    assert (await asked(batch, query="stream_format=protobuf"))[2] == [HELLO_PROTOBUF * 2]
    assert (await asked(events, query="stream_format=protobuf"))[2] == [HELLO_PROTOBUF, b""]


@pytest.mark.anyio
async def test_answer_that_is_no_json_passes_as_it_is():
    _, headers, parts = await asked(Endpoint(b"text/plain", [b"not found"]), accept=MSGPACK)

    assert (headers[b"content-type"], parts) == (b"text/plain", [b"not found"])


@pytest.mark.anyio
async def test_framed_request_reaches_the_endpoint_as_json_and_is_answered_in_json():
    endpoint = Endpoint()

    _, headers, _ = await asked(endpoint, LIST_MSGPACK, content_type=MSGPACK, accept="application/json")

    assert json.loads(endpoint.body) == LIST
    assert dict(endpoint.scope["headers"])[b"content-type"] == b"application/json"
    assert headers[b"content-type"] == b"application/json"


def call_with(ids, map_id=TINY.map_id) -> bytes:
    meta = {"type": "_codec_meta", "map_id": map_id, "ids": ids}
    return msgpack.packb(
        {**LIST, "method": "tools/call", "params": {"name": "say", "arguments": {"_codec_meta": meta}}}
    )


@pytest.mark.anyio
async def test_arguments_that_come_as_ids_reach_the_endpoint_as_json():
    endpoint = Endpoint()

    await asked(
        endpoint, call_with(TINY.encode('{"a": 1}'), TINY.map_id.removeprefix("sha256:").upper()), content_type=MSGPACK
    )

    assert json.loads(endpoint.body)["params"]["arguments"] == {"a": 1}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"\xc1", 400, -32700),
        (bytes(20_000), 413, -32600),
        (call_with(TINY.encode("no json")), 400, -32700),
        (call_with([4_000_000_000]), 400, -32700),
        (call_with([1], "sha256:" + "0" * 64), 400, -32600),
    ],
)
async def test_bad_request_is_answered_before_the_endpoint(body, status, code):
    endpoint = Endpoint()

    answered, _, parts = await asked(endpoint, body, content_type=MSGPACK)

    assert (answered, json.loads(parts[0])["error"]["code"]) == (status, code)
    assert endpoint.scope == {}


@pytest.mark.anyio
async def test_answer_with_an_integer_of_thousands_of_digits_is_framed_all_the_same():
    _, _, (body,) = await asked(Endpoint(parts=[b'{"far": ' + b"9" * 5000 + b"}"]), accept=MSGPACK)

    assert read_messages("msgpack", body[4:]) == {"far": "9" * 5000}
