"""Questions to a llama.cpp server: what is sent, and how its answers are read."""

import json
from typing import Any

import pytest

from gateway.engine.interface import Activity
from gateway.engine.wire.llama_cpp_client import LlamaCppQuestions
from gateway.errors import EngineRefused

pytestmark = pytest.mark.anyio
URL = "http://engine.test:8000"


class Server:
    """Gives the same answer to everything, and keeps what it was asked."""

    def __init__(self, answer: object, status: int = 200) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self._answer = answer
        self._status = status

    async def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        self.asked.append((method, path, json.loads(body) if body else None))
        return self._status, json.dumps(self._answer).encode()


def slot(number: int, busy: bool) -> dict[str, Any]:
    return {"id": number, "is_processing": busy}


@pytest.mark.parametrize(
    ("slots", "at_rest"),
    [
        ([slot(0, True), slot(1, False)], True),
        ([slot(0, False), slot(1, True)], False),
        ([slot(0, False)], False),
        ([], False),
    ],
)
async def test_slot_is_at_rest_if_the_server_says_so_of_this_one(slots: list[dict[str, Any]], at_rest: bool) -> None:
    server = Server(slots)

    assert await LlamaCppQuestions(URL, server).is_at_rest(1) is at_rest
    assert server.asked == [("GET", "/slots", None)]


async def test_work_is_that_of_the_busy_slots() -> None:
    figures = {"id_task": 7, "n_prompt_tokens_processed": 5, "next_token": [{"n_decoded": 0}]}

    assert await LlamaCppQuestions(URL, Server([{**slot(1, True), **figures}])).work() == Activity(
        ((1, 7, 5, 0),), prefills=True
    )
    assert await LlamaCppQuestions(URL, Server([slot(1, False)])).work() is None


@pytest.mark.parametrize(("status", "shows"), [(200, True), (501, False)])
async def test_server_shows_its_slots_or_refuses_to(status: int, shows: bool) -> None:
    assert await LlamaCppQuestions(URL, Server([], status)).shows_slots() is shows


async def test_slot_is_saved_restored_and_erased_by_its_number_and_the_files_name() -> None:
    figures = {"timings": {"save_ms": 5.0, "restore_ms": 7.0}}
    server = Server({**figures, "n_saved": 3, "n_written": 300, "n_restored": 4, "n_read": 400})
    questions = LlamaCppQuestions(URL, server)

    saved, restored = await questions.save_slot(1, "a"), await questions.restore_slot(2, "b")
    await questions.erase_slot(3)

    assert (saved.ids, saved.size, saved.seconds) == (3, 300, 0.005)
    assert (restored.ids, restored.size, restored.seconds) == (4, 400, 0.007)
    assert server.asked == [
        ("POST", "/slots/1?action=save", {"filename": "a"}),
        ("POST", "/slots/2?action=restore", {"filename": "b"}),
        ("POST", "/slots/3?action=erase", {}),
    ]


async def test_slot_is_filled_with_ids_and_nothing_is_generated() -> None:
    server = Server({"timings": {"prompt_n": 2, "prompt_ms": 8.0}})

    filled = await LlamaCppQuestions(URL, server).fill_slot(1, [5, 6, 7])

    assert (filled.ids, filled.seconds) == (2, 0.008)
    body = {"prompt": [5, 6, 7], "id_slot": 1, "n_predict": 0, "cache_prompt": True}
    assert server.asked == [("POST", "/completion", body)]


@pytest.mark.parametrize("specials", [True, False])
async def test_text_is_tokenized_without_what_the_server_puts_before_it(specials: bool) -> None:
    server = Server({"tokens": [0, 2**32 - 1]})

    assert await LlamaCppQuestions(URL, server).tokenize("ab", specials=specials) == [0, 2**32 - 1]
    assert server.asked == [("POST", "/tokenize", {"content": "ab", "add_special": False, "parse_special": specials})]


@pytest.mark.parametrize("token", [-2, 2**32, 1.0, True, "1", None])
async def test_token_that_no_vocabulary_has_is_refused(token: object) -> None:
    with pytest.raises(EngineRefused, match=URL):
        await LlamaCppQuestions(URL, Server({"tokens": [token]})).tokenize("ab", specials=False)


async def test_texts_are_told_apart_by_a_number_that_is_no_id() -> None:
    server = Server({"tokens": [5, -1, -1, 6, 7, -1]})

    assert await LlamaCppQuestions(URL, server).tokenize_each(["a", "", "bc"], specials=True) == [[5], [], [6, 7]]
    ((_, _, body),) = server.asked
    assert body["content"] == ["a", -1, "", -1, "bc", -1]


@pytest.mark.parametrize("tokens", [[5], [5, -1, 6, 7], [5, -1, 6, -1, 7], [5, -1, 6, -1, -1]])
async def test_texts_are_asked_for_one_by_one_where_the_number_does_not_come_back(tokens: list[int]) -> None:
    class Older(Server):
        async def __call__(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
            status, answer = await super().__call__(method, path, body)
            content = self.asked[-1][2]["content"]
            return status, answer if isinstance(content, list) else json.dumps({"tokens": [len(content)]}).encode()

    server = Older({"tokens": tokens})

    assert await LlamaCppQuestions(URL, server).tokenize_each(["a", "bc"], specials=True) == [[1], [2]]
    assert [body["content"] for _, _, body in server.asked] == [["a", -1, "bc", -1], "a", "bc"]


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("options", [None, {"enable_thinking": False}, {"preserve_reasoning": False}])
async def test_template_is_rendered_with_the_options_and_never_with_a_grammar_of_the_tools(
    keep: bool, options: dict[str, Any] | None
) -> None:
    server = Server({"prompt": "rendered"})
    questions = LlamaCppQuestions(URL, server, keep_reasoning=keep)
    messages = [{"role": "user", "content": "hi"}]
    tools = [{"type": "function"}]

    assert await questions.apply_template(messages, tools, options) == "rendered"
    assert await questions.apply_template(messages) == "rendered"

    kept = {"preserve_reasoning": True} if keep else {}
    with_tools, without = (body for _, _, body in server.asked)
    told = {**kept, **(options or {})}
    asked = {"messages": messages, "tools": tools, "tool_choice": "none"}
    assert with_tools == {**asked, **({"chat_template_kwargs": told} if told else {})}
    assert without == {"messages": messages, **({"chat_template_kwargs": kept} if kept else {})}
