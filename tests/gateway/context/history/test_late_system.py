"""System messages behind the beginning: every template shows them, where they stand."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest

from gateway.context.history.template_messages import in_their_places, merged
from gateway.engine.interface import EngineFacts
from gateway.engine.rendering.template import ChatTemplate
from gateway.errors import EngineRefused
from leaf_sdk.testing import tiny_map

TINY = tiny_map()
FACTS = EngineFacts("scripted", None, "", True, len(TINY), 4000, 1, ())
TALK = [("system", "A"), ("system", "B"), ("user", "askeda"), ("system", "latea"), ("assistant", "saida")]
MORE = [*TALK, ("user", "askedb"), ("system", "lateb"), ("system", "latec")]


def messages(*turns: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"role": role, "content": words} for role, words in turns]


def told(found: Any) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in found]


def test_late_system_message_stands_at_the_end_of_the_one_before_it() -> None:
    assert told(merged(messages(*MORE))) == [
        ("system", "A"),
        ("system", "B"),
        ("user", "askeda\n\nlatea"),
        ("assistant", "saida"),
        ("user", "askedb\n\nlateb\n\nlatec"),
    ]


def test_behind_a_result_it_stands_with_the_result_and_behind_an_answer_alone() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "42"}
    given = [*messages(("user", "a"), ("assistant", "b")), result, *messages(("system", "c"), ("assistant", "d"))]

    found = merged([*given, *messages(("system", "e"))])

    assert found[2] == {**result, "content": "42\n\nc"}
    assert told(found[3:]) == [("assistant", "d"), ("user", "e")]
    assert result["content"] == "42"


def test_what_came_before_never_changes_with_what_comes() -> None:
    whole = merged(messages(*MORE))
    assert told(merged(messages(*TALK))) == told(whole)[:4]


@pytest.mark.anyio
async def test_template_is_asked_once_and_only_where_there_is_such_a_message() -> None:
    asked: list[Any] = []

    async def drops(turns: Any, tools: Any = ()) -> str:
        asked.append(turns)
        return "".join(turn["content"] for turn in turns if turn["role"] != "system")

    template = ChatTemplate(cast("Any", SimpleNamespace(apply_template=drops)), FACTS, TINY)
    plain = messages(("system", "A"), ("system", "B"), ("user", "C"))

    assert await in_their_places(plain, template) is plain
    assert asked == []
    for _ in range(2):
        assert told(await in_their_places(messages(*MORE), template))[2] == ("user", "askeda\n\nlatea")
    assert len(asked) == 1


@pytest.mark.anyio
@pytest.mark.engine
@pytest.mark.parametrize(
    "name",
    [
        *("Qwen3.5-4B", "openai-gpt-oss-120b", "deepseek-ai-DeepSeek-V3.1", "Qwen-Qwen3-0.6B", "MiniMax-M2"),
        *("mistralai-Ministral-3-14B-Reasoning-2512", "google-gemma-2-2b-it"),
    ],
)
async def test_real_templates_show_each_word_once_and_in_order(serve_template: Callable[[str], str], name: str) -> None:
    url = serve_template(name)

    async def apply_template(turns: Any, tools: Any = ()) -> str:
        answer = httpx2.post(f"{url}/apply-template", json={"messages": turns}, timeout=60)
        if answer.status_code != 200:
            raise EngineRefused("no", answer.status_code)
        return answer.json()["prompt"]

    template = ChatTemplate(cast("Any", SimpleNamespace(apply_template=apply_template)), FACTS, TINY)
    talk = messages(
        ("user", "askeda"), ("system", "latea"), ("assistant", "saida"), ("user", "askedb"), ("system", "lateb")
    )

    text = await apply_template(await in_their_places(talk, template))

    places = [text.find(word) for word in ("askeda", "latea", "saida", "askedb", "lateb")]
    assert places == sorted(places)
    assert -1 not in places
