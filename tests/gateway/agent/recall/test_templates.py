"""The law of recall over the chat templates of llama.cpp's set: a conversation goes on with the ids it was lived with.

What a prompt must be is computed here apart from the code: the engine renders the messages as they were lived (the late
system messages as the user's, where it does not show them in their places), and each turn of the model that stands in
this rendering, in the template's JSON or in the model's, is replaced by its ids.
"""

import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from gateway.config import LimitsConfig
from gateway.context.compose.conversation import Conversation
from gateway.context.shared_conversations import SharedMemory
from gateway.engine.interface import shared_prefix
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import TemplateRefused
from leaf_sdk.vocab import TokenMap
from tests.standins.redis_in_memory import Memory
from tests.standins.shared import SECRET, Direct, shared_in_memory

from .talk import Step, Talk, TalkOfReplicas, Wrote, compact, wide

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

ALL = sorted(path.stem for path in (Path(__file__).parents[3] / "third_party" / "chat_templates").glob("*.jinja"))
SOME = [
    *("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "GigaChat3-10B-A1.8B", "Kimi-K2-Thinking", "Qwen-Qwen3-0.6B"),
    *("Qwen3.5-4B", "deepseek-ai-DeepSeek-V3.1", "inclusionai-ling-3.0-flash", "meta-llama-Llama-3.2-3B-Instruct"),
    *("mistralai-Ministral-3-14B-Reasoning-2512", "openai-gpt-oss-120b", "poolside-Laguna-XS.2"),
]
TEMPLATES = ALL if "CODEC_ALL_MARKERS" in os.environ else SOME
CALL_ID = r',\s*"id":\s*"\w+"'
"""What some templates show of a call once there are results."""
WEATHER, FILES = "get_weather", "list_files"
CASES = {
    "chat": [Step("So the first."), Step("Then the next."), Step("And the last.")],
    "chat, thinking": [
        *(Step("So the first.", "I think the sky"), Step("Then the next.", "I guess the sea")),
        Step("And the last.", "Other matters"),
    ],
    "loop": [
        Step(calls=((WEATHER, "the Bern"),)),
        *(Step("Let me see the next.", calls=((FILES, "the Rome"),)), Step("And the last."), Step("End of the day.")),
    ],
    "loop, thinking": [
        *(Step("", "I think the sky", ((WEATHER, "the Bern"),)), Step("", "I guess the sea", ((WEATHER, "the Rome"),))),
        *(Step("And the last.", "Now the hill"), Step("End of the day.", "Other matters")),
    ],
    "two calls": [
        *(Step(calls=((WEATHER, "the Bern"), (FILES, "the Rome"))), Step("And the last."), Step("End of the day.")),
    ],
    "late system message": [Step("So the first."), Step("Then the next.")],
}


REWRITES = {
    name: set(cases)
    for cases, names in {
        ("chat", "loop", "next question", "late system"): [
            "Apriel-1.6-15b-Thinker-fixed",
            "CohereForAI-c4ai-command-r-plus-tool_use",
            "NVIDIA-Nemotron-Nano-v2",
            "Qwen-QwQ-32B",
            "google-translategemma-4b-it",
            "llama-cpp-deepseek-r1",
            "llama-cpp-rwkv-world",
        ],
        ("late system",): [
            "Bielik-11B-v3.0-Instruct",
            "Cohere2MoE",
            "Spark2.5",
            "google-gemma-2-2b-it",
            "mistralai-Ministral-3-14B-Reasoning-2512",
            "muse-glimmer",
            "poolside-Laguna-XS-2.1",
            "poolside-Laguna-XS.2",
            "unsloth-Apriel-1.5",
        ],
        ("chat", "next question"): ["GLM-4.6", "LFM2.5-8B-A1B"],
        ("chat", "next question", "late system"): [
            "GLM-4.7-Flash",
            "MiniMax-M2",
            "Mistral-Small-3.2-24B-Instruct-2506",
            "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
            "Qwen-Qwen3-0.6B",
            "Qwen3.5-4B",
            "Reka-Edge",
            "StepFun3.5-Flash",
            "deepseek-ai-DeepSeek-V3.2",
            "mistralai-Mistral-Nemo-Instruct-2407",
            "openbmb-MiniCPM5-1B",
        ],
        ("next question",): [
            "Kimi-K2-Thinking",
            "google-gemma-4-31B-it",
            "google-gemma-4-31B-it-interleaved",
            "openai-gpt-oss-120b",
        ],
        ("loop",): ["LFM2-8B-A1B", "LFM2.5-Instruct", "ibm-granite-granite-3.3-2B-Instruct"],
        ("loop", "next question"): [
            "Apertus-8B-Instruct",
            "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
            "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
        ],
        ("chat", "loop", "late system"): [
            "deepseek-ai-DeepSeek-R1-Distill-Llama-8B",
            "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
        ],
    }.items()
    for name in names
}
"""Where a template writes anew what stood there: in a chat with reasoning, in a loop, behind one, or for a late system
text."""


@pytest.fixture(scope="module", params=TEMPLATES)
def served(request: pytest.FixtureRequest, serve_template: Callable[[str], str]) -> tuple[str, str]:
    return request.param, serve_template(request.param)


@pytest.fixture
async def engine(served: tuple[str, str]) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(served[1])
    yield client
    await client.aclose()


def plain(text: str) -> str:
    """A text without blanks, and without ids of calls, which some templates show once there are results."""
    bare = re.sub(r"\s", "", re.sub(CALL_ID, "", text))
    # Where a turn was written in a call's plain form, each call is a list.
    return bare.replace("]</tool_calls><tool_calls>[", ",")


def place_of(wrote: Wrote, rendering: str, at: int) -> tuple[int, int] | None:
    """Where a rendering shows a turn whole, in the template's style or the model's, whatever blanks are in it."""
    for text in (wrote.shown, wrote.text):
        if (start := rendering.find(text, at)) >= 0:
            return start, start + len(text)
    for text in (wrote.shown, wrote.text):
        signs = r"\s*".join(map(re.escape, "".join(text.split()))).replace(r"\}", rf"(?:{CALL_ID})?\s*\}}")
        if found := re.compile(signs).search(rendering, at):
            return found.span()
    return None


def check_law(talk: Talk, prompt: list[int], rendering: str) -> None:
    """Hold a prompt against the engine's rendering of the same messages."""
    expected: list[int] = []
    text, at, exact, missing = "", 0, True, False
    rest = list(prompt)
    for _, wrote in sorted(talk.wrote.items()):
        if (place := place_of(wrote, rendering, at)) is None:
            exact, missing = False, True
            continue
        start, end = place
        exact = exact and rendering[start:end] in (wrote.shown, wrote.text)
        expected += [*talk.own_ids(rendering[at:start]), *wrote.ids]
        text += rendering[at:start] + wrote.text
        at = end
        # The turn stands whole in the prompt, in its own ids.
        stands = next(n for n in range(len(rest)) if rest[n : n + len(wrote.ids)] == wrote.ids)
        before = rest[:stands]
        assert missing or before == talk.own_ids(talk.map.decode(before))
        rest = rest[stands + len(wrote.ids) :]
    expected += talk.own_ids(rendering[at:])
    assert plain(talk.map.decode(prompt)) == plain(text + rendering[at:])
    assert not exact or prompt == expected


async def requests(talk: Talk, case: str, *, lost: bool) -> AsyncIterator[Conversation]:
    """The requests of a scripted conversation behind the first one."""
    talk.restart()
    new = [{"role": "user", "content": "What is the matter?"}]
    for number, step in enumerate(CASES[case]):
        if number and case == "late system message":
            new.insert(0, {"role": "system", "content": "Be the best."})
        try:
            conversation = await talk.ask(*new)
        except TemplateRefused:
            return
        if number:
            yield conversation
        new = await talk.answer(conversation, step, lost=lost) or [{"role": "user", "content": f"And the {number}?"}]


WAYS = [(False, compact), (True, wide), (False, wide), (True, compact)]


@pytest.mark.parametrize(
    ("lost", "style"),
    WAYS if "CODEC_ALL_MARKERS" in os.environ else WAYS[:2],
    ids=lambda each: {False: "reasoning sent", True: "reasoning lost"}.get(each) or each.__name__,
)
@pytest.mark.parametrize("case", CASES)
async def test_prompt_is_the_rendering_of_what_was_lived_with_the_ids_of_the_model(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap, case: str, lost: bool, style: Callable[[str], str]
) -> None:
    talk = Talk(engine, await engine.facts(), markers_map, style)
    async for conversation in requests(talk, case, lost=lost):
        check_law(talk, conversation.ids, await talk.rendering(talk.lived))


@pytest.mark.parametrize("case", CASES)
async def test_prompt_is_the_same_whichever_replica_is_asked(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap, case: str
) -> None:
    talk = TalkOfReplicas(engine, await engine.facts(), markers_map)
    store = Direct(Memory())
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(shared_in_memory(store)) for _ in range(3)]
        talk.share(*(SharedMemory(each, [SECRET], LimitsConfig(), 60.0) for each in stores))
        async for conversation in requests(talk, case, lost=False):
            check_law(talk, conversation.ids, await talk.rendering(talk.lived))
            assert (conversation.continuation.before is not None) == (len(talk.wrote) > 0)


@pytest.mark.parametrize("lost", [False, True], ids=["reasoning sent", "reasoning lost"])
async def test_all_that_is_held_is_used_where_the_template_only_appends(
    engine: LlamaCpp, served: tuple[str, str], markers_map: TokenMap, lost: bool
) -> None:
    talk = Talk(engine, await engine.facts(), markers_map)
    full: dict[str, list[bool]] = {}
    for case in ("chat, thinking", "loop, thinking", "late system message"):
        full[case] = [
            shared_prefix(talk.held, conversation.ids) == len(talk.held)
            async for conversation in requests(talk, case, lost=lost)
        ]
    chat, (*loop, behind), system = full.values()
    appends = {"chat": all(chat), "loop": all(loop), "next question": behind, "late system": system == [True]}

    assert {case for case, whole in appends.items() if not whole} == REWRITES.get(served[0], set())
