"""What a request gets of a running engine: its template with options, and waits that end when the engine is lost."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from gateway.engine.start.ready_engine import Life, ReadyEngine
from gateway.errors import EngineUnavailable

pytestmark = pytest.mark.anyio


async def test_wait_for_an_engine_ends_with_its_answer_or_when_it_is_lost() -> None:
    life, ended = Life(), list[str]()

    async def answer() -> str:
        return "answer"

    async def wait() -> None:
        with pytest.raises(EngineUnavailable, match="the engine was lost before it answered; try again"):
            await life.wait(anyio.sleep_forever())
        ended.append("lost")

    assert await life.wait(answer()) == "answer"
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert ended == []
        life.end()
    assert ended == ["lost", "lost"]
    # Later waits end at once.
    with pytest.raises(EngineUnavailable):
        await life.wait(anyio.sleep_forever())


async def test_who_handles_an_event_is_not_interrupted_when_the_engine_is_lost() -> None:
    async def events() -> AsyncIterator[int]:
        yield 1
        yield 2
        await anyio.sleep_forever()

    life, seen = Life(), list[int]()

    async def handle() -> None:
        async for event in life.each(events()):
            if event == 2:
                life.end()
            await anyio.lowlevel.checkpoint()
            seen.append(event)

    with pytest.raises(EngineUnavailable):
        await handle()
    assert seen == [1, 2]

    async def few() -> AsyncIterator[int]:
        yield 1

    assert [event async for event in Life().each(few())] == [1]


class Template:
    """A template that takes some options."""

    def __init__(self, options: dict[str, int] | None = None) -> None:
        self.options = options or {}

    def with_options(self, options: dict[str, int]) -> "Template":
        return Template({name: value for name, value in options.items() if name != "unknown"})


def ready() -> ReadyEngine:
    other: Any = SimpleNamespace()
    template: Any = Template()
    return ReadyEngine(other, other, other, template, other, other)


def test_options_give_the_same_engine_with_another_template_whose_shapes_are_kept() -> None:
    plain = ready()
    one, two, again = (plain.with_options(each) for each in ({"a": 1, "b": 2}, {"a": 2}, {"b": 2, "a": 1}))

    assert plain.with_options({}) is plain.with_options({"unknown": 1}) is plain
    assert one.template.options == {"a": 1, "b": 2}
    assert (one.number, one.slots, one.life) == (plain.number, plain.slots, plain.life)
    assert again.template is one.template
    assert again.shapes is one.shapes is not plain.shapes
    assert two.shapes is not one.shapes
    assert ready().number > plain.number


def test_variants_that_were_asked_for_longest_ago_are_forgotten() -> None:
    plain = ready()
    first = plain.with_options({"a": 0})
    for number in range(1, 16):
        plain.with_options({"a": number})
    assert plain.with_options({"a": 0}).template is first.template
    second = plain.variants[repr([("a", 1)])]
    plain.with_options({"a": 16})

    assert len(plain.variants) == 16
    assert plain.with_options({"a": 0}).template is first.template
    assert plain.with_options({"a": 1}).shapes is not second[1]
