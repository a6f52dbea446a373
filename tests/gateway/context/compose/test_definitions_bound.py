"""What looking for definitions costs: one walk through a text for each that it has, and few for missing ones."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.context.compose import id_sources
from gateway.context.compose.id_sources import Definitions
from gateway.context.history.template_messages import tool_definitions
from gateway.toolcalls.schema.spec import ToolSpec

TOOLS = [ToolSpec(f"tool{n}", 'Says "hi" [1], {2}.', {"type": "object"}) for n in range(300)]


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The definitions that were written to be looked for."""
    values: list[object] = []

    def dumps(value: object, **how: Any) -> str:
        values.append(value)
        return json.dumps(value, **how)

    monkeypatch.setattr(id_sources, "json", SimpleNamespace(dumps=dumps))
    return values


def spans_of(text: str) -> list[Any]:
    table = dict(enumerate(text[at : at + 3].encode() for at in range(0, len(text), 3)))
    return Definitions(TOOLS, SimpleNamespace(table=table), {}).spans(list(table), "system")  # type: ignore[arg-type]


def test_every_definition_is_looked_for_in_the_form_of_the_first(written: list[object]) -> None:
    text = "Tools: " + json.dumps([each["function"] for each in tool_definitions(TOOLS)])
    found = [span.tool for span in spans_of(text) if span.source == "tools"]

    assert found == [tool.name for tool in TOOLS]
    assert len(written) < len(TOOLS) + 10


def test_definitions_that_a_text_does_not_have_are_not_looked_for_without_end(written: list[object]) -> None:
    assert [span.source for span in spans_of("no definition here " * 50)] == ["system"]
    assert len(written) < 60
