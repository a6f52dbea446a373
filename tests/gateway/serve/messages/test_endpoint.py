"""`/v1/messages` as a client sees it: what is served, what is refused, and how a stream lives and breaks."""

import json
from typing import Any

import anthropic
import anyio
import pytest
from anthropic.types.shared import ErrorResponse
from starlette.types import Message, Scope

from gateway.serve.generation.answers import StreamedAnswer

pytestmark = pytest.mark.anyio

ASK = [{"role": "user", "content": "hi"}]
LOOK = {"name": "look", "description": "Look", "input_schema": {"type": "object", "properties": {"a": {}}}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1000}}\n</tool_call>'
RAN = '<tool_call>\n{"name": "say", "arguments": {}}\n</tool_call>'
MARK = {"cache_control": {"type": "ephemeral"}}
BODY: dict[str, Any] = {"model": "any", "max_tokens": 200, "messages": ASK}
CLAUDE_CODE: dict[str, Any] = {
    "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cc_entrypoint=sdk-cli;"}],
    "metadata": {"user_id": "u"},
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "high"},
}

SERVED: list[tuple[dict[str, Any], str]] = [
    ({}, "Hello."),
    ({"system": "Be brief."}, "Hello."),
    ({"system": [{"type": "text", "text": "Be brief.", **MARK}]}, "Hello."),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "<think>\nhm</think>\n\nHello."),
    ({"thinking": {"type": "adaptive", "display": "omitted"}}, "<think>\nhm</think>\n\nHello."),
    ({"thinking": {"type": "between_tools"}}, "<think>\nhm</think>\n\nHello."),
    ({"thinking": {"type": "disabled"}}, "<think>\nhm</think>\n\nHello."),
    (CLAUDE_CODE, "Hello."),
    ({"tools": [LOOK]}, CALL),
    ({"tools": [{**LOOK, "type": "custom", **MARK, "strict": True}]}, f"So.{CALL}{CALL}"),
    ({"tools": [LOOK], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}, CALL + CALL),
    ({"tools": [LOOK], "tool_choice": {"type": "any"}}, CALL),
    ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "look"}}, CALL),
    ({"tools": [LOOK], "tool_choice": {"type": "none"}}, CALL),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}, LOOK]}, "Hello."),
    ({"stop_sequences": ["###"]}, "Hello### and more"),
    ({"max_tokens": 3}, "Hello and more"),
    ({"service_tier": "auto", "extra_body": {"temperature": 0.5, "top_p": 0.9, "top_k": 40}}, "Hello."),
    ({"cache_control": {"type": "ephemeral"}}, "Hello."),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}}, "{}"),
    ({"messages": [*ASK, {"role": "system", "content": "Be brief."}]}, "Hello."),
]
POSTED: Scope = {
    "type": "http",
    "method": "POST",
    "path": "/v1/messages",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"content-type", b"application/json")],
}


@pytest.mark.parametrize(("fields", "said"), SERVED, ids=[str(n) for n in range(len(SERVED))])
async def test_package_reads_whole_and_streamed_answers_and_they_say_the_same(
    site: Any, fields: dict[str, Any], said: str
) -> None:
    site.says(said)
    whole = await site.client.beta.messages.create(**{**BODY, **fields})
    site.says(said)
    async with site.client.beta.messages.stream(**{**BODY, **fields}) as stream:
        async for _ in stream:
            pass
        streamed = await stream.get_final_message()

    def told(message: Any) -> Any:
        shown = message.model_dump(exclude={"id", "codec", "usage", "context_management"}, exclude_none=True)
        for block in shown["content"]:
            block.pop("id", None)
            block.pop("parsed_output", None)
        return shown

    assert told(streamed) == told(whole)
    assert whole.content
    assert whole.stop_reason is not None


@pytest.mark.parametrize(
    ("fields", "said", "kinds", "reason"),
    [
        ({"thinking": {"type": "adaptive"}}, "<think>\nhm</think>\n\nHello.", ["thinking", "text"], "end_turn"),
        ({}, "<think>\nhm</think>\n\nHello.", ["text"], "end_turn"),
        ({"tools": [LOOK]}, CALL + CALL, ["tool_use", "tool_use"], "tool_use"),
        (
            {"tools": [LOOK], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            CALL + CALL,
            ["tool_use"],
            "tool_use",
        ),
        ({"tools": [LOOK], "tool_choice": {"type": "none"}}, CALL, ["text"], "end_turn"),
        ({"stop_sequences": ["@@", "###"]}, "Hello### and", ["text"], "stop_sequence"),
        ({"max_tokens": 2}, "Hello and more", ["text"], "max_tokens"),
        ({}, RAN, ["text"], "end_turn"),
        ({"gateway_tools": "none"}, RAN, ["text"], "end_turn"),
    ],
)
async def test_answer_holds_what_was_asked_for(
    site: Any, fields: dict[str, Any], said: str, kinds: list[str], reason: str
) -> None:
    site.says(said, "So late.")

    message = (await site.post({**BODY, **fields})).json()

    assert [block["type"] for block in message["content"]] == kinds
    assert message["stop_reason"] == reason
    assert message["stop_sequence"] == ("###" if reason == "stop_sequence" else None)


async def test_thought_that_is_omitted_leaves_its_signature(site: Any) -> None:
    thinking = {"type": "adaptive", "display": "omitted"}
    site.says("<think>\nhm</think>\n\nHello.")

    block = (await site.post({**BODY, "thinking": thinking})).json()["content"][0]

    assert (block["thinking"], bool(block["signature"])) == ("", True)


async def test_what_the_gateway_ran_is_shown_to_who_asks_by_header(site: Any) -> None:
    site.says(RAN, "So late.")
    shown = await site.client.beta.messages.create(**BODY, betas=["mcp-client-2025-11-20"])
    site.says(RAN, "So late.")
    hidden = await site.client.beta.messages.create(**BODY)

    assert [block.type for block in shown.content] == ["mcp_tool_use", "mcp_tool_result", "text"]
    assert shown.content[0].server_name == "up"
    assert [block.type for block in hidden.content] == ["text"]


@pytest.mark.parametrize(
    ("tools", "names"),
    [
        ([{"type": "mcp_toolset", "mcp_server_name": "up"}], {"say"}),
        ([{"type": "mcp_toolset", "mcp_server_name": "up", "default_config": {"enabled": False}}], set()),
        (
            [
                {
                    "type": "mcp_toolset",
                    "mcp_server_name": "up",
                    "default_config": {"enabled": False},
                    "configs": {"say": {"enabled": True}, "sing": {"enabled": False}},
                }
            ],
            {"say"},
        ),
        ([LOOK], {"look", "say"}),
    ],
)
async def test_servers_that_a_request_names_are_those_that_it_sees(
    site: Any, tools: list[dict[str, Any]], names: set[str]
) -> None:
    site.says("Hello.")
    assert (await site.post({**BODY, "tools": tools})).status_code == 200

    assert {name for name in ("look", "say") if f'"name": "{name}"' in site.engine.prompts[0]} == names


async def test_answer_goes_on_with_a_last_message_of_the_assistant(site: Any) -> None:
    site.says(" sky is blue.")

    message = (await site.post({**BODY, "messages": [*ASK, {"role": "assistant", "content": "The"}]})).json()

    assert site.engine.prompts[0].endswith("<|im_start|>assistant\nThe")
    assert message["content"] == [{"type": "text", "text": " sky is blue."}]


async def test_all_without_effect_is_named(site: Any) -> None:
    site.says("Hello.")
    hosted = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
    foreign = {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s"}, {"type": "text", "text": "a"}]}
    fields = {**CLAUDE_CODE, "tools": hosted, "messages": [*ASK, foreign, *ASK], "top_z": 1}
    fields["thinking"] = {"type": "enabled", "budget_tokens": 1024}

    message = (await site.post({**BODY, **fields})).json()

    assert message["codec"]["ignored"] == [
        "metadata",
        "top_z",
        "thinking.budget_tokens",
        "output_config.effort",
        "tools[0]: web_search_20250305",
        "tools[1]: bash_20250124",
        "messages: server_tool_use",
    ]
    assert message["context_management"] == {"applied_edits": []}


FORMAT = {"type": "json_schema", "schema": {"type": "object"}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    (
        {"messages": [*ASK, {"role": "assistant", "content": "{"}], "output_config": {"format": FORMAT}},
        "can't continue a text",
    ),
    ({"mcp_servers": [{"type": "url", "url": "http://evil", "name": "x"}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
    ({"output_config": {"format": {"type": "json_schema", "schema": {"type": "x"}}}}, "output_config.format"),
    ({"output_format": {"type": "json_schema", "schema": {"type": "x"}}}, "output_config.format"),
    ({"thinking": 5}, "thinking"),
    ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    ({"tools": [{"type": "mcp_toolset"}]}, "tools[0].mcp_server_name"),
    ({"tools": [{"type": "mcp_toolset", "mcp_server_name": "other"}]}, "'other' is not one of the gateway's servers"),
    (
        {"tools": [{"type": "mcp_toolset", "mcp_server_name": "up", "configs": {"say": {"enabled": False}}}]},
        "tools[0].configs",
    ),
    ({"tools": [{"type": "bash_20250124", "name": "b"}], "tool_choice": {"type": "tool", "name": "b"}}, "'b'"),
    ({"tool_choice": {"type": "any"}, "gateway_tools": "none"}, "tool_choice"),
    ({"tool_choice": {"type": "tool", "name": "nope"}}, "nope"),
    ({"stop_sequences": ["x"] * 65}, "stop_sequences"),
    ({"stop_sequences": ["x" * 1001]}, "stop_sequences"),
    ({"temperature": 101}, "temperature"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED, ids=[words for _, words in REFUSED])
async def test_what_is_refused_is_named_in_the_shape_of_the_package(
    site: Any, fields: dict[str, Any], words: str
) -> None:
    answer = await site.post({**BODY, **fields})

    body = ErrorResponse.model_validate(answer.json(), strict=True)
    assert (answer.status_code, body.error.type) == (400, "invalid_request_error")
    assert words in body.error.message
    assert body.request_id == answer.headers["request-id"]


async def test_errors_have_the_types_that_the_package_knows(site: Any) -> None:
    large = await site.post(b" " * 40_000_000)
    other = await site.http.post("/v1/messages", content=b"{}", headers={"content-type": "text/plain"})
    nowhere = await site.post(BODY, "/v1/messages/batches")
    method = await site.http.get("/v1/messages")
    site.route.down = True
    away = await site.post(BODY)

    assert [(a.status_code, a.json()["error"]["type"]) for a in (large, other, nowhere, method, away)] == [
        (413, "request_too_large"),
        (415, "invalid_request_error"),
        (404, "not_found_error"),
        (405, "invalid_request_error"),
        (529, "overloaded_error"),
    ]
    assert all(a.json()["request_id"] == a.headers["request-id"] for a in (large, other, nowhere, method, away))
    assert "retry-after" in away.headers
    with pytest.raises(anthropic.InternalServerError) as refused:
        await site.client.messages.create(**BODY)
    assert (refused.value.status_code, refused.value.type) == (529, "overloaded_error")


async def test_conversation_that_is_too_long_says_so_in_the_words_that_clients_look_for(small_site: Any) -> None:
    async with small_site(400) as site:
        long = [{"role": "user", "content": "hello " * 500}]
        answer = await site.post({**BODY, "messages": long})
        counted = (await site.post({"messages": long}, "/v1/messages/count_tokens")).json()["input_tokens"]

        assert answer.status_code == 400
        assert answer.json()["error"]["message"].startswith(f"prompt is too long: {counted} tokens > 400 maximum")
        assert counted > 400

        site.says("word " * 200)
        message = (await site.post({**BODY, "max_tokens": 4000, "gateway_tools": "none"})).json()
        assert message["stop_reason"] == "model_context_window_exceeded"


@pytest.mark.parametrize("fields", [{}, {"system": "Be brief."}, {"tools": [LOOK]}, {"gateway_tools": "none"}])
async def test_tokens_are_counted_as_the_engine_gets_them(site: Any, fields: dict[str, Any]) -> None:
    site.says("Hello.")
    usage = (await site.post({**BODY, **fields})).json()["usage"]
    counted = (await site.post({"model": "any", "messages": ASK, **fields}, "/v1/messages/count_tokens")).json()

    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


@pytest.mark.parametrize("version", [None, "2023-06-01", "2099-01-01", ""])
async def test_any_version_and_any_model_and_the_beta_query_are_served(site: Any, version: str | None) -> None:
    site.says("Hello.")
    headers = {} if version is None else {"anthropic_version": version}

    answer = await site.post({**BODY, "model": "claude-x"}, "/v1/messages?beta=true", **headers)

    assert answer.json()["content"] == [{"type": "text", "text": "Hello."}]
    assert answer.headers["request-id"].startswith("req_")


async def test_models_have_the_shape_of_who_asks(site: Any) -> None:
    listed = await site.client.models.list()
    one = await site.client.models.retrieve("anything/at-all")
    plain = (await site.http.get("/v1/models")).json()

    assert [model.id for model in listed.data] == [one.id] == ["scripted"]
    assert one.max_input_tokens == 4000
    assert plain["object"] == "list"


async def test_engine_that_dies_ends_the_stream_with_an_error_event(site: Any) -> None:
    site.says("Hello and more")
    site.engine.breaks_after = 3
    async with site.client.messages.stream(**BODY) as stream:
        with pytest.raises(anthropic.APIStatusError) as broken:
            await stream.get_final_message()
    site.says("Hello and more")
    whole = await site.post(BODY)

    assert "broke off" in str(broken.value)
    assert whole.status_code == 529


async def test_client_that_leaves_takes_its_generation_with_it(site: Any) -> None:
    site.engine.gate, site.engine.left = anyio.Event(), anyio.Event()
    site.says("Hello.")
    body = json.dumps({**BODY, "stream": True}).encode()
    told: list[Message] = []
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        return waiting.pop() if waiting else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        told.append(message)

    with anyio.fail_after(20):
        await site.app(dict(POSTED), receive, send)
        await site.engine.left.wait()
    site.engine.gate.set()

    assert told == []


async def test_stream_says_that_it_lives_while_nothing_comes(site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    defaults = StreamedAnswer.__init__.__defaults__
    monkeypatch.setattr(StreamedAnswer.__init__, "__defaults__", (0.001,))
    assert defaults == (5.0,)
    site.engine.gate = anyio.Event()
    site.says("Hello.")
    events: list[str] = []

    async def send(message: Message) -> None:
        lines = message.get("body", b"").decode().splitlines()
        events.extend(line.removeprefix("event: ") for line in lines if line.startswith("event: "))
        if events.count("ping") == 2:
            site.engine.gate.set()

    body = json.dumps({**BODY, "stream": True}).encode()
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(20):
        await site.app(dict(POSTED), receive, send)

    assert events[:3] == ["message_start", "ping", "ping"]
    assert events.count("message_start") == 1
    assert events[-2:] == ["message_delta", "message_stop"]


async def test_what_the_gateway_ran_is_told_again_once_it_is_forgotten(small_site: Any) -> None:
    asked = {**BODY, "messages": [{"role": "user", "content": "Late?"}]}
    prompts: list[str] = []
    messages: list[Any] = []
    for _ in range(2):
        async with small_site() as site:
            if not messages:
                site.says(RAN, "So late.")
                answer = (await site.post(asked, anthropic_beta="mcp-client-2025-11-20")).json()
                messages = [
                    *asked["messages"],
                    {"role": "assistant", "content": answer["content"]},
                    {"role": "user", "content": "And now?"},
                ]
            site.says("Fine.")
            await site.post({**asked, "messages": messages})
            prompts.append(site.engine.prompts[-1])

    remembered, forgotten = prompts
    assert "It is late." in forgotten
    assert forgotten == remembered


async def test_results_of_parallel_calls_belong_to_their_calls_in_either_order(site: Any) -> None:
    fields = {**BODY, "tools": [LOOK]}
    site.says(CALL + CALL.replace("1000", "2000"))
    answer = (await site.post(fields)).json()
    results = [{"type": "tool_result", "tool_use_id": each["id"], "content": each["id"]} for each in answer["content"]]
    for ordered in (results, results[::-1]):
        messages = [*ASK, {"role": "assistant", "content": answer["content"]}, {"role": "user", "content": ordered}]
        site.says("Fine.")
        await site.post({**fields, "messages": messages})

    in_order, reversed_ = site.engine.prompts[1:]
    assert reversed_ == in_order
    assert in_order.startswith(site.engine.prompts[0])
    assert in_order.index(results[0]["content"]) < in_order.index(results[1]["content"])
