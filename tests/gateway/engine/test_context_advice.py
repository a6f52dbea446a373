"""A prompt that does not fit is answered with how its engine gets a larger context."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.config import EngineConfig
from gateway.engine.start.ready_engine import larger_context

EMBEDDED = EngineConfig(kind="embedded", context=8192, slots=2)


def advice(settings: EngineConfig, context: int) -> str:
    ready: Any = SimpleNamespace(settings=settings, facts=SimpleNamespace(context=context))
    return larger_context(ready)


def test_embedded_engine_s_context_is_shared_by_its_slots() -> None:
    assert "raise engine.context (now 8192), which is shared by engine.slots (now 2)" in advice(EMBEDDED, 4096)
    assert "engine.slots" not in advice(replace(EMBEDDED, slots=1), 8192)


def test_settings_are_not_named_where_the_model_takes_no_more() -> None:
    said = advice(replace(EMBEDDED, context=20_480), 8192)

    assert "model with a larger context" in said
    assert "engine.context" not in said


@pytest.mark.parametrize("option", ["llama-server -c", "vllm serve --max-model-len", "engine.context"])
def test_server_at_a_url_is_started_with_more(option: str) -> None:
    assert option in advice(EngineConfig(kind="url", url="http://127.0.0.1:8080"), 4096)
