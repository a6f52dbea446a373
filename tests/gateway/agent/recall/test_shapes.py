"""A shape of conversation that its template was seen to append to is not rendered again, and gives the same ids.

Random conversations on real chat templates: what stands behind the held ids without a rendering is what a rendering of
all messages gives.
"""

import os
from collections.abc import AsyncIterator, Callable

import pytest
from anyio.from_thread import start_blocking_portal
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.context.history.client_messages import checked_messages
from gateway.engine.rendering.scaffold import Shapes
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import TemplateRefused
from leaf_sdk.vocab import TokenMap

from .talk import TOOLS, Step, Talk, wide
from .test_templates import ALL

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

SOME = [
    *("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Kimi-K2-Thinking", "Qwen-Qwen2.5-7B-Instruct", "Qwen3.5-4B"),
    *("deepseek-ai-DeepSeek-V3.1", "google-gemma-4-31B-it-interleaved", "meta-llama-Llama-3.2-3B-Instruct"),
    *("openai-gpt-oss-120b", "poolside-Laguna-XS.2"),
]
TEMPLATES = ALL if "CODEC_ALL_MARKERS" in os.environ else SOME
WORDS = ("", "So the first.", " Then\n\n", "été 東京 the", "<|im_end|> the <|end|>", '{"the": 1}')
values = st.sampled_from(("the Bern", "", 'say "the" \\ <tool_call>', "é\n2"))
calls = st.lists(st.tuples(st.sampled_from([tool.name for tool in TOOLS]), values), max_size=2)
steps = st.builds(Step, st.sampled_from(WORDS), st.sampled_from(("", "I think the sky", "Hm\n")), calls.map(tuple))
conversations = st.lists(st.tuples(steps, st.sampled_from(WORDS[1:]), st.booleans()), min_size=2, max_size=5)


class Unseen(Shapes):
    """Nothing is known of a template."""

    def appends(self, shape: tuple[str, ...]) -> None:
        """Nothing."""


@pytest.fixture(scope="module", params=TEMPLATES)
def url(request: pytest.FixtureRequest, serve_template: Callable[[str], str]) -> str:
    return serve_template(request.param)


@pytest.fixture
async def engine(url: str) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(url)
    yield client
    await client.aclose()


async def converse(talk: Talk, conversation: list[tuple[Step, str, bool]]) -> None:
    """Hold each request of a conversation against a rendering of all of it."""
    talk.restart()
    new = [{"role": "user", "content": "What is the matter?"}]
    for step, question, lost in conversation:
        try:
            asked = await talk.ask(*new)
        except TemplateRefused:
            return
        shapes = talk.ready.shapes
        object.__setattr__(talk.ready, "shapes", Unseen())
        whole = await talk.agent.open(checked_messages(talk.client), client_tools=TOOLS)
        object.__setattr__(talk.ready, "shapes", shapes)

        assert talk.map.decode(asked.ids) == talk.map.decode(whole.ids)
        assert asked.ids == whole.ids
        new = await talk.answer(asked, step, lost=lost) or [{"role": "user", "content": question}]


def test_what_is_appended_is_what_a_rendering_gives(url: str, markers_map: TokenMap) -> None:
    with start_blocking_portal() as portal:
        engine = LlamaCpp(url)
        talk = Talk(engine, portal.call(engine.facts), markers_map, wide)

        @given(conversations)
        @settings(max_examples=20 if TEMPLATES is ALL else 8)
        def run(conversation: list[tuple[Step, str, bool]]) -> None:
            portal.call(converse, talk, conversation)

        run()
        portal.call(engine.aclose)


@pytest.mark.parametrize(
    "url", ["Kimi-K2-Thinking", "Qwen-Qwen2.5-7B-Instruct", "Qwen3.5-4B", "openai-gpt-oss-120b"], indirect=True
)
async def test_second_conversation_of_a_shape_is_not_rendered(engine: LlamaCpp, markers_map: TokenMap) -> None:
    talk = Talk(engine, await engine.facts(), markers_map)
    counts: list[int] = []
    for word in ("first", "second"):
        talk.restart()
        new = [{"role": "user", "content": f"The {word} matter?"}]
        for place in ("the", "or"):
            step = Step("", "I think", (("get_weather", f"{place} {word}"),))
            before = talk.model.renderings
            asked = await talk.ask(*new)
            counts.append(talk.model.renderings - before)
            new = await talk.answer(asked, step)

    assert counts[1] > 0
    assert counts[3] == 0
