"""Questions to a vLLM server, and what its answers are taken to say."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from gateway.engine.interface import Activity
from gateway.engine.wire.vllm_client import VllmQuestions as Questions
from gateway.errors import EngineRefused, EngineUnavailable
from tests.cases import each_of

pytestmark = pytest.mark.anyio
URL = "http://engine.test:8000"
METRICS = """vllm:cache_config_info{block_size="16",x="y"} 1.0
vllm:prompt_tokens_total{engine="0"} 30.0
vllm:generation_tokens_total{engine="0"} 12.0
vllm:gpu_cache_usage_perc{engine="0"} 0.5
vllm:num_requests_running{engine="0"} 1.0
"""
Answers = Callable[[str, dict[str, Any]], tuple[int, Any]]


def answers(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A server that shows no template, whose template shows tools and calls."""
    match path:
        case "/v1/models":
            return 200, {"data": [{"id": "base", "root": "org/base", "max_model_len": 1}, {"id": "adapter"}]}
        case "/metrics":
            return 200, METRICS
        case "/tokenize" if "messages" in body:
            return 200, {"tokens": [1, 2] if "tools" in body else [3]}
        case "/tokenize":
            return 200, {"tokens": [0] if body["add_special_tokens"] else [8, 9]}
        case "/detokenize":
            return 200, {"prompt": "lookup_of_probe lookup_of_probe" if body["tokens"] == [1, 2] else "plain"}
        case _:
            return 404, {"error": {"message": "not found"}}


class Server:
    """Answers by path, and keeps what it was asked."""

    def __init__(self, answer: Answers = answers, **by_path: Any) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self._answer = answer
        self._by_path = by_path

    async def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        asked = json.loads(body) if body else None
        self.asked.append((method, path, asked))
        status, said = self._by_path.get(path.rpartition("/")[2]) or self._answer(path, asked or {})
        return status, (said if isinstance(said, str) else json.dumps(said)).encode()


def questions(server: Server, **more: Any) -> Questions:
    return Questions(URL, server, at_once=5, **more)


async def test_facts_are_what_the_answers_say() -> None:
    facts = await questions(Server()).facts()

    assert (facts.model, facts.model_path, facts.context, facts.slots) == ("base", "org/base", 1, 5)
    assert (facts.bos, facts.vocabulary, facts.start_marker, facts.api) == ((0,), None, None, "vllm")
    assert (facts.can.salts, facts.can.sessions, facts.can.plain_tokenize) == (True, True, False)
    assert (facts.can.reuse_block, facts.can.retention) == (16, False)
    assert (facts.chat_template, facts.can.shows_template) == ("lookup_of_probe lookup_of_probe", False)
    assert facts.supports_tools


@each_of(
    ("diagnostics", "asks"),
    [
        ((200, {"enabled": True, "ranks": []}), True),
        ((404, {"enabled": False, "error": "This Router does not own Program scheduling"}), False),
        ((200, {"enabled": False}), False),
        ((200, {"enabled": "yes"}), False),
        ((404, {"enabled": True}), False),
        ((200, []), False),
        ((200, "<html>"), False),
        ((200, "[" * 100_000), False),
    ],
)
async def test_router_that_schedules_programs_asks_what_follows(diagnostics: tuple[int, Any], *, asks: bool) -> None:
    assert (await questions(Server(diagnostics=diagnostics)).facts()).can.retention is asks


@pytest.mark.parametrize("metrics", [(404, METRICS), (201, METRICS), (200, "")])
async def test_block_that_is_not_reported_is_taken_to_be_large(metrics: tuple[int, str]) -> None:
    assert (await questions(Server(metrics=metrics)).facts()).can.reuse_block == 128


async def test_context_that_no_model_has_is_refused() -> None:
    for length in (0, 2**31 + 1, "4096", None):
        models = {"data": [{"id": "base", "max_model_len": length}]}
        with pytest.raises(EngineRefused, match="did not answer like vLLM"):
            await questions(Server(models=(200, models))).facts()


async def test_block_of_no_id_is_not_believed() -> None:
    none = METRICS.replace('"16"', '"0"')

    assert (await questions(Server(metrics=(200, none))).facts()).can.reuse_block == 1


async def test_template_that_the_server_shows_is_its_source() -> None:
    facts = await questions(Server(tokenizer_info=(200, {"chat_template": "{{ x }}"}))).facts()

    assert (facts.chat_template, facts.can.shows_template, facts.supports_tools) == ("{{ x }}", True, True)


async def test_template_that_names_a_call_but_no_definition_does_not_support_tools() -> None:
    facts = await questions(Server(detokenize=(200, {"prompt": "a lookup_of_probe"}))).facts()

    assert not facts.supports_tools


async def test_template_that_refuses_tools_is_shown_by_a_question_alone() -> None:
    def refuses_tools(path: str, body: dict[str, Any]) -> tuple[int, Any]:
        return (400, {"error": {"message": "no tools"}}) if "tools" in body else answers(path, body)

    server = Server(refuses_tools)
    facts = await questions(server).facts()

    assert (facts.chat_template, facts.supports_tools) == ("plain", False)
    (shown,) = [body["messages"] for _, path, body in server.asked if path == "/tokenize" and body.get("messages")][1:]
    assert [message["role"] for message in shown] == ["user"]


async def test_model_is_the_wanted_one_or_the_first() -> None:
    assert await questions(Server()).model() == "base"
    assert await questions(Server(), served="adapter").model() == "adapter"
    with pytest.raises(
        EngineUnavailable, match=r"engine\.served_model is 'other', but the server has 'base', 'adapter'"
    ):
        await questions(Server(), served="other").model()


async def test_work_is_what_changes_with_each_step_and_nothing_where_the_server_does_not_tell() -> None:
    progress = tuple(line.encode() for line in METRICS.splitlines()[1:4])

    assert await questions(Server()).work() == Activity(progress)
    assert await questions(Server(metrics=(201, METRICS))).work() is None
    assert await questions(Server(metrics=(200, METRICS.replace("generation_tokens_total", "x")))).work() is None


@pytest.mark.parametrize(("statuses", "takes"), [((400, 422, 200), True), ((403, 404, 405, 501), False)])
async def test_endpoint_for_ids_is_there_if_it_complains_of_an_empty_request(
    statuses: tuple[int, ...], takes: bool
) -> None:
    for status in statuses:
        server = Server(generate=(status, {}))

        assert await questions(server).takes_ids() is takes, status
        assert server.asked == [("POST", "/inference/v1/generate", {})]


def harmony(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """A server that renders by itself, and reads the effort in the field of a chat alone."""
    if path != "/v1/chat/completions/render":
        return answers(path, body)
    known = {"low": 6, "high": 7}
    effort = body["reasoning_effort"]
    return (200, {"token_ids": [known[effort]]}) if effort in known else (400, {"error": {"message": "no such effort"}})


def template(path: str, body: dict[str, Any]) -> tuple[int, Any]:
    """One whose template reads it."""
    given = body.get("chat_template_kwargs", {}).get("reasoning_effort")
    return (200, {"tokens": [9]}) if given == "low" else harmony(path, body)


@pytest.mark.parametrize(
    ("server", "is_field"),
    [
        (Server(harmony), True),
        (Server(template), False),
        (Server(), False),
        (Server(render=(403, {"error": {"message": "disabled"}})), False),
        (Server(render=(503, "<html>")), False),
        (Server(render=(200, {"token_ids": [6]})), False),
        (Server(render=(200, {"tokens": [6]})), False),
    ],
)
async def test_effort_is_a_field_where_only_that_has_an_effect(server: Server, is_field: bool) -> None:
    assert await questions(server).takes_effort_as_field() is is_field


async def test_effort_that_is_a_field_is_rendered_and_one_that_is_not_known_has_no_effect() -> None:
    messages, tool = [{"role": "user", "content": "Hi"}], {"type": "function", "function": {"name": "f"}}
    server = Server(harmony)
    asked = questions(server)
    asked.effort_is_field = await asked.takes_effort_as_field()
    server.asked.clear()

    rendered = [
        await asked.rendered(messages, [tool], {"reasoning_effort": "low", "other": 1}),
        await asked.rendered(messages, (), {"reasoning_effort": "huge"}),
        await asked.rendered(messages),
    ]

    assert rendered == [[6], [3], [3]]
    path, body = server.asked[0][1:]
    assert path == "/v1/chat/completions/render"
    assert (body["messages"], body["tools"], body["tool_choice"]) == (messages, [tool], "none")
    assert (body["reasoning_effort"], body["chat_template_kwargs"]["other"]) == ("low", 1)


async def test_texts_are_tokenized_one_by_one_without_a_beginning() -> None:
    server = Server()

    assert await questions(server).tokenize_each(["a", "b"], specials=True) == [[8, 9], [8, 9]]
    assert [body for _, _, body in server.asked] == [{"prompt": each, "add_special_tokens": False} for each in "ab"]


@pytest.mark.parametrize("token", [-1, 2**32, "1", None, 1.5])
async def test_token_that_no_vocabulary_has_is_refused(token: object) -> None:
    with pytest.raises(EngineRefused, match="did not answer like vLLM"):
        await questions(Server(tokenize=(200, {"tokens": [token]}))).tokenize("a", specials=False)


@pytest.mark.parametrize("status", [404, 405])
async def test_server_without_embeddings_says_so(status: int) -> None:
    with pytest.raises(EngineRefused, match="makes no embeddings") as refused:
        await questions(Server(embeddings=(status, {}))).embed([[1]], None, None)

    assert refused.value.status == 501


async def test_rendering_asks_for_tools_and_options_only_where_there_are_some() -> None:
    server = Server()
    turn = {"role": "assistant", "content": "", "reasoning_content": "hm"}
    keeping = {"preserve_thinking": True, "clear_thinking": False, "truncate_history_thinking": False}
    await questions(server).rendered([turn])
    await questions(server, keep_reasoning=True).rendered([turn], [{"type": "function"}], {"clear_thinking": True})

    both = {**turn, "reasoning": "hm"}
    assert [body for _, _, body in server.asked] == [
        {"messages": [both]},
        {
            "messages": [both],
            "tools": [{"type": "function"}],
            "chat_template_kwargs": {**keeping, "clear_thinking": True},
        },
    ]
