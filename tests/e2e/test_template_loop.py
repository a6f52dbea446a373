"""The loop of a tool call with chat templates of other models, on llama.cpp's own server: what the model reads then.

Templates that open reasoning are held by `test_scaffold.py`: this model's weights are zero, and it never ends any.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from gateway.agent import AnswerOptions, ToolChoice
from gateway.agent.events import AgentEvent, IdsGenerated, IdsSpliced, ToolFinished
from gateway.app.services import open_services
from gateway.config import EngineConfig, GatewayConfig, LimitsConfig, TokensConfig, UpstreamConfig
from gateway.engine.interface import Sampling
from leaf_sdk.vocab import TokenMap

pytestmark = [pytest.mark.anyio, pytest.mark.engine]

QUESTION = [{"role": "user", "content": "What is it?"}]
SAID = {"google-gemma-4-31B-it-interleaved": '{"sky": ["blue", 4.0]}'}
"""What the tool says, where it is JSON: that template reads such results. Elsewhere it is a sentence."""
BEHIND_THE_CALL = {
    "openai-gpt-oss-120b": (
        '<|call|><|start|>functions.say to=assistant<|channel|>commentary<|message|>"{}"<|end|><|start|>assistant',
        'It is \\"42\\".',
    ),
    "google-gemma-4-31B-it": ('<|tool_response>response:say{{value:<|"|>{}<|"|>}}<tool_response|>', 'It is "42".'),
    "google-gemma-4-31B-it-interleaved": (
        "<|tool_response>response:say{}<tool_response|>",
        '{sky:[<|"|>blue<|"|>,4.0]}',
    ),
    "Kimi-K2-Instruct": (
        "<|tool_calls_section_end|><|im_end|><|im_system|>say<|im_middle|>## Return of functions.say:0\n"
        "{}<|im_end|><|im_assistant|>assistant<|im_middle|>",
        'It is "42".',
    ),
    "Mistral-Small-3.2-24B-Instruct-2506": ("<no_eos>[TOOL_RESULTS]ID[TOOL_CONTENT]{}[/TOOL_RESULTS]", 'It is "42".'),
    "Qwen3-Coder": (
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n{}\n</tool_response>\n<|im_end|>\n<|im_start|>assistant\n",
        'It is "42".',
    ),
}


@pytest.mark.parametrize("name", BEHIND_THE_CALL)
async def test_model_reads_a_result_as_its_template_writes_it(
    serve_template: Callable[[str], str], markers_model: Path, markers_map: TokenMap, says: Any, name: str
) -> None:
    server = says({"type": "text", "text": SAID.get(name, 'It is "42".')})
    upstream = UpstreamConfig(name="up", command=server["command"], args=tuple(server["args"]))
    engine = EngineConfig(kind="url", url=serve_template(name))
    tokens, limits = TokensConfig(map=str(markers_model)), LimitsConfig(turns=2)
    config = GatewayConfig(upstreams=(upstream,), engine=engine, tokens=tokens, limits=limits)
    told: list[AgentEvent] = []

    async def listen(event: AgentEvent) -> None:
        told.append(event)

    choice = ToolChoice.named("say")
    options = AnswerOptions(choice, 200, Sampling(temperature=0, seed=1), ids=True)
    with anyio.fail_after(60):
        async with open_services(config) as services:
            conversation = await services.agent.open(QUESTION, choice=choice)
            await services.agent.answer(conversation, options, listen)

    (call,) = [event for event in told if isinstance(event, ToolFinished)]
    (splice,) = [event for event in told if isinstance(event, IdsSpliced)]
    spliced = markers_map.decode(token_id for part in splice.parts for token_id in part.ids)
    at = told.index(splice)
    written = markers_map.decode(i for e in told[:at] if isinstance(e, IdsGenerated) for i in e.ids)
    frame, result = BEHIND_THE_CALL[name]
    assert json.loads(call.arguments) == {}
    # The template gets the model's own id, not the one that clients see.
    own_id = written.partition("[CALL_ID]")[2].partition("[")[0]
    assert (written + spliced).endswith(frame.format(result).replace("ID", own_id))
