"""A conversation that is summed up with the real engine: what that costs, and what is found again behind it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import anthropic
import openai
import pytest

from gateway.context.history.shortening import INSTRUCTION

pytestmark = pytest.mark.engine

FACTS = " ".join(f"Room {n} holds {n * 37 % 91} boxes." for n in range(50))
TAIL = 100
"""Tokens that may be processed again besides the instruction."""


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory,
    run_gateway: Callable[..., AbstractContextManager[Any]],
    engine_flags: list[str],
) -> Iterator[Any]:
    """One with a small context, in which a summary is short."""
    env = {"CODEC_GATEWAY_ENGINE__CONTEXT": "2048"}
    with run_gateway(tmp_path_factory.mktemp("small"), {}, *engine_flags, env=env) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def client(site: Any) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=site.url, auth_token="none", api_key=None, max_retries=0, timeout=240) as client:
        yield client


def test_summary_costs_its_instruction_and_all_later_turns_find_what_is_held(client: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {
        "model": "any",
        "max_tokens": 20,
        "system": "You count boxes.",
        "tool_choice": {"type": "none"},
    }
    talk: list[dict[str, Any]] = [{"role": "user", "content": f"Remember: {FACTS}"}]
    empty, words = (
        client.messages.count_tokens(model="any", system=asked["system"], messages=[{"role": "user", "content": text}])
        for text in ("", INSTRUCTION)
    )
    edit = {"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 400}}
    managed = {"extra_body": {"context_management": {"edits": [edit]}}}

    def said(question: str, **more: Any) -> Any:
        message = client.beta.messages.create(**asked, messages=talk, **more)
        content = [block.model_dump(exclude_none=True) for block in message.content]
        talk.extend([{"role": "assistant", "content": content}, {"role": "user", "content": question}])
        return message

    said("How many are in room 7?")
    summed = said("And in room 8?", **managed)
    # The summary is sampled, and may itself be longer than the threshold.
    later = [said(f"And in room {n}?") for n in (9, 10, 11)]

    spent = summed.codec["compaction"]
    assert spent["prompt"] > 400
    assert spent["prompt"] - spent["cached"] <= words.input_tokens - empty.input_tokens + TAIL
    assert summed.content[0].type == "compaction"
    read = summed.usage.input_tokens + summed.usage.cache_read_input_tokens
    assert read <= empty.input_tokens + spent["summary"] + TAIL
    for message in later:
        turn = message.codec["turns"][0]
        assert turn["cache_n"] == turn["held"] > 0


def test_conversation_of_stored_responses_is_summed_up_and_followed(site: Any) -> None:
    with site.client() as chat:
        asked: dict[str, Any] = {"model": "any", "max_output_tokens": 20, "tool_choice": "none"}
        first = chat.responses.create(**asked, input=f"Remember: {FACTS}")
        managed: Any = [{"type": "compaction", "compact_threshold": 400}]
        second = chat.responses.create(
            **asked, input="How many are in room 7?", previous_response_id=first.id, context_management=managed
        )
        third = chat.responses.create(**asked, input="And in room 8?", previous_response_id=second.id)

    assert second.output[0].type == "compaction"
    turn = told(third)["turns"][0]
    assert turn["cache_n"] == turn["held"] > 0


def told(response: openai.types.responses.Response) -> dict[str, Any]:
    return (response.model_extra or {})["codec"]
