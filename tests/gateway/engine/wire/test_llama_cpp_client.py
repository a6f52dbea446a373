"""The client of a real llama.cpp server: ids in, ids out, errors named."""

from collections.abc import AsyncIterator

import anyio
import pytest

from gateway.engine.interface import GenerateRequest, Sampling
from gateway.engine.wire.llama_cpp_client import LlamaCpp
from gateway.errors import EngineRefused
from leaf_sdk.vocab import TokenMap
from tests.gateway.engine.engines import collect

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

PROMPT = [1, 520, 198]
TORTURE = "Zürich 東京 😀 ok\n"


@pytest.fixture
async def engine(trained_engine_url: str, model_map: TokenMap) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(trained_engine_url, token_map=model_map)
    yield client
    await client.aclose()


def forced(text: str, *, slot: int = 0, max_tokens: int = 64) -> GenerateRequest:
    escaped = text.replace("\n", "\\n")
    return GenerateRequest(PROMPT, slot, max_tokens, Sampling(temperature=0), grammar=f'root ::= "{escaped}"')


async def test_the_ids_we_hold_are_the_ids_in_the_engines_cache(engine: LlamaCpp, model_map: TokenMap) -> None:
    ids, end = await collect(engine, forced(TORTURE))

    assert end.ended_by == ids[-1]
    assert model_map.decode(ids[:-1]) == TORTURE
    assert len(ids) == end.timings.generated_n
    assert end.repaired == 5
    held = [*PROMPT, *ids[:-1]]
    _, after = await collect(engine, GenerateRequest([*held, 198, 198], 0, 1))
    assert after.timings.cache_n == len(held)


async def test_a_character_cut_off_by_the_length_limit_is_reported_as_missed(
    engine: LlamaCpp, model_map: TokenMap
) -> None:
    ids, end = await collect(engine, forced("Z 東京", max_tokens=4))

    assert end.reason == "length"
    assert end.ended_by is None
    assert end.missed == 4 - len(ids) > 0
    assert model_map.decode(ids) == "Z "


async def test_leaving_the_stream_frees_the_slot(engine: LlamaCpp) -> None:
    endless = GenerateRequest(PROMPT, 1, 4000, Sampling(temperature=0), grammar='root ::= "a"+')
    async with engine.generate(endless) as events:
        await anext(aiter(events))
    with anyio.fail_after(20):
        ids, _ = await collect(engine, forced("ok", slot=1))
    assert ids


async def test_facts_name_the_model_without_its_path(engine: LlamaCpp) -> None:
    facts = await engine.facts()

    assert facts.model == "SmolLM2-135M-Instruct.Q4_1"
    assert facts.slots == 2
    assert facts.context == 2048
    assert facts.vocabulary == 49152
    assert not facts.supports_tools
    assert "<|im_start|>" in facts.chat_template


async def test_the_engines_own_complaint_is_passed_on(engine: LlamaCpp) -> None:
    with pytest.raises(EngineRefused, match="invalid tokens") as refused:
        await collect(engine, GenerateRequest([1, 99_999_999], 0, 4))
    assert refused.value.status == 400


async def test_a_broken_grammar_is_refused_and_not_ignored(engine: LlamaCpp) -> None:
    with pytest.raises(EngineRefused, match="grammar"):
        await collect(engine, GenerateRequest(PROMPT, 0, 4, grammar="root ::= ("))
