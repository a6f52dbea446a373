"""A bolt-on tool answers ids with ids, in process, over HTTP, over a unix socket and as an MCP server."""

import http.client
import json
import logging
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import msgpack
import pytest
import uvicorn
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from leaf_sdk import (
    CodecTool,
    CodecToolCall,
    CodecToolResult,
    Fragments,
    Manifest,
    ModelBinding,
    ToolRefusal,
    announce_packing,
    fill,
    precache,
    take_ids,
)
from leaf_sdk.errors import BoltOnError, FragmentUnknown, ManifestInvalid
from leaf_sdk.leaf.bolt_on import CALL_PATH
from leaf_sdk.leaf.bolt_on.messages import MANIFEST_PATH
from leaf_sdk.serve.mcp_server import build_mcp_server
from leaf_sdk.serve.run import bound_unix_socket, http_app, serve_http
from leaf_sdk.testing import assert_leaf_result, tiny_map, tiny_map_bytes
from tests.cases import each_of

TINY = tiny_map()
HEX = TINY.map_id.removeprefix("sha256:")
TEXTS = {"greeting": "hello {name}, the world", "none": "nobody there"}
MSGPACK = {"content-type": "application/x-msgpack"}


def _greet(arguments):
    match arguments["name"]:
        case "":
            return fill("none")
        case "refuse":
            raise ToolRefusal("not that one", "E_STALE")
        case "break":
            raise RuntimeError("the password is 1234")
        case "odd":
            return 7
        case "unfilled":
            return fill("greeting")
        case "plain":
            return "hello plain <|im_end|>"
        case "surrogate":
            return "\ud800"
        case name:
            return fill("greeting", name=name)


async def _greet_later(arguments):
    await anyio.lowlevel.checkpoint()
    return _greet(arguments)


def _tool(function=_greet, *, models=("org/tiny",), listed=("org/tiny", "org/other")) -> CodecTool:
    manifest = Manifest(
        name="greet",
        version="1",
        description="Greet somebody",
        arguments_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        models=tuple(ModelBinding(model, HEX if model == "org/tiny" else "0" * 64) for model in listed),
    )
    return CodecTool(manifest, function, {model: Fragments(TINY, precache(TEXTS, TINY)) for model in models})


def _call(arguments, **changed) -> CodecToolCall:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    fields = {"argument_ids": tuple(TINY.encode(written)), "model_id": "org/tiny"} | changed
    return CodecToolCall("greet", "c1", **fields)


def test_ids_in_ids_out_and_the_ids_are_those_of_the_whole_text():
    result = _tool().call(_call({"name": "wor"}))
    assert result == CodecToolResult.tokens("c1", tuple(TINY.encode("hello wor, the world")))


@pytest.mark.parametrize("key", ["arguments", "parameters"])
def test_arguments_may_stand_within_the_call_that_the_model_wrote(key):
    result = _tool().call(_call({"name": "greet", key: {"name": "x"}}))
    assert result.response_ids == tuple(TINY.encode("hello x, the world"))


def test_an_argument_called_arguments_is_not_mistaken_for_a_call():
    assert _tool().arguments(_call({"name": "x", "arguments": {"a": 1}})) == {"name": "x", "arguments": {"a": 1}}


def test_the_engines_dialect_is_found_by_its_hash_in_any_spelling():
    for digest in (HEX, HEX.upper(), TINY.map_id):
        call = CodecToolCall("greet", 7, arguments_json='{"name":"x"}', tokenizer_hash=digest, dialect="engine")
        assert _tool().call(call).response_ids == tuple(TINY.encode("hello x, the world"))


def test_a_text_that_is_no_fragment_is_answered_in_ids_without_control_tokens():
    result = _tool().call(_call({"name": "plain"}))
    assert result.response_ids == tuple(TINY.encode("hello plain <|im_end|>"))
    assert not TINY.special_ids & set(result.response_ids)


def test_a_call_in_text_for_a_model_without_ids_is_answered_in_text():
    call = CodecToolCall("greet", "c", arguments_json='{"name":"x"}', model_id="org/other")
    assert _tool().call(call) == CodecToolResult.said("c", "hello x, the world")


@each_of(
    ("call", "code", "says"),
    [
        (_call({"name": "x"}, model_id="org/other"), "E_STALE", "no ids for 'org/other'"),
        (_call({}), "E_BAD_ARG", "'name' is missing"),
        (_call("hello"), "E_BAD_ARG", "not JSON"),
        (_call("[1]"), "E_BAD_ARG", "expected an object"),
        (_call("", argument_ids=(300,)), "E_BAD_ARG", "special token"),
        (_call("", argument_ids=(299,)), "E_BAD_ARG", "does not have"),
        (_call({"name": "refuse"}), "E_STALE", "not that one"),
        (_call({"name": "unfilled"}), "E_INTERNAL", "missing slot 'name'"),
        (_call({"name": "surrogate"}), "E_INTERNAL", "surrogate"),
        (CodecToolCall("other", "c1"), "E_UNKNOWN_TOOL", "'greet'"),
        (
            CodecToolCall("greet", "c1", arguments_json='{"name":"x"}', tokenizer_hash="0" * 64, dialect="engine"),
            "E_STALE",
            "no ids",
        ),
    ],
)
def test_what_can_not_be_done_is_an_error_answer(call, code, says):
    result = _tool().call(call)
    assert (result.kind, result.code, result.call_id) == ("error", code, "c1")
    assert says in result.message


def test_a_lone_surrogate_can_not_leave_as_text_either():
    call = CodecToolCall("greet", "c1", arguments_json='{"name":"surrogate"}', model_id="org/other")
    assert _tool().call(call).code == "E_INTERNAL"


def test_a_model_that_the_manifest_does_not_list_is_refused():
    with pytest.raises(ManifestInvalid, match="org/tiny"):
        _tool(listed=("org/other",))


def test_without_any_fragments_a_fragment_has_no_text():
    with pytest.raises(FragmentUnknown, match="precache"):
        _tool(models=()).text(fill("none"))


@contextmanager
def _served(app, listener: socket.socket) -> Iterator[None]:
    class Quiet(uvicorn.Server):
        def install_signal_handlers(self) -> None:
            """Leave the test runner's signals alone."""

        async def startup(self, sockets=None):
            await super().startup(sockets=sockets)
            up.set()

    up = threading.Event()
    server = Quiet(uvicorn.Config(app, log_level="error", lifespan="auto"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        assert up.wait(30)
        yield
    finally:
        server.should_exit = True
        thread.join(30)


@pytest.fixture(params=[_greet, _greet_later], ids=["plain", "async"])
def url(request) -> Iterator[str]:
    listener = socket.create_server(("127.0.0.1", 0))
    with _served(http_app([_tool(request.param)]), listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def _post(url: str, call: CodecToolCall) -> CodecToolResult:
    answer = httpx2.post(url + CALL_PATH, content=call.to_bytes(), headers=MSGPACK)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-msgpack")
    return CodecToolResult.from_bytes(answer.content)


def test_calls_over_http_are_answered_as_in_process(url):
    for name in ("x", "", "plain", "refuse", "unfilled"):
        assert _post(url, _call({"name": name})) == _tool().call(_call({"name": name}))
    stranger = CodecToolCall("nope", 1, argument_ids=(), model_id="org/tiny")
    assert _post(url, stranger).code == "E_UNKNOWN_TOOL"


def test_a_tools_mistake_is_one_error_answer_that_tells_nothing_of_it(url, caplog):
    with caplog.at_level(logging.ERROR):
        for name in ("break", "odd"):
            result = _post(url, _call({"name": name}))
            assert (result.kind, result.code) == ("error", "E_INTERNAL")
            assert "1234" not in result.message
    assert "the password is 1234" in caplog.text
    assert "returned a int" in caplog.text


def test_the_engines_dialect_is_answered_in_kind(url):
    call = CodecToolCall("greet", "c", arguments_json='{"name":"x"}', tokenizer_hash=HEX, dialect="engine")
    answer = httpx2.post(url + CALL_PATH, content=call.to_bytes(), headers=MSGPACK)
    ids = TINY.encode("hello x, the world")
    assert msgpack.unpackb(answer.content) == {
        "response_ids": ids,
        "call_id": "c",
        "is_error": False,
        "error_message": None,
    }


def test_what_is_no_call_has_a_status_that_says_so(url):
    assert httpx2.post(url + CALL_PATH, content=b"\xc1", headers=MSGPACK).status_code == 400
    assert httpx2.post(url + CALL_PATH, content=b"{}").status_code == 415
    assert httpx2.post(url + CALL_PATH, content=bytes(4 * 2**20 + 1), headers=MSGPACK).status_code == 413
    assert httpx2.get(url + "/nothing").status_code == 404
    assert httpx2.get(url + MANIFEST_PATH + "nope").status_code == 404


def test_the_manifest_can_be_read_over_http(url):
    assert httpx2.get(url + MANIFEST_PATH + "greet").json() == _tool().manifest.to_fields()


def test_the_tools_are_listed_over_http(url):
    assert httpx2.get(url + MANIFEST_PATH).json() == {"tools": ["greet"]}


@pytest.mark.anyio
async def test_mcp_clients_get_text_and_ids_over_http(url):
    with anyio.fail_after(30):
        async with Client(streamable_http_client(url + "/mcp")) as client:
            result = await client.call_tool("greet", {"name": "x"})
    assert result.content[0].text == "hello x, the world"
    assert_leaf_result(result, TINY)


def test_with_a_token_nothing_is_answered_without_it():
    listener = socket.create_server(("127.0.0.1", 0))
    with _served(http_app([_tool()], token="sesame"), listener):
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for path in (CALL_PATH, "/mcp", MANIFEST_PATH + "greet"):
            assert httpx2.post(url + path, content=b"").status_code == 401
            assert httpx2.post(url + path, content=b"", headers={"authorization": "Bearer no"}).status_code == 401
        good = {**MSGPACK, "authorization": "Bearer sesame"}
        answer = httpx2.post(url + CALL_PATH, content=_call({"name": "x"}).to_bytes(), headers=good)
        assert CodecToolResult.from_bytes(answer.content).kind == "tokens"


def test_other_machines_are_not_served_without_a_token():
    with pytest.raises(BoltOnError, match="token"):
        serve_http([_tool()], "0.0.0.0", 1)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost")
        self._path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def test_a_unix_socket_answers_its_owner_alone(tmp_path):
    path = tmp_path / "tool.sock"
    listener = bound_unix_socket(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.listen()
    with _served(http_app([_tool()]), listener):
        connection = _UnixConnection(path)
        connection.request("POST", CALL_PATH, _call({"name": "x"}).to_bytes(), MSGPACK)
        body = connection.getresponse().read()
        connection.close()
        assert CodecToolResult.from_bytes(body).response_ids == tuple(TINY.encode("hello x, the world"))
        with pytest.raises(BoltOnError, match="answers"):
            bound_unix_socket(path)
    bound_unix_socket(path).close()


def test_a_file_in_the_place_of_a_socket_is_left_alone(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(BoltOnError, match="not a socket"):
        bound_unix_socket(tmp_path / "x")
    assert (tmp_path / "x").read_text() == "mine"
    with pytest.raises(BoltOnError, match="can't be created"):
        bound_unix_socket(tmp_path / "none" / "x")


@pytest.mark.anyio
async def test_an_mcp_request_names_its_map_and_may_ask_for_packed_ids():
    async with Client(build_mcp_server([_tool()])) as client:
        listed = await client.list_tools()
        named = await client.call_tool("greet", {"name": "x"}, meta=announce_packing({"ai.codec/map": TINY.map_id}))
        failed = await client.call_tool("greet", {"name": "refuse"})
        mistake = await client.call_tool("greet", {"name": "unfilled"})
        missing = await client.call_tool("greet", {})
    assert [tool.name for tool in listed.tools] == ["greet"]
    assert listed.tools[0].input_schema["required"] == ["name"]
    assert take_ids(named, TINY.map_id) == [TINY.encode("hello x, the world")]
    assert "ids" not in named.content[0].meta["ai.codec/leaf-tokenization"]
    assert failed.is_error
    assert_leaf_result(failed, TINY)
    assert mistake.is_error
    assert "missing slot" in mistake.content[0].text
    assert "'name' is missing" in missing.content[0].text


@pytest.mark.anyio
async def test_a_tool_without_fragments_is_served_as_plain_text():
    tool = _tool(lambda _arguments: "hello", models=())
    async with Client(build_mcp_server([tool])) as client:
        result = await client.call_tool("greet", {"name": "x"})
    assert result.content[0].text == "hello"
    assert take_ids(result) == [None]


def test_the_example_for_tool_authors_answers_in_ids(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "tool-authors.md").read_text()
    example = next(part for part in page.split("```python\n") if part.startswith('"""Greet')).split("```")[0]
    (tmp_path / "map.json").write_bytes(tiny_map_bytes())
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(example, "tool-authors.md", "exec"), names)
    call = CodecToolCall("greet", 1, argument_ids=tuple(TINY.encode('{"name":"Ada"}')), model_id="org/model")
    assert names["tool"].call(call).response_ids == tuple(TINY.encode("Hello Ada, how are you today?"))
