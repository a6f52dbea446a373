"""A call to a bolt-on in the form that it understands, and its answer as a tool result of MCP.

Where its tokenizer is accepted, the ids that the model wrote go out as they are, or the arguments' text as ids of that
map; the ids that come back are checked and never decoded for readers of ids. Where it is not, the arguments go as text
and a text comes back. Ids that a bolt-on may not send are refused here, whoever asked. It opens nothing.
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
"""How the arguments go out: as the model's ids, as ids that were made here, as text."""


class CallMetrics(Protocol):
    """Counts ids that are made, read and refused."""

    def shim_tokenized(self, map_id: str, *, ids: int, seconds: float) -> None:
        """Ids were made of arguments."""
        ...

    def shim_detokenized(self, map_id: str) -> None:
        """Ids of an answer were read."""
        ...

    def leaf_rejected(self, reason: str) -> None:
        """Ids of an answer were refused."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A call, ready to be sent."""

    call: CodecToolCall
    form: Form
    token_map: TokenMap | None
    """The map that the answer's ids are of; None: it may have none."""
    reads_ids: bool


def write_call(
    manifest: Manifest,
    verdict: Match | Miss,
    params: Mapping[str, Any],
    written: WrittenIds | None,
    number: int,
    metrics: CallMetrics,
) -> Outgoing:
    """The call that `params` of `tools/call` ask for.

    Raises:
        Unfit: arguments that no JSON can say, or a tool of the engines' dialect without ids for us: it has no text.
    """
    reads_ids = written is not None
    text = _written(params.get("arguments") or {})
    if isinstance(verdict, Miss):
        if not manifest.models[0].model_id:
            raise Unfit(f"it was not asked: {verdict.reason}, and it can answer in ids only")
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
    """The answer as a CallToolResult.

    Raises:
        NoAnswer: it is no answer to this call.
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
        raise Unfit("its answer is ids of a map that is not accepted here, and was to be a text")
    if (rejection := check_ids(token_map, "", ids, "trust")) is not None:
        metrics.leaf_rejected(rejection.reason)
        raise Unfit(f"its answer is refused: {rejection.detail}")
    unread = UnreadText(token_map, ids, metrics.shim_detokenized)
    if outgoing.reads_ids:
        return unread
    return {"type": "text", "text": unread.text, "_meta": {CODEC_META_KEY: {"map_id": token_map.map_id, "ids": [*ids]}}}


def _ids_for(manifest: Manifest, written: WrittenIds | None) -> tuple[int, ...] | None:
    """The model's own ids, where the tool can tell what they spell."""
    if written is None:
        return None
    # A whole call names its tool as the model knows it, and a tool may be unable to tell that from arguments.
    return written.ids if written.name is None or manifest.reads_as_call(written.name) else None


def _written(arguments: object) -> str:
    try:
        text = json.dumps(arguments, ensure_ascii=False, separators=(", ", ": "))
        text.encode()
    except (ValueError, RecursionError) as error:
        raise Unfit(f"it was not asked: the arguments can't be written as JSON ({error})") from None
    return text
