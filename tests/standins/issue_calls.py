"""A format of calls for the packaged model, which has no tokens for any: two special tokens of its vocabulary stand in.

Made for tests of grammars that wait for a token. The model never writes these tokens of itself, so who wants a call
weighs the first of them.
"""

import json

from gateway.engine.interface import GenerateRequest, Sampling
from gateway.toolcalls.formats.format import CallTrigger, Format, call_grammar, call_triggers
from gateway.toolcalls.nodes.json_nodes import Json, QuotedName
from gateway.toolcalls.nodes.objects import Field, RecordNode
from gateway.toolcalls.nodes.passages import Prose
from gateway.toolcalls.nodes.readers import Marker, Seq, Space
from gateway.toolcalls.nodes.regions import CallNode, Calls, MarkedRegion
from gateway.toolcalls.parser import parser_for
from gateway.toolcalls.schema.spec import ToolSpec, validate_call
from gateway.toolcalls.stream.output_events import CallClosed, Diagnostic
from leaf_sdk.vocab import TokenMap

CLOCK = ToolSpec(
    "get_time", "", {"type": "object", "properties": {"tz": {"type": "string", "maxLength": 8}}, "required": ["tz"]}
)
_CALL = CallNode(RecordNode((Field(("name",), QuotedName()), Field(("arguments",), Json()))))
_REGION = MarkedRegion("<issue_start>", Space("\n"), _CALL, Space("\n"), Marker("<issue_closed>"))
ISSUES = Format("issues", Seq(Prose(_REGION)), Calls(_REGION, Space("\n")), "")
END = 2
"""The packaged model's end of turn."""


def start_of(token_map: TokenMap) -> int:
    """The token with which a call begins."""
    (trigger,) = call_triggers(ISSUES, token_map)
    return trigger.token_id


def shots(answer: str, token_map: TokenMap) -> list[int]:
    """A prompt after which a small model repeats `answer`, spelled in ordinary tokens."""
    ids: list[int] = []
    for zone in ("CET", "UTC", "PST", "EST"):
        ids += token_map.encode(f"<|im_start|>user\nTime in {zone}?<|im_end|>\n<|im_start|>assistant\n", specials=True)
        if zone != "EST":
            ids += [*token_map.encode(answer), END, *token_map.encode("\n")]
    return ids


def waiting(prompt: list[int], token_map: TokenMap, *, parallel: bool, begins: bool) -> GenerateRequest:
    """A generation that is free until a call begins; with `begins`, the model wants one."""
    triggers: tuple[CallTrigger, ...] = call_triggers(ISSUES, token_map)
    grammar = call_grammar(ISSUES, [CLOCK], choice="required", parallel=parallel, vocabulary=token_map)
    bias = ((start_of(token_map), 60.0),) if begins else ()
    sampling = Sampling(seed=1, logit_bias=bias) if begins else Sampling(temperature=0)
    return GenerateRequest(prompt, None, 150, sampling, grammar=grammar, triggers=triggers)


def calls_of(ids: list[int], token_map: TokenMap) -> list[CallClosed]:
    """The calls in what was generated, each of which fits its schema; the limit may cut another off."""
    parser = parser_for(ISSUES, token_map, [CLOCK])
    events = [*parser.feed(ids), *parser.close()]
    found = [event for event in events if isinstance(event, CallClosed)]
    kinds = {event.kind for event in events if isinstance(event, Diagnostic)}
    if kinds - {"truncated"}:
        raise AssertionError(f"no calls of the format: {kinds}")
    faults = [fault for call in found for fault in validate_call(CLOCK, json.loads(call.arguments))]
    if faults:
        raise AssertionError(f"arguments that their schema does not have: {faults}")
    return found
