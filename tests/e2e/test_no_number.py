"""Numbers that JSON does not have pass in neither direction, and who sent them is told so."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
GREETING = '{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}, \
"clientInfo":{"name":"t","version":"1"}}}'


@pytest.fixture(scope="module")
def ask(
    tmp_path_factory: pytest.TempPathFactory, run_gateway: Callable[..., Any], server: Callable[..., dict[str, Any]]
) -> Iterator[Callable[[str], httpx2.Response]]:
    """Calls the tool with arguments that are written as they are."""
    with (
        run_gateway(tmp_path_factory.mktemp("numbers"), {"up": server("says_no_number")}) as gateway,
        httpx2.Client(headers=HEADERS, timeout=240) as http,
    ):
        url = f"{gateway.url}/mcp"
        session = http.post(url, content=GREETING).headers["mcp-session-id"]

        def call(arguments: str) -> httpx2.Response:
            body = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":%s}}'
            return http.post(url, content=body % arguments, headers={"mcp-session-id": session})

        yield call


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_number_of_a_server_that_json_does_not_have_fails_its_call_by_name(
    ask: Callable[[str], httpx2.Response], word: str
) -> None:
    answer = ask(f'{{"word": "{word}"}}')

    assert "NaN and Infinity are not JSON numbers" in answer.text
    assert "structuredContent" not in answer.text
    assert ask('{"word": "1.5"}').json()["result"]["structuredContent"] == {"x": 1.5}


def test_number_of_a_server_that_is_larger_than_a_float_is_passed_on(ask: Callable[[str], httpx2.Response]) -> None:
    assert '"structuredContent": {"x": 1e999}' in ask('{"word": "1e999"}').text


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_number_of_a_client_that_json_does_not_have_reaches_no_server(
    ask: Callable[[str], httpx2.Response], word: str
) -> None:
    answer = ask(f'{{"word": "1", "more": {word}}}')

    assert "NaN and Infinity are not JSON numbers" in answer.text
