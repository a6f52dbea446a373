"""`engine.reasoning`: what the model thought in earlier turns, on llama.cpp's own renderer."""

from collections.abc import Callable

import pytest

from gateway.engine.wire.llama_cpp_client import LlamaCpp

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

LIVED = [
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "Two.", "reasoning_content": "They count."},
    {"role": "user", "content": "Three?"},
]


@pytest.mark.parametrize("kept", [False, True])
async def test_template_with_a_switch_shows_earlier_reasoning_where_it_is_told_to(
    serve_template: Callable[[str], str], kept: bool
) -> None:
    client = LlamaCpp(serve_template("GLM-4.7-Flash"), keep_reasoning=kept)
    try:
        shown = await client.apply_template(LIVED)
    finally:
        await client.aclose()
    assert ("They count." in shown) == kept
