"""What tool definitions cost: counted under the map, estimated without one, and told as a metric."""

import gc
import weakref
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from gateway.observe.metrics import Metrics
from gateway.proxy.costs import DefinitionCosts, definition_text
from gateway.proxy.naming import ToolEntry

DEFINITION = {"name": "echo", "description": "says it back", "inputSchema": {"type": "object"}, "x-vendor": "unread"}


def entry(name: str = "up__echo", server: str = "up", **more: Any) -> ToolEntry:
    return ToolEntry(name, server, "echo", {**DEFINITION, "name": name, **more})


class Counting:
    """A map that tells how often it was asked; a stand-in for the many seconds that a real one would take."""

    map_id = "sha256:00"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def encode(self, text: str) -> list[int]:
        self.asked.append(text)
        return list(range(len(text)))


def test_definition_is_written_as_a_chat_template_writes_it() -> None:
    assert definition_text(entry()) == (
        '{"type": "function", "function": {"name": "up__echo", "description": "says it back", '
        '"parameters": {"type": "object"}}}'
    )


def test_cost_is_the_number_of_ids_under_the_map(model_map) -> None:
    costs = DefinitionCosts(lambda: model_map)
    sums = costs.count([entry()])

    ids = model_map.encode(definition_text(entry()))
    assert sums == {"up": len(ids)}
    assert (costs.of(entry()).tokens, costs.of(entry()).estimated) == (len(ids), False)


def test_without_a_map_a_quarter_of_the_bytes_is_the_estimate() -> None:
    costs = DefinitionCosts(lambda: None)

    cost = costs.of(entry(description="ä"))

    assert cost.estimated
    assert cost.tokens == -(-len(definition_text(entry(description="ä")).encode()) // 4)


def test_definition_that_was_counted_is_not_written_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("gateway.proxy.costs.definition_text", lambda each: written.append(each.name) or "0123" * 9)
    one, token_map = entry(), None
    costs = DefinitionCosts(lambda: token_map)
    estimated = costs.of(one)
    token_map = Counting()
    costs.count([one])
    written.clear()
    counted = [costs.of(one) for _ in range(3)]

    assert (estimated.estimated, counted[0].estimated) == (True, False)
    assert written == []
    # Under another map it costs something else.
    token_map = None
    assert costs.of(one).estimated
    assert written == ["up__echo"]


def test_definition_that_was_made_for_a_request_is_not_kept() -> None:
    token_map = Counting()
    costs, marks = DefinitionCosts(lambda: token_map), Marks()
    costs.count([entry()])
    made = costs.of(entry(marks=marks))
    gone = weakref.ref(marks)
    del marks
    gc.collect()

    assert not made.estimated
    assert gone() is None


class Marks(dict[str, str]):
    """A value that can be watched."""


def test_definition_that_was_counted_is_not_counted_again() -> None:
    counting = Counting()
    costs = DefinitionCosts(lambda: counting)
    costs.count([entry(), entry("up__other")])
    costs.count([entry(), entry("up__other"), entry("up__third")])

    assert counting.asked == [definition_text(entry(name)) for name in ("up__echo", "up__other", "up__third")]


def test_definition_that_is_gone_is_forgotten() -> None:
    counting = Counting()
    costs = DefinitionCosts(lambda: counting)
    costs.count([entry()])
    costs.count([])

    assert costs.of(entry()).estimated


def test_very_long_definition_is_estimated_and_not_counted() -> None:
    counting = Counting()
    costs = DefinitionCosts(lambda: counting)

    sums = costs.count([entry(description="x" * 100_000)])

    assert counting.asked == []
    assert 25_000 < sums["up"] < 25_100


def test_half_a_surrogate_pair_costs_something_and_raises_nothing(model_map) -> None:
    assert DefinitionCosts(lambda: model_map).count([entry(description="\ud800")])["up"] > 10


def test_map_that_comes_later_replaces_the_estimate(model_map) -> None:
    maps = [None]
    costs = DefinitionCosts(lambda: maps[0])
    costs.count([entry()])
    maps[0] = model_map

    costs.count([entry()])

    assert not costs.of(entry()).estimated


@pytest.mark.anyio
async def test_metric_follows_the_tools(upstream, proxy_of, model_map) -> None:
    metrics, costs = Metrics(), DefinitionCosts(lambda: model_map)

    def told() -> float | None:
        return metrics.registry.get_sample_value("codec_tool_definition_tokens", {"server": "up"})

    counted: list[int] = []

    async def note() -> None:
        counted.append(sum(costs.sums.values()))

    async with proxy_of(upstream("echo")) as proxy, anyio.create_task_group() as tasks:
        tasks.start_soon(costs.follow, proxy, metrics.servers, note)
        expected = len(model_map.encode(definition_text(proxy.tools()[0])))
        with anyio.fail_after(20):
            while told() != expected:
                await anyio.lowlevel.checkpoint()
        proxy.stop()
        with anyio.fail_after(20):
            while told() is not None or counted[-1]:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    assert (counted[0], counted[-1]) == (expected, 0)
