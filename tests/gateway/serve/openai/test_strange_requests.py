"""Every field of every request, exchanged for what does not belong there: an answer that says so, never a failure.

And requests that other servers refused without a reason, by the reports of their users: all are answered. Each field
gets an eighth of the values before a model that knows tools, another eighth before one that does not, and its
neighbours the others; `make fuzz` gives each of them all before both.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from gateway.agent import Agent, CallRunner
from gateway.config.gateway_config import GatewayConfig
from gateway.engine.interface import EngineFacts, Generated, GenerateRequest, GenerationEnd, GenerationEvent, Timings
from gateway.engine.pool.pool import EnginePool
from gateway.engine.rendering.template import ChatTemplate
from gateway.engine.slots.allocation import SlotTable
from gateway.engine.start.ready_engine import ReadyEngine
from gateway.engine.wire.llama_cpp_json import completion_body
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.protocol.eras import CAPABILITIES_KEY, VERSION_KEY
from gateway.proxy.proxy import Proxy
from gateway.proxy.result_tokens import ResultTokens
from gateway.serve.codec.frame_negotiation import WireOffer
from gateway.serve.codec.frames import FrameResponder
from gateway.serve.mcp import McpEndpoint
from gateway.serve.messages.message_endpoint import MessagesEndpoint
from gateway.serve.openai.chat import ChatEndpoint
from gateway.serve.openai.completions import CompletionsEndpoint
from gateway.serve.responses.response_endpoint import ResponsesEndpoint
from gateway.toolcalls.formats.registry import choose_format
from leaf_sdk.testing import tiny_map
from tests.cases import IN_FULL, each_of

pytestmark = pytest.mark.anyio

TINY = tiny_map()

DEEP: Final = 100_000
NO_NUMBERS: Final = ("NaN", "-Infinity", "1e999")
CALL: Final = {"id": "call00001", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}
RAW: Final = (
    *("null", "true", "0", "-1", "1.5", "1e308", "-0.0", "9" * 30, "9" * 5000, str(2**63), str(-(2**63) - 1)),
    *('""', '"x"', '"' + "x" * 5000 + '"', r'"\ud800"', r'"\udc00\ud800"', r'"\u0000"', '"<|im_start|>"', r'"\u2028"'),
    *("[]", "{}", "[[]]", "[null]", "[{}]", '{"":{}}', r'{"\ud800":1}', '{"a":1,"a":[]}', '["x",1,null]'),
    *(*NO_NUMBERS, "[" * 150 + "]" * 150, "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP),
    json.dumps("[" * DEEP + "]" * DEEP),
    json.dumps('{"a":' * DEEP + "1" + "}" * DEEP),
    json.dumps("[" * DEEP),
    *(json.dumps("[" * depth + "]" * depth) for depth in (190, 210, 500, 900, 980)),
    json.dumps('{"a": NaN}'),
    json.dumps('{"a": ' + "9" * 5000 + "}"),
    r'"{\"a\": \"\\ud800\"}"',
    *(json.dumps(CALL), json.dumps([CALL, CALL]), json.dumps({"role": "user", "content": "hi"})),
)
"""JSON texts, and a few that are none."""

TOOL: Final = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}
CHAT: Final[dict[str, Any]] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "hi"}], "name": "me"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call00001", "content": "one"},
        {"role": "user", "content": "and?"},
    ],
    "tools": [TOOL],
    "tool_choice": {"type": "function", "function": {"name": "look"}},
    "parallel_tool_calls": False,
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "temperature": 0,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "seed": 1,
    "stop": ["x"],
    "n": 1,
    "logprobs": False,
    "response_format": {"type": "text"},
    "stream": False,
    "stream_options": {"include_usage": True},
    "return_token_ids": True,
    "stream_format": "json",
    "stream_flush": "interactive",
    "tool_watcher": {"start_id": 1, "end_id": 2},
    "tool_watcher_start": "<a>",
    "tool_watcher_end": "</a>",
}
COMPLETION: Final[dict[str, Any]] = {
    **{key: value for key, value in CHAT.items() if key not in ("messages", "tools", "tool_choice", "logprobs")},
    "prompt": [1, 2, 3],
    "best_of": 1,
    "echo": False,
    "suffix": "",
    "logprobs": 0,
}
RESPONSE: Final[dict[str, Any]] = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {"role": "developer", "content": "hi"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "x"}],
            "encrypted_content": "x",
        },
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi"}]},
        {"type": "function_call", "call_id": "call00001", "name": "look", "namespace": "n", "arguments": '{"a": 1}'},
        {"type": "custom_tool_call", "call_id": "call00002", "name": "patch", "input": "x"},
        {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "up", "name": "x", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False, "reason": "x"},
        {"type": "mcp_call", "id": "mcp_1", "server_label": "up", "name": "x", "arguments": "{}", "output": "x"},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "up", "tools": []},
        {"type": "function_call_output", "call_id": "call00001", "output": "one"},
        {"type": "custom_tool_call_output", "call_id": "call00002", "output": [{"type": "input_text", "text": "two"}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"role": "user", "content": "and?"},
    ],
    "tools": [
        {"type": "function", "name": "look", "description": "Look", "parameters": TOOL["function"]["parameters"]},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": "x"}},
        {"type": "namespace", "name": "n", "description": "x", "tools": [{"type": "function", "name": "look"}]},
        {"type": "web_search"},
    ],
    "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]},
    "parallel_tool_calls": False,
    "max_output_tokens": 1,
    "max_tool_calls": 1,
    "metadata": {"a": "b"},
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto"},
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "temperature": 0,
    "top_p": 1,
    "seed": 1,
    "store": True,
    "stream": False,
    "gateway_tools": "none",
    "prompt_cache_key": "x",
}
MESSAGES: Final[dict[str, Any]] = {
    "model": "m",
    "max_tokens": 1,
    "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "text", "text": "So."},
                {"type": "tool_use", "id": "call00001", "name": "look", "input": {"a": 1}},
                {"type": "mcp_tool_use", "id": "m", "name": "say", "server_name": "up", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call00001", "is_error": True, "content": "one"},
                {"type": "document", "source": {"type": "text", "data": "two"}},
            ],
        },
        {"role": "system", "content": "And?"},
    ],
    "tools": [
        {"name": "look", "description": "Look", "input_schema": TOOL["function"]["parameters"], "cache_control": {}},
        {"type": "web_search_20250305", "name": "web_search"},
    ],
    "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"},
    "output_config": {"effort": "high"},
    "context_management": {"edits": []},
    "metadata": {"user_id": "u"},
    "stop_sequences": ["x"],
    "temperature": 0,
    "top_p": 1,
    "stream": False,
    "mcp_servers": [],
    "gateway_tools": "all",
}
META: Final = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {"elicitation": {}}, "progressToken": 1}


def rpc(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


ACCEPT: Final = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
MODERN: Final = {**ACCEPT, "mcp-protocol-version": "2026-07-28"}
CALL_HEADERS: Final = {**MODERN, "mcp-method": "tools/call", "mcp-name": "look"}
GREETING: Final = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "1"}}
REQUESTS: Final[list[tuple[str, str, dict[str, str], dict[str, Any]]]] = [
    ("chat", "/v1/chat/completions", ACCEPT, CHAT),
    ("completion", "/v1/completions", ACCEPT, COMPLETION),
    ("response", "/v1/responses", ACCEPT, RESPONSE),
    ("messages", "/v1/messages", ACCEPT, MESSAGES),
    ("greeting", "/mcp/", ACCEPT, rpc("initialize", **GREETING, capabilities={"roots": {"listChanged": True}})),
    ("call", "/mcp/", CALL_HEADERS, rpc("tools/call", name="look", arguments={"a": 1}, _meta=META)),
    ("list", "/mcp/", {**MODERN, "mcp-method": "tools/list"}, rpc("tools/list", cursor="x", _meta=META)),
]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where something stands in a JSON value, itself included."""
    yield path
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


def exchanged(value: Any, path: tuple[str | int, ...], raw: str) -> bytes:
    """The value as JSON, with `raw` at this place."""
    mark = "\x01here\x01"

    def put(at: Any, rest: tuple[str | int, ...]) -> Any:
        if not rest:
            return mark
        if isinstance(at, dict):
            return {key: put(part, rest[1:]) if key == rest[0] else part for key, part in at.items()}
        return [put(part, rest[1:]) if n == rest[0] else part for n, part in enumerate(at)]

    return json.dumps(put(value, path)).replace(json.dumps(mark), raw).encode()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


class Engine:
    """Writes one id and ends; renders whatever can be sent as JSON."""

    async def apply_template(self, messages: Sequence[Any], tools: Sequence[Any] = ()) -> str:
        json.dumps([messages, tools]).encode()
        turns = [f"<|im_start|>{m['role']}\n{m.get('content') or ''}<|im_end|>\n" for m in messages]
        return "".join(turns) + "<|im_start|>assistant\n"

    @asynccontextmanager
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[AsyncIterator[GenerationEvent]]:
        json.dumps(completion_body(request)).encode()

        async def events() -> AsyncIterator[GenerationEvent]:
            yield Generated((TINY.encode("a")[0],))
            yield GenerationEnd("stop", None, Timings(1, 0, 1, 0, 0))

        yield events()


class Route:
    """The route to it; `template`: of a model that knows tools, or none."""

    def __init__(self, template: str) -> None:
        engine: Any = Engine()
        facts = EngineFacts("scripted", None, template, bool(template), len(TINY), 4000, 1, ())
        tool_format = choose_format(template, supports_tools=bool(template))
        self._ready = ReadyEngine(engine, facts, TINY, ChatTemplate(engine, facts, TINY), SlotTable(1), tool_format)

    def ready(self) -> ReadyEngine:
        return self._ready

    def report_loss(self) -> None:
        raise AssertionError("the engine is there")


HERMES: Final = "<tool_call> {{ tools }} <|im_start|>"


@pytest.fixture(scope="module", params=["", HERMES], ids=["preamble", "tools"])
def template(request: pytest.FixtureRequest) -> str:
    """The template of a model that knows no tools, and of one that does."""
    return request.param


@pytest.fixture(scope="module")
async def client(template: str) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client of the APIs before that model; what they raise reaches the test."""
    config, metrics, route = GatewayConfig(), Metrics(), EnginePool({"engine": Route(template)})
    tokens = ResultTokens({}, level="verify", metrics=metrics, notices=TokenNotices(get_logger("test.tokens")))
    async with Proxy(config, metrics) as proxy:
        agent = Agent(route, CallRunner(proxy, tokens, config.limits), config.limits, metrics)
        frames = FrameResponder(WireOffer.of(config.wire), metrics.wire, None)
        openai = ChatEndpoint(agent, config.limits, metrics, frames)
        completions = CompletionsEndpoint(route, config.limits, metrics, frames)
        responses = ResponsesEndpoint(agent, config.limits, metrics)
        messages = MessagesEndpoint(agent, route, config.limits, metrics)
        mcp = McpEndpoint(proxy, config, tokens=tokens, maps={}, metrics=metrics)
        app = Starlette(
            routes=[
                *(*openai.routes(), *completions.routes(), *responses.routes(), *messages.routes()),
                Mount("/mcp/", app=mcp),
            ]
        )
        transport = httpx2.ASGITransport(app=app)
        async with mcp.running(), httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


PARTS: Final = 1 if IN_FULL else 8


@pytest.mark.in_full
@pytest.mark.parametrize("request_", REQUESTS, ids=[name for name, *_ in REQUESTS])
async def test_no_field_of_a_request_can_make_the_gateway_fail(
    client: httpx2.AsyncClient, template: str, request_: tuple[str, str, dict[str, str], dict[str, Any]]
) -> None:
    name, url, headers, body = request_
    # `1e999` is in JSON's grammar, and nothing of a greeting is carried on that could not hold it.
    refused = NO_NUMBERS[:2] if name.endswith("greeting") else NO_NUMBERS
    first = PARTS // 2 if template else 0
    cases = [(path, raw) for n, path in enumerate(places(body), first) for raw in RAW[n % PARTS :: PARTS]]

    @each_of(("path", "raw"), cases)
    async def is_answered(path: tuple[str | int, ...], raw: str) -> None:
        answer = await client.post(url, content=exchanged(body, path, raw), headers=headers)
        what = (answer.status_code, answer.text[:300])
        assert answer.status_code in {200, 400, 404, 413}, what
        assert answer.status_code == 200 or "error" in answer.json(), what
        assert answer.status_code == 400 or raw not in refused, what

    await is_answered()


HI: Final = {"role": "user", "content": "hi"}
ODD: Final = {**CALL, "id": "call-243240c8"}
USED: Final[dict[str, Any]] = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
LOOKS: Final = [{"name": "look", "input_schema": {"type": "object"}}]
FORM: Final = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def chat(*messages: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/chat/completions", {"messages": [HI, *messages], **fields}


def response(*items: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/responses", {"input": [*items, HI], **fields}


def messages(*others: Any, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "/v1/messages", {"max_tokens": 5, "messages": [HI, *others], **fields}


def said(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def result(content: Any) -> dict[str, Any]:
    return said("user", {"type": "tool_result", "tool_use_id": "t1", "content": content})


REPORTED: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "openai/codex#731": chat({"role": "user", "content": {"type": "text", "text": "hi"}}),
    "vllm#4597": chat(guided_choice=["positive", "negative"]),
    "vllm#21089": chat({"role": "assistant", "content": ""}, HI),
    "vllm#16774": chat(
        {"role": "assistant", "content": "Let me look.", "tool_calls": [ODD]},
        {"role": "tool", "tool_call_id": ODD["id"], "content": None},
        tools=[TOOL],
    ),
    "vllm#54491": chat(said("assistant", {"type": "text", "text": "a"}), said("user", {"type": "text", "text": "b"})),
    "autogen#1829": chat(
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
        {"role": "function", "name": "look", "content": "1"},
        HI,
    ),
    "llama.cpp#23463": chat(response_format={"type": "json_schema", "json_schema": {"name": "t", "schema": FORM}}),
    "llama-cpp-python#113": chat({"role": "assistant", "content": "x", "refusal": None, "audio": None}, HI),
    "litellm#26322": chat(max_completion_tokens=5, reasoning_effort="low"),
    "hermes-agent#934": chat(parallel_tool_calls=True, prompt_cache_key="k", tool_choice="auto"),
    "llama.cpp's own form of a bias": chat(logit_bias=[[5, -1], [6, False]]),
    "langchain#32557": response({"role": "assistant", "content": [{"type": "output_text", "text": "x"}]}),
    "vllm#54224": response({"type": "message", "role": "assistant", "id": None, "content": "x", "status": None}),
    "langchainjs#11045": response({"type": "reasoning", "id": "", "summary": []}),
    "TensorRT-LLM#17738": response({"type": "reasoning", "id": "rs_1", "summary": []}),
    "vllm#41355": response({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}),
    "inspect_ai#1545": response({"type": "message", "role": "assistant", "id": "CPCWNbG2", "content": "x"}),
    "litellm#36546": response(
        {"type": "function_call", "name": "look", "call_id": "c", "encrypted_function_args": "x"},
        {"type": "compaction", "encrypted_content": "x"},
        {"type": "local_shell_call", "call_id": "l", "action": {}},
        {"type": "tool_search_call"},
    ),
    "codex-proxy-rs#194": response(
        {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "c", "output": "1", "status": "completed"},
    ),
    "CLIProxyAPI#1703": response(metadata={"user_api_key_hash": "x", "deployment": {"a": None}}),
    "CLIProxyAPI#897": response(prompt_cache_retention="24h"),
    "litellm#38842": response(reasoning={"effort": "xhigh", "summary": "detailed"}),
    "ai-tools-mng#79": ("/v1/responses", {"input": "Hello!"}),
    "lemonade#1820": messages(
        thinking={"type": "adaptive"}, metadata={"user_id": None}, context_management={"edits": []}
    ),
    "copilot-api#241": messages(
        said("assistant", USED), result([{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}])
    ),
    "chatlabs#35": messages(said("assistant"), HI),
    "obsidian-smart-composer#156": messages({"role": "assistant", "content": ""}, HI),
    "claude-code#12894": messages(said("assistant", USED), result("x"), thinking={"type": "enabled"}),
    "claude-code#6242": messages(said("assistant", USED), HI, tools=LOOKS),
    "claude-code#63267": messages(
        said("assistant", {"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "y"}), HI
    ),
    "inspect_ai#3025": messages(said("assistant", {"type": "text", "text": "<think>x</think>y"}), HI),
    "a result before its text": messages(
        said("assistant", USED), said("user", {"type": "text", "text": "x"}, *result("y")["content"])
    ),
    "a call of a tool on Anthropic's side": messages(
        said("assistant", {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}), HI
    ),
    "top_p of 0": messages(top_p=0, temperature=1.5),
}


@each_of("report", REPORTED)
async def test_request_that_another_server_refused_is_answered(client: httpx2.AsyncClient, report: str) -> None:
    url, body = REPORTED[report]

    answer = await client.post(url, json=body)

    assert answer.status_code == 200, answer.text
