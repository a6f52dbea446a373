"""Agent events in the shape of Anthropic's API: typed events as they arrive, or one whole message.

`MessagesReply` is given each event once, collects the blocks of the message and returns the stream's events;
`completion()` is the same message, whole. What the shape has no place for goes under the additional key `codec`. A call
is shown when it is complete, unless its tool asks for the pieces (`eager_input_streaming`); one that a limit cuts is
the last block, with the members of its input that are whole. Pure: it knows no HTTP and no engine. Source: Anthropic's
API reference, "Streaming Messages".
"""

import json
import re
import secrets
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any, Final, Literal

from gateway.agent.events import AgentEvent, Compacted, Finished, GenerationFinished, ToolFinished
from gateway.context.memory import RequestFigures
from gateway.errors import ContextExceeded
from gateway.serve.generation.answers import ApiForm, Chunk
from gateway.serve.generation.codec_field import Account
from gateway.serve.http.error_answers import REQUEST_ID, anthropic_error, error_answer
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Reasoning,
)

# How Anthropic's API writes its streams, its errors, and the arguments of calls in a whole answer.


@dataclass(frozen=True, slots=True)
class Verbatim:
    """JSON as the model wrote it, copied into an answer without parsing it: `1000.0` and `1e3` stay as they are."""

    text: str


def form_of(request_id: str) -> ApiForm:
    """The form of the answer to the request with this id."""
    return ApiForm(
        refuse=partial(refused, request_id),
        names_events=True,
        write=written,
        headers={REQUEST_ID: request_id},
    )


def refused(request_id: str, error: Exception) -> tuple[int, Chunk]:
    """The status and the body of an error."""
    status, body = error_answer(error)
    message = body["error"]["message"]
    if isinstance(error, ContextExceeded):
        # Clients recognise by this wording that they have to shorten the conversation.
        message = f"prompt is too long: {error.tokens} tokens > {error.context} maximum; {message}"
    return anthropic_error(status, message, request_id)


def written(chunk: Chunk) -> bytes:
    """The JSON of an answer, with its `Verbatim` parts copied into it unchanged."""
    texts: dict[str, str] = {}

    def keep(part: Any) -> str:
        if not isinstance(part, Verbatim):
            raise TypeError(f"{type(part).__name__} has no place in an answer")
        mark = secrets.token_hex(16)
        texts[mark] = part.text
        return mark

    text = json.dumps(chunk, ensure_ascii=False, separators=(",", ":"), default=keep)
    # Nothing that a model or a tool wrote can contain a mark, which was drawn at random after it was written.
    for mark, part in texts.items():
        text = text.replace(f'"{mark}"', part, 1)
    return text.encode()


# Blocks of a message of Anthropic's API while their texts arrive in pieces. Pure.


@dataclass(slots=True)
class ReplyBlock:
    """A block of the message, whose text arrives in pieces."""

    head: Chunk
    key: str
    """The key that holds its text; "" for a block without text."""
    delta: str
    """The type of the deltas that carry its text."""
    pieces: list[str] = field(default_factory=list[str])

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)


def text_block() -> ReplyBlock:
    """A block of text."""
    return ReplyBlock({"type": "text", "text": ""}, "text", "text_delta")


def tool_block(kind: str, call_id: str, name: str) -> ReplyBlock:
    """A block of a call; its text is the input."""
    no_input: Chunk = {}
    return ReplyBlock({"type": kind, "id": call_id, "name": name, "input": no_input}, "input", "input_json_delta")


def signature_of(text: str) -> str:
    """The signature that clients keep with a thinking block and send back: a plain hash of its text, no secret."""
    return b64encode(sha256(text.encode("utf-8", "surrogatepass")).digest()).decode()


# The input of a call that a limit cut, as an object: its members that are whole.
#
# Takes the beginning of a JSON object's text and returns the text of an object. A member that the cut goes through is
# left out with its value: half a path or half a command is not what the model meant. Pure.

_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)


def whole_members(begun: str) -> str:
    """The object with the members that are whole, as they were written; `{}` where there are none."""
    depth, end = 0, 0
    for token in _TOKENS.finditer(begun):
        match token.group():
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if not depth:
                    return _valid(begun[: token.end()])
            case "," if depth == 1:
                end = token.start()
            case _:
                pass
    return _valid(f"{begun[:end]}}}")


def _valid(text: str) -> str:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    return text if isinstance(found, dict) else "{}"


Thinking = Literal["shown", "omitted", "hidden"]

_SEARCH_ID: Final = "srvtoolu_"
_GATEWAY: Final = "codec-gateway"
"""Server name shown for the gateway's own tools, such as its search for tools."""


@dataclass(frozen=True, slots=True)
class MessageOptions:
    """How a request wants its answer to be shown."""

    thinking: Thinking = "hidden"
    ran: bool = False
    """Whether calls that the gateway ran are shown, in their own blocks."""
    search: str | None = None
    """The name of the request's search for tools, whose calls are shown in their own blocks."""
    marked: bool = False
    """Whether the client asked for anything to be cached: processed ids are then counted as written to the cache."""
    eager: Callable[[str], bool] = lambda name: False
    """Returns whether a tool's arguments are shown piece by piece, before they are complete."""
    ignored: Sequence[str] = ()
    """Everything in the request that has no effect."""
    edits: Sequence[Chunk] | None = None
    """What was taken out of the context; None where the client did not ask for it."""


class MessagesReply:
    """The reply to one request."""

    def __init__(
        self,
        model: str,
        prompt: int,
        options: MessageOptions,
        *,
        request_id: str = "",
        server_of: Callable[[str], str | None] = lambda name: None,
        room: Callable[[], int] = lambda: 1,
    ) -> None:
        """Start a reply.

        `prompt`: how many ids the prompt has. `server_of` returns the server of a gateway's tool; `room`, how many ids
        still fit the context.
        """
        self._model = model
        self._id = f"msg_{secrets.token_hex(12)}"
        self._request_id = request_id
        self._prompt = prompt
        self._options = options
        self._server_of = server_of
        self._room = room
        self._account = Account(options.ignored)
        self._content: list[Chunk] = []
        self._open: ReplyBlock | None = None
        self._call: CallStarted | None = None
        """The call that is being written; None where there is none."""
        self._written: list[str] = []
        """The arguments of the last call so far."""
        self._cut: CallStarted | None = None
        """The last call, if the generation ended within it."""
        self._summary: Compacted | None = None
        """The summary that takes the place of the conversation's earlier part."""
        self._finished: Finished | None = None

    def begin(self) -> list[Chunk]:
        """The first event. How much was cached is not known yet: the last but one event has the final figures."""
        usage = self._usage(self._prompt, 0, 0)
        return [{"type": "message_start", "message": self._message([], None, None, usage)}]

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Events of the stream for an event of the agent."""
        match event:
            case Reasoning(text):
                return self._think(text)
            case Content(text):
                return self._write(text_block(), text)
            case CallStarted():
                return self._begin_call(event)
            case CallArguments(fragment=fragment):
                self._written.append(fragment)
                return self._add(fragment) if self._is_shown(self._call) else []
            case CallClosed():
                return self._end_call(event)
            case ToolFinished():
                self._account.add_result(event)
                return self._show_ran(event)
            case Diagnostic():
                self._account.add(event)
                return self._break_off(event) if event.index is not None else []
            case GenerationFinished() | RequestFigures() | Compacted():
                self._account.add(event)
                return self._show_summary(event) if isinstance(event, Compacted) else []
            case Finished():
                self._finished = event
                return self._end(event)
            case _:
                return []

    def completion(self) -> Chunk:
        """The whole message. Call it after feeding `Finished`."""
        finished = self._finished
        if finished is None:
            raise RuntimeError("completion() before the answer was finished")
        message = self._message(self._content, *self._stop(finished), self._used(finished))
        return {**message, **self._beside()}

    def fail(self, error: Exception) -> list[Chunk]:
        """The event that ends a stream after an error."""
        return [refused(self._request_id, error)[1]]

    def ping(self) -> list[Chunk]:
        """The API's own event for it."""
        return [{"type": "ping"}]

    def _message(self, content: list[Chunk], reason: str | None, stop: str | None, usage: Chunk) -> Chunk:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": stop,
            "usage": usage,
        }

    def _think(self, text: str) -> list[Chunk]:
        if self._options.thinking == "hidden":
            return []
        head = {"type": "thinking", "thinking": "", "signature": ""}
        return self._write(ReplyBlock(head, "thinking", "thinking_delta"), text)

    def _begin_call(self, call: CallStarted) -> list[Chunk]:
        self._call, self._cut, self._written = call, None, []
        return self._start(tool_block("tool_use", call.id, call.name)) if self._is_shown(call) else []

    def _is_shown(self, call: CallStarted | None) -> bool:
        """Whether the call is being shown piece by piece."""
        return call is not None and self._options.eager(call.name)

    def _end_call(self, call: CallClosed) -> list[Chunk]:
        shown, self._call = self._is_shown(self._call), None
        return self._close() if shown else self._whole(tool_block("tool_use", call.id, call.name), call.arguments)

    def _break_off(self, why: Diagnostic) -> list[Chunk]:
        """Drop the call that was being written: a stream can't take it back, but a whole message leaves it out."""
        call, self._call = self._call, None
        self._cut = call if why.kind == "truncated" else None
        if not self._is_shown(call):
            return []
        closing = self._close()
        self._content.pop()
        return closing

    def _show_cut(self, finished: Finished) -> list[Chunk]:
        """Show the call that a limit cut with the members of its input that are whole, as Anthropic's API does."""
        call = self._cut if finished.reason == "length" else None
        if call is None:
            return []
        chunks = self._whole(tool_block("tool_use", call.id, call.name), whole_members("".join(self._written)))
        return [] if self._is_shown(call) else chunks

    def _show_ran(self, event: ToolFinished) -> list[Chunk]:
        if event.name == self._options.search:
            return self._show_search(event)
        if not self._options.ran:
            return []
        call = tool_block("mcp_tool_use", event.call_id, event.name)
        call.head["server_name"] = self._server_of(event.name) or _GATEWAY
        chunks = self._whole(call, event.arguments)
        said = [{"type": "text", "text": event.text}]
        block = {
            "type": "mcp_tool_result",
            "tool_use_id": event.call_id,
            "is_error": event.is_error,
            "content": said,
        }
        return [*chunks, *self._start(ReplyBlock(block, "", "")), *self._close()]

    def _show_summary(self, event: Compacted) -> list[Chunk]:
        self._summary = event
        added = [{"type": "tool_addition", "tool": {"type": "tool_reference", "name": name}} for name in event.found]
        head: Chunk = {"type": "compaction", "content": None, **({"tool_changes": added} if added else {})}
        return self._whole(ReplyBlock(head, "content", "compaction_delta"), event.text)

    def _show_search(self, event: ToolFinished) -> list[Chunk]:
        call = tool_block("server_tool_use", f"{_SEARCH_ID}{event.call_id}", event.name)
        content: Chunk = {
            "type": "tool_search_tool_search_result",
            "tool_references": [{"type": "tool_reference", "tool_name": name} for name in event.found],
        }
        if event.is_error:
            content = {"type": "tool_search_tool_result_error", "error_code": "invalid_tool_input"}
        block = {"type": "tool_search_tool_result", "tool_use_id": call.head["id"], "content": content}
        return [*self._whole(call, event.arguments), *self._start(ReplyBlock(block, "", "")), *self._close()]

    def _write(self, block: ReplyBlock, text: str) -> list[Chunk]:
        """Add text to the open block if it is of the same kind as `block`; start `block` otherwise."""
        self._cut = None
        begun = self._open is not None and self._open.delta == block.delta
        return [*([] if begun else self._start(block)), *self._add(text)]

    def _whole(self, block: ReplyBlock, text: str) -> list[Chunk]:
        return [*self._start(block), *self._add(text), *self._close()]

    def _start(self, block: ReplyBlock) -> list[Chunk]:
        chunks = self._close()
        self._open = block
        return [*chunks, {"type": "content_block_start", "index": len(self._content), "content_block": block.head}]

    def _add(self, text: str) -> list[Chunk]:
        block = self._open
        if block is None or not text:
            return []
        block.pieces.append(text)
        if block.key == "thinking" and self._options.thinking == "omitted":
            return []
        key = "partial_json" if block.key == "input" else block.key
        return [self._delta({"type": block.delta, key: text})]

    def _close(self) -> list[Chunk]:
        """End the open block, and keep it for the whole message."""
        block = self._open
        if block is None:
            return []
        self._open = None
        chunks: list[Chunk] = []
        kept = dict(block.head)
        if block.key == "thinking":
            signature = signature_of(block.text)
            chunks = [self._delta({"type": "signature_delta", "signature": signature})]
            shown = "" if self._options.thinking == "omitted" else block.text
            kept |= {"thinking": shown, "signature": signature}
        elif block.key:
            kept[block.key] = Verbatim(block.text) if block.key == "input" else block.text or kept[block.key]
        chunks.append({"type": "content_block_stop", "index": len(self._content)})
        self._content.append(kept)
        return chunks

    def _delta(self, delta: Chunk) -> Chunk:
        return {"type": "content_block_delta", "index": len(self._content), "delta": delta}

    def _end(self, finished: Finished) -> list[Chunk]:
        chunks = [*self._close(), *self._show_cut(finished)]
        reason, stop = self._stop(finished)
        delta = {"stop_reason": reason, "stop_sequence": stop}
        last = {"type": "message_delta", "delta": delta, "usage": self._used(finished), **self._beside()}
        return [*chunks, last, {"type": "message_stop"}]

    def _beside(self) -> Chunk:
        """What the message's shape has no place for; and the edits of the context, where any were asked for."""
        made = self._options.edits
        edits = {} if made is None else {"context_management": {"applied_edits": [*made]}}
        return {**edits, "codec": self._account.codec()}

    def _stop(self, finished: Finished) -> tuple[str, str | None]:
        """Why the answer ended, and the stop sequence that ended it, if one did."""
        match finished.reason:
            case "tool_calls":
                return "tool_use", None
            case "length":
                return "max_tokens" if self._room() > 0 else "model_context_window_exceeded", None
            case "stop" if self._summary is not None and self._summary.ends:
                return "compaction", None
            case "stop":
                return ("end_turn", None) if finished.stop is None else ("stop_sequence", finished.stop)

    def _used(self, finished: Finished) -> Chunk:
        usage = self._usage(finished.prompt_ids - finished.cached_ids, finished.cached_ids, finished.completion_ids)
        told = {**usage, "output_tokens_details": {"thinking_tokens": finished.reasoning_ids}}
        summary = self._summary
        if summary is None:
            return told
        processed = summary.prompt_ids - summary.cached_ids
        spent = {"type": "compaction", **self._usage(processed, summary.cached_ids, summary.completion_ids)}
        return {**told, "iterations": [spent, *([] if summary.ends else [{"type": "message", **usage}])]}

    def _usage(self, processed: int, cached: int, written: int) -> Chunk:
        """Usage in the API's shape. The engine caches all that it processes: if `marked`, it is counted as cached."""
        marked = self._options.marked
        return {
            "input_tokens": 0 if marked else processed,
            "cache_creation_input_tokens": processed if marked else 0,
            "cache_read_input_tokens": cached,
            "output_tokens": written,
        }
