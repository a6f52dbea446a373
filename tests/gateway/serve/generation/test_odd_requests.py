"""Requests as clients of all kinds send them: none is refused for a form that other servers take.

Empty and missing contents, texts where blocks are expected, other names of an id, numbers as texts, `[]` for `{}`,
shapes of another API. From public issues of Claude Code, Codex, LibreChat, LangChain, n8n, mlx-vlm, LM Studio, litellm,
vLLM and llama.cpp, and their like.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gateway.serve.generation.tools_and_formats import read_choice
from gateway.serve.messages.message_request import MessagesRequest
from gateway.serve.openai.chat import ChatRequest
from gateway.serve.responses.input_history import gather
from gateway.serve.responses.response_request import ResponsesRequest
from gateway.serve.responses.response_tools import add_tools, read_tools
from gateway.serve.responses.transcript import TranscriptReader
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

REQUESTS: Final[dict[str, dict[str, Any]]] = json.loads(
    Path(__file__).with_name("odd_requests.json").read_text(encoding="utf-8")
)
TINY: Final = tiny_map()


class NothingStored:
    def chain(self, *_: str) -> None:
        return None

    def item(self, *_: str) -> None:
        return None


def read_chat(body: bytes) -> object:
    request, messages = ChatRequest.checked(body)
    return request.options(TINY), request.without_effect(()), request.read_tools.specs, messages


def read_messages(body: bytes) -> object:
    request = MessagesRequest.checked(body)
    return request.options(), request.without_effect(()), request.sorted_tools, request.marks_cache, request.continues


def read_responses(body: bytes) -> object:
    request = ResponsesRequest.checked(body)
    items = gather(request, NothingStored(), "me", 10**6)
    tools = read_tools(request.tools, (), frozenset)
    add_tools(tools, items.tools_in("additional_tools"))
    choice = read_choice(request.tool_choice, tools.names_in)
    told = request.shown_text, request.summarized, request.without_effect(())
    return choice, told, TranscriptReader(tools, lambda _: None, lambda *_: "").read(items.placed)


READERS: Final[dict[str, Callable[[bytes], object]]] = {
    "chat": read_chat,
    "messages": read_messages,
    "responses": read_responses,
}


@each_of(("api", "name"), [(api, name) for api, requests in REQUESTS.items() for name in requests])
def test_request_that_other_servers_take_is_taken(api: str, name: str) -> None:
    assert READERS[api](json.dumps(REQUESTS[api][name]).encode())
