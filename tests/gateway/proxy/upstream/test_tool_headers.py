"""Tools whose header annotations are wrong are left out over HTTP, and the reason is told once."""

import pytest

from gateway.config.gateway_config import UpstreamConfig
from gateway.proxy.upstream.items.item_reader import ToolHeaders
from tests.cases import each_of

HTTP = UpstreamConfig("up", url="http://127.0.0.1:1/mcp")
VALID = {"name": "valid", "inputSchema": {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}}


def tool(name: str = "t", header: object = "", kind: str = "string") -> dict[str, object]:
    return {"name": name, "inputSchema": {"properties": {"value": {"type": kind, "x-mcp-header": header}}}}


@each_of(
    "bad",
    [
        tool(),
        tool(header="My Region"),
        tool(header="Region:Primary"),
        tool(header="Région"),
        tool(header="Region\t1"),
        tool(header="Region\r\nX: y"),
        tool(header=1),
        *(tool(header="Data", kind=kind) for kind in ("object", "array", "null", "number")),
        {
            "name": "t",
            "inputSchema": {"properties": {n: {"type": "string", "x-mcp-header": n} for n in ("Field", "fieLD")}},
        },
        {"name": "t", "inputSchema": {"properties": {"l": {"items": {"type": "string", "x-mcp-header": "X"}}}}},
    ],
)
def test_tool_with_an_invalid_annotation_is_left_out_with_its_reason_and_the_others_stay(bad):
    headers = ToolHeaders(HTTP)

    assert headers.screen([bad, VALID]) == [VALID]
    assert "x-mcp-header" in headers.invalid["t"]


@pytest.mark.parametrize("config", [UpstreamConfig("up", command="x"), UpstreamConfig("up", manifest="x")])
def test_without_http_there_are_no_headers_to_be_wrong(config):
    definitions = [tool(), VALID]

    headers = ToolHeaders(config)

    assert list(headers.screen(definitions)) == definitions
    assert headers.invalid == {}


def test_reason_is_logged_once_however_often_the_tool_is_listed(caplog):
    headers = ToolHeaders(HTTP)
    for _ in range(3):
        headers.screen([tool(name="line\nbreak"), VALID])

    (told,) = [record.msg for record in caplog.records]
    assert (told["server"], told["tool"]) == ("up", r"line\nbreak")
    assert "not a valid header name" in told["reason"]


def test_log_names_few_of_many_tools(caplog):
    ToolHeaders(HTTP).screen([tool(name=f"t{number}") for number in range(1000)])

    assert len(caplog.records) == 21
    assert caplog.records[-1].msg["count"] == 980


def test_tool_that_was_corrected_is_offered_again():
    headers = ToolHeaders(HTTP)
    headers.screen([tool()])

    assert list(headers.screen([tool(header="Region")])) == [tool(header="Region")]
    assert headers.invalid == {}


def test_session_that_lists_less_does_not_make_a_tool_valid():
    headers = ToolHeaders(HTTP)
    headers.screen([tool(), VALID])
    headers.screen([VALID])

    assert set(headers.invalid) == {"t"}
