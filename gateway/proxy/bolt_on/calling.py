"""A call to a bolt-on in the form that it understands, and its answer as an MCP tool result.

Where its tokenizer is accepted, the ids that the model wrote are sent as they are, or the arguments are encoded under
that map; the ids that come back are checked, and not decoded for callers that read ids. Where it is not accepted,
arguments and answer are text. Ids that a bolt-on may not send are refused here for every caller. Does no IO.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, Protocol, cast

from gateway.proxy.bolt_on.matching import Match, Miss
from gateway.proxy.result_parts import UnreadText
from gateway.proxy.results import WrittenIds, error_result
from gateway.proxy.transport.interface import NoAnswer, Unfit
from leaf_sdk.errors import CallInvalid
from leaf_sdk.leaf.bolt_on import CodecToolCall, CodecToolResult, Manifest
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.leaf.verify import check_ids
from leaf_sdk.vocab import TokenMap

Form = Literal["raw", "encoded", "text"]
"""How the arguments are sent: as the model's ids, as ids that were made here, or as text."""


class CallMetrics(Protocol):
    """Counts ids that are made, decoded and refused."""

    def shim_tokenized(self, map_id: str, *, ids: int, seconds: float) -> None:
        """Arguments were encoded into ids."""
        ...

    def shim_detokenized(self, map_id: str) -> None:
        """The ids of an answer were decoded."""
        ...

    def leaf_rejected(self, reason: str) -> None:
        """The ids of an answer were refused."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A call, ready to be sent."""

    call: CodecToolCall
    form: Form
    token_map: TokenMap | None
    """The map that the answer's ids belong to; None: the answer may contain no ids."""
    reads_ids: bool


def write_call(
    manifest: Manifest,
    verdict: Match | Miss,
    params: Mapping[str, Any],
    written: WrittenIds | None,
    number: int,
    metrics: CallMetrics,
) -> Outgoing:
    """Return the call that the `params` of a `tools/call` ask for.

    Raises:
        Unfit: the arguments can't be written as JSON, or the tool speaks the engines' dialect, which has no text, and
            none of its models fits an accepted map.
    """
    reads_ids = written is not None
    text = _written(params.get("arguments") or {})
    if isinstance(verdict, Miss):
        if not manifest.models[0].model_id:
            raise Unfit(f"the call was not sent: the tool answers only with ids, but {verdict.reason}")
        call = CodecToolCall(manifest.name, number, model_id="", arguments_json=text)
        return Outgoing(call, "text", None, reads_ids=False)
    binding, token_map = verdict.binding, verdict.token_map
    if not binding.model_id:
        call = CodecToolCall(
            manifest.name,
            number,
            arguments_json=text,
            tokenizer_hash=binding.tokenizer_hash,
            dialect="engine",
        )
        return Outgoing(call, "text", token_map, reads_ids)
    ids, form = _ids_for(manifest, written), cast("Form", "raw")
    if ids is None:
        began = perf_counter()
        ids, form = tuple(token_map.encode(text)), "encoded"
        metrics.shim_tokenized(token_map.map_id, ids=len(ids), seconds=perf_counter() - began)
    call = CodecToolCall(manifest.name, number, argument_ids=ids, model_id=binding.model_id)
    return Outgoing(call, form, token_map, reads_ids)


def read_answer(outgoing: Outgoing, body: bytes, metrics: CallMetrics) -> dict[str, Any]:
    """Return the answer as a CallToolResult.

    Raises:
        NoAnswer: it is not an answer to this call.
        Unfit: its ids may not be used.
    """
    try:
        answer = CodecToolResult.from_bytes(body)
    except CallInvalid as error:
        raise NoAnswer(f"its answer can't be read: {error.message}") from None
    if answer.call_id != outgoing.call.call_id:
        raise NoAnswer(f"its answer is for call {str(answer.call_id)[:40]!r}, expected {outgoing.call.call_id!r}")
    match answer.kind:
        case "tokens":
            return {"content": [_token_block(outgoing, answer.response_ids, metrics)]}
        case "text":
            return {"content": [{"type": "text", "text": answer.text}]}
        case "error":
            return error_result(answer.message if answer.code is None else f"{answer.message} ({answer.code})")


def _token_block(outgoing: Outgoing, ids: tuple[int, ...], metrics: CallMetrics) -> dict[str, Any] | UnreadText:
    token_map = outgoing.token_map
    if token_map is None:
        metrics.leaf_rejected("map")
        raise Unfit("it answered with ids, which belong to no map that this gateway accepts; expected text")
    if (rejection := check_ids(token_map, "", ids, "trust")) is not None:
        metrics.leaf_rejected(rejection.reason)
        raise Unfit(f"the ids in its answer are refused: {rejection.detail}")
    unread = UnreadText(token_map, ids, metrics.shim_detokenized)
    if outgoing.reads_ids:
        return unread
    return {"type": "text", "text": unread.text, "_meta": {CODEC_META_KEY: {"map_id": token_map.map_id, "ids": [*ids]}}}


def _ids_for(manifest: Manifest, written: WrittenIds | None) -> tuple[int, ...] | None:
    """The model's own ids if the tool can tell what they spell, else None."""
    if written is None:
        return None
    # The ids of a whole call include the tool's name as the model knows it; not every tool can tell it from arguments.
    return written.ids if written.name is None or manifest.reads_as_call(written.name) else None


def _written(arguments: object) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, separators=(", ", ": "))
        text.encode()
    except (ValueError, RecursionError) as error:
        raise Unfit(f"the call was not sent: its arguments can't be written as JSON ({error})") from None
    return text
