"""The grammars on a real llama.cpp server: what comes out is always a call, whatever the model.

The suite's model has one layer and random weights, and writes odder texts than trained ones do. One child process
serves all tests of this module, on one thread; its slots generate side by side. Nearly every generation ends of itself:
the schemas of `TOOL_SETS` bound nearly all lengths, so that a text is some hundred characters long and the token limit
is not met. Only a tree has no bound, and a model may go down for ever: then the call is cut off. With a single seed
each format takes the next of the tool sets, and only every second format writes a whole call: those leave out no module
of `formats`. `TOOLCALL_SEEDS=20` (`make grammar-seeds`) writes calls of every format and tool set by the packaged
model, with so many seeds each, for half an hour.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import jsonschema
import pytest

from gateway.engine.embedded.packaged_model import packaged_model
from gateway.toolcalls.formats.format import Format, call_grammar
from gateway.toolcalls.formats.registry import format_named, format_names
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import CallClosed, Content, Diagnostic, Event
from leaf_sdk.vocab import TokenMap
from tests.gateway.toolcalls.gbnf_oracle import Gbnf
from tests.gateway.toolcalls.tool_sets import ANYTHING, MAP, TOOL_SETS
from tests.gateway.toolcalls.unconverted_schemas import CLASSES

pytestmark = [pytest.mark.anyio, pytest.mark.engine, pytest.mark.timeout(3600)]

SEEDS = range(1, 1 + int(os.environ.get("TOOLCALL_SEEDS", "1")))
ALL = len(SEEDS) > 1
"""Whether every format writes calls of all tool sets."""

SLOTS = len(TOOL_SETS)
LIMIT = 900
"""More tokens than any text of the bounded grammars has."""

ASK = "<|im_start|>user\nUse a tool.<|im_end|>\n<|im_start|>assistant\n"
GENERIC = format_named("generic")


@pytest.fixture(scope="module")
def address(one_layer: Path) -> Iterator[str]:
    place = {"host": "127.0.0.1", "port": 0}
    model = packaged_model() if ALL else one_layer
    settings = {"model": str(model), "context": 2048 * SLOTS, "slots": SLOTS, "threads": 1, **place}
    command = [sys.executable, "-m", "gateway.engine.embedded.child_process", json.dumps(settings)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout is not None
        yield child.stdout.readline().decode().strip()
        child.kill()


def prompt_for(grammar: str) -> str:
    """Short calls as examples: where the model writes a token that the grammar lacks, all others are looked at."""
    texts = Gbnf(grammar)
    samples = sorted((texts.sample(random.Random(seed)) for seed in range(12)), key=len)
    return "".join(f"{ASK}{sample}<|im_end|>\n" for sample in samples[3 : 5 if ALL else 4]) + ASK


TREES = "nested"
"""The tool set in which a schema refers to itself."""


class GoesOn(AssertionError):
    """A generation that has met the token limit."""

    def __init__(self, fmt: Format, told: dict[str, Any]) -> None:
        super().__init__(f"{fmt.name} goes on after {LIMIT} tokens: {told['content'][-200:]!r}")
        self.ids: list[int] = told["tokens"]


@dataclass(frozen=True)
class Writer:
    """The model under a grammar."""

    client: httpx2.AsyncClient
    token_map: TokenMap

    async def write(
        self,
        fmt: Format,
        tools: Sequence[ToolSpec],
        seed: int,
        *,
        slot: int = 0,
        choice: str = "required",
        parallel: bool = False,
    ) -> list[int]:
        """The ids of one generation, which has come to the grammar's end. Raises `GoesOn` for one that has not."""
        grammar = call_grammar(fmt, tools, choice=choice, parallel=parallel)
        request = {
            "prompt": self.token_map.encode(prompt_for(grammar), specials=True),
            "id_slot": slot,
            "n_predict": LIMIT,
            "grammar": grammar,
            "return_tokens": True,
            "temperature": 1.0,
            "seed": seed,
            "cache_prompt": True,
        }
        answer = await self.client.post("/completion", json=request)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        if told["stop_type"] != "eos":
            raise GoesOn(fmt, told)
        return [token_id for token_id in told["tokens"] if token_id not in self.token_map.special_ids]

    async def begin(self, grammar: str) -> None:
        """Take a grammar and write its first token."""
        request = {"prompt": ASK, "n_predict": 1, "grammar": grammar, "id_slot": 0}
        answer = await self.client.post("/completion", json=request)
        assert answer.status_code == 200, (answer.text, grammar[:500])

    def read(self, fmt: Format, tools: Sequence[ToolSpec], ids: Sequence[int]) -> list[Event]:
        """What the parser tells of it, id by id, as in a stream."""
        parser = parser_for(fmt, self.token_map, tools)
        return [event for token_id in ids for event in parser.feed([token_id])] + parser.close()


@pytest.fixture
async def writer(address: str, model_map: TokenMap) -> AsyncIterator[Writer]:
    async with httpx2.AsyncClient(base_url=address, timeout=600) as client:
        yield Writer(client, model_map)


def is_told(events: Sequence[Event]) -> bool:
    """Whether no call was made of what the limit has cut off, or of a tree that is deeper than parsers read."""
    kinds = [event.kind for event in events if isinstance(event, Diagnostic)]
    return kinds in (["truncated"], ["malformed"]) and not any(isinstance(event, CallClosed) for event in events)


def fault_of(events: Sequence[Event], tools: Sequence[ToolSpec]) -> str | None:
    """What is wrong with the one call that was to be made; None: nothing."""
    wrong = [event.message for event in events if isinstance(event, Diagnostic)]
    prose = "".join(event.text for event in events if isinstance(event, Content)).strip()
    calls = [event for event in events if isinstance(event, CallClosed)]
    if wrong or prose or len(calls) != 1:
        return f"{wrong}, {len(calls)} calls and {prose!r}"
    schemas = {tool.name: dict[str, Any](tool.parameters) for tool in tools}
    try:
        jsonschema.validate(json.loads(calls[0].arguments), schemas[calls[0].name])
    except (jsonschema.ValidationError, ValueError, KeyError) as error:
        return f"{calls[0].name}({calls[0].arguments}): {error!r}"
    return None


WRITERS = format_names() if ALL else format_names()[::2]


@pytest.mark.parametrize("name", WRITERS)
async def test_the_engine_takes_every_formats_grammar_and_what_it_writes_is_a_call_that_fits(
    writer: Writer, name: str
) -> None:
    fmt = format_named(name)
    faults: list[str] = []

    async def check(slot: int, tool_set: str) -> None:
        tools = TOOL_SETS[tool_set]
        for seed in SEEDS:
            try:
                ids = await writer.write(fmt, tools, seed, slot=slot)
            except GoesOn as cut:
                if tool_set != TREES or not is_told(writer.read(fmt, tools, cut.ids)):
                    faults.append(str(cut))
                continue
            if fault := fault_of(writer.read(fmt, tools, ids), tools):
                faults.append(f"{tool_set}, seed {seed}: {writer.token_map.decode(ids)!r}: {fault}")

    turn = WRITERS.index(name) % SLOTS
    async with anyio.create_task_group() as tasks:
        for slot, tool_set in enumerate(TOOL_SETS):
            if ALL or slot == turn:
                tasks.start_soon(check, slot, tool_set)
    assert faults == []


@pytest.mark.parametrize("name", [name for name in format_names() if name not in WRITERS])
async def test_the_engine_takes_the_grammars_of_the_other_formats(writer: Writer, name: str) -> None:
    for tools in TOOL_SETS.values():
        await writer.begin(call_grammar(format_named(name), tools, choice="required"))


@pytest.mark.parametrize("tools", [ANYTHING, MAP], ids=["anything", "map"])
async def test_a_schema_that_bounds_nothing_is_written_to_an_end(writer: Writer, tools: tuple[ToolSpec, ...]) -> None:
    # Nothing but the token limit bounds it, so a model may take its time: of several beginnings, one comes to its end.
    for seed in range(1, 20):
        try:
            ids = await writer.write(GENERIC, tools, seed)
        except GoesOn:
            continue
        assert fault_of(writer.read(GENERIC, tools, ids), tools) is None
        break
    else:
        pytest.fail("no generation ended")


DEAR = {
    "texts": {"type": "array", "items": {"type": "string", "minLength": 1}},
    "many": {"type": "array", "items": {"type": "string", "minLength": 2, "maxLength": 400}, "maxItems": 2000},
    "long": {"type": "string", "minLength": 3000, "maxLength": 100_000},
    "deep": {"type": "array", "minItems": 900, "items": {"type": "array", "minItems": 900, "items": {"const": 1}}},
    "codes": {
        "type": "array",
        "items": {"type": "string", "pattern": "^([A-Z]{2,900}-){1,900}[0-9]{3}$"},
        "maxItems": 900,
    },
    "whole": {"type": "integer", "minimum": -123456789, "maximum": 9876543210},
    "map": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 900}, "minProperties": 900},
    "wide": {"properties": {f"k{n}": {"type": "string", "maxLength": 999} for n in range(90)}, "minProperties": 5},
    "self": {"$ref": "#"},
    "choice": {"enum": [f"value {n}" for n in range(2_500)]},
}
"""Schemas that multiply in the engine's hands: it writes repetitions out, and refuses what comes to too much."""


@pytest.mark.parametrize("name", ["generic", "qwen3_coder", "gemma4", "minimax_m3", "olmo_3"])
async def test_no_schema_makes_a_grammar_that_the_engine_refuses(writer: Writer, name: str) -> None:
    tools = [
        ToolSpec(key, "", {"type": "object", "properties": {key: value}, "required": [key]})
        for key, value in DEAR.items()
    ]
    tools.append(ToolSpec("all", "", {"type": "object", "properties": DEAR}))
    grammars = [call_grammar(format_named(name), [tool], choice="required") for tool in tools]
    # Of so many tools, the grammars of the other formats here are shorter, or as long and of the same parts.
    times = 20 if ALL or name in ("generic", "gemma4") else 1
    grammars.append(call_grammar(format_named(name), [*tools * times], choice="required", parallel=True))
    for grammar in grammars:
        await writer.begin(grammar)


@pytest.mark.parametrize("name", ["generic", "qwen3_coder", "gemma4"])
@pytest.mark.parametrize("kind", CLASSES)
async def test_calls_can_be_required_under_schemas_that_the_engine_can_not_convert(
    writer: Writer, kind: str, name: str
) -> None:
    tools = [ToolSpec(f"f{number}", "", schema) for number, schema in enumerate(CLASSES[kind].values())]
    await writer.begin(call_grammar(format_named(name), tools, choice="required"))


async def test_a_call_s_ids_are_all_that_was_generated(writer: Writer) -> None:
    ids = await writer.write(GENERIC, TOOL_SETS["flat"], 1)
    (call,) = [event for event in writer.read(GENERIC, TOOL_SETS["flat"], ids) if isinstance(event, CallClosed)]
    assert call.ids == tuple(ids)


async def test_a_named_choice_calls_that_tool(writer: Writer) -> None:
    ids = await writer.write(GENERIC, TOOL_SETS["flat"], 5, choice="now")
    calls = [event for event in writer.read(GENERIC, TOOL_SETS["flat"], ids) if isinstance(event, CallClosed)]
    assert [(call.name, call.arguments) for call in calls] == [("now", "{}")]


async def test_parallel_calls_are_whole_and_counted(writer: Writer) -> None:
    ids = await writer.write(GENERIC, TOOL_SETS["flat"], 3, parallel=True)
    events = writer.read(GENERIC, TOOL_SETS["flat"], ids)
    calls = [event for event in events if isinstance(event, CallClosed)]
    assert [event for event in events if isinstance(event, Diagnostic)] == []
    assert 1 <= len(calls) <= 16
    assert [call.index for call in calls] == list(range(len(calls)))


def test_markers_begin_and_end_inside_the_model_s_own_tokens(model_map: TokenMap) -> None:
    ids = model_map.encode('Sure. <tool_call>\n{"name": "now"}\n</tool_call>" is how.')
    parser = parser_for(GENERIC, model_map, TOOL_SETS["flat"])
    events = [event for token_id in ids for event in parser.feed([token_id])] + parser.close()
    (call,) = [event for event in events if isinstance(event, CallClosed)]
    assert model_map.decode(call.ids) == ' <tool_call>\n{"name": "now"}\n</tool_call>"'
    assert "".join(event.text for event in events if isinstance(event, Content)) == 'Sure. " is how.'
