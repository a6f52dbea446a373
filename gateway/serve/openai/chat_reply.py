"""Agent events in OpenAI's shape: chunks as the events arrive, or one whole completion.

`ChatReply` is given each event once and returns the chunks for it; `completion()` is the same answer, whole. What
OpenAI's shape has no place for (where a result's ids came from, what the KV cache saved) goes under the additional key
`codec`; ids, where the client wants them, under vLLM's keys (`token_ids`, `prompt_token_ids`). Pure: it knows no HTTP
and no engine.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from gateway.agent.events import (
    AgentEvent,
    Compacted,
    ContentSampled,
    Finished,
    GenerationFinished,
    IdsGenerated,
    IdsSpliced,
    ToolFinished,
)
from gateway.context.memory import RequestFigures
from gateway.serve.generation.answers import ApiForm, Chunk, Reply
from gateway.serve.generation.codec_field import Account, Spell, logprob_entry
from gateway.serve.generation.tools_and_formats import input_of
from gateway.serve.http.error_answers import error_answer
from gateway.serve.http.request_parts import new_request_id
from gateway.toolcalls.stream.output_events import (
    CallArguments,
    CallClosed,
    CallStarted,
    Content,
    Diagnostic,
    Event,
    Reasoning,
    event_delta,
)

# The shapes of calls in a chat completion: of functions, of free-form tools, and the old one of an answer's only call.
#
# The input of a free-form tool is known only when the call is whole: until then the model writes JSON that encodes it.
# Source: OpenAI's API reference, "Create chat completion" (`custom` tools; `functions` and `function_call`). Pure.

_OLD_REASONS: Final = {"tool_calls": "function_call"}


class CallShapes:
    """How the calls of one answer are shown."""

    def __init__(self, free_form: Collection[str] = (), *, old: bool = False) -> None:
        """`free_form`: names of the client's free-form tools. `old`: the client sent `functions`."""
        self._free_form = free_form
        self._old = old
        self._open: set[int] = set()
        """Calls of free-form tools that are not whole yet."""

    def delta(self, event: Event) -> Chunk | None:
        """An event's delta; None for one that has none."""
        match event:
            case CallStarted(name=name) if self._old:
                return {"function_call": {"name": name, "arguments": ""}}
            case CallArguments(fragment=fragment) if self._old:
                return {"function_call": {"arguments": fragment}}
            case CallStarted(index, call_id, name) if name in self._free_form:
                self._open.add(index)
                custom = {"name": name, "input": ""}
                return {"tool_calls": [{"index": index, "id": call_id, "type": "custom", "custom": custom}]}
            case CallArguments(index=index) if index in self._open:
                return None
            case CallClosed(index=index, arguments=arguments) if index in self._open:
                self._open.discard(index)
                return {"tool_calls": [{"index": index, "custom": {"input": input_of(arguments)}}]}
            case _:
                return event_delta(event)

    def message(self, calls: list[Chunk]) -> Chunk:
        """The fields of a whole message for its calls, which are given in the shape of functions."""
        if not calls:
            return {}
        return {"function_call": calls[0]["function"]} if self._old else {"tool_calls": list(map(self._whole, calls))}

    def _whole(self, call: Chunk) -> Chunk:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        if name not in self._free_form:
            return call
        return {"id": call["id"], "type": "custom", "custom": {"name": name, "input": input_of(arguments)}}

    def reason(self, reason: str) -> str:
        """Why the answer ended, in the words of the shape."""
        return _OLD_REASONS.get(reason, reason) if self._old else reason


# How the OpenAI API writes its streams and its errors.

OPENAI: Final = ApiForm(error_answer, last=b"data: [DONE]\n\n")


class OpenAiReply:
    """What replies in OpenAI's older shapes (completions, chat completions) share."""

    def fail(self, error: Exception) -> list[Chunk]:
        """The chunk that ends a stream after an error."""
        return [error_answer(error)[1]]

    def ping(self) -> None:
        """These streams have no event for it."""


def openai_form() -> ApiForm:
    """Return the form of one answer, with a new request id."""
    return replace(OPENAI, headers={"x-request-id": new_request_id()})


def event_bytes(reply: Reply) -> int:
    """How many bytes this reply's event for a text has besides the text. The reply can't be used afterwards."""
    return len(OPENAI.events(reply.feed(Content(""))))


class ChatReply(OpenAiReply):
    """The reply to one request. `created`: seconds since the epoch."""

    def __init__(
        self,
        model: str,
        created: int,
        *,
        usage_chunk: bool,
        prompt_ids: Sequence[int] | None = None,
        ignored: Sequence[str] = (),
        answer_id: str = "",
        spell: Spell | None = None,
        shapes: CallShapes | None = None,
        streams: bool = True,
    ) -> None:
        """Start a reply.

        `prompt_ids`: None unless the client wants ids. `ignored`: fields without effect. `spell` returns an id's bytes;
        None unless the client wants log probabilities. `shapes`: how calls are shown; None: all are of functions.
        `streams`: whether chunks are sent; otherwise only the whole answer is, and no chunk is made of its pieces.
        """
        self._shapes = shapes or CallShapes()
        self._streams = streams
        self._spell = spell
        self._sent_logprobs: list[Chunk] = []
        self._unsent_logprobs: list[Chunk] = []
        self._head: Chunk = {"id": f"chatcmpl-{answer_id}", "created": created, "model": model}
        self._usage_chunk = usage_chunk
        self._prompt_ids = prompt_ids
        self._pending: list[int] = []
        self._ids: list[int] = []
        self._spliced: list[dict[str, Any]] = []
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._calls: list[dict[str, Any]] = []
        self._closed: set[int] = set()
        self._cut: set[int] = set()
        """Calls within which a generation ended."""
        self._account = Account(ignored)
        self._finished: Finished | None = None

    def begin(self) -> list[Chunk]:
        """The first chunk: the role, and the ids of the prompt where they are wanted."""
        first = self._chunk({"role": "assistant", "content": ""})
        return [first if self._prompt_ids is None else {**first, "prompt_token_ids": list(self._prompt_ids)}]

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks to send for one event."""
        match event:
            case Content():
                return self._tell(event)
            case IdsGenerated(ids):
                self._pending += ids
                self._ids += ids
                return []
            case ContentSampled(tokens):
                self._unsent_logprobs += [logprob_entry(token, self._spell) for token in tokens] if self._spell else []
                return []
            case IdsSpliced():
                return [{**self._chunk({}), "codec": {"spliced": self._splice(event)}}]
            case ToolFinished():
                return [{**self._chunk({}), "codec": {"tool_result": self._account.add_result(event)}}]
            case GenerationFinished() | RequestFigures() | Compacted():
                self._account.add(event)
                return []
            case Finished():
                self._finished = event
                return self._end(event) if self._streams else []
            case _:
                return self._tell(event)

    def _splice(self, event: IdsSpliced) -> list[dict[str, Any]]:
        """Ids that the model did not write, and where they belong in `token_ids`."""
        spliced: list[dict[str, Any]] = [
            {"at": len(self._ids), "ids": list(part.ids), "source": part.source, "call_id": part.call_id}
            for part in event.parts
        ]
        self._spliced += spliced
        return spliced

    def _tell(self, event: Event) -> list[Chunk]:
        """Keep what the whole answer needs of an event of the parser's; return the chunks for it."""
        match event:
            case Content(text):
                self._texts["content"].append(text)
            case Reasoning(text):
                self._texts["reasoning_content"].append(text)
            case CallStarted(id=call_id, name=name):
                self._calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}})
            case CallArguments(index=index, fragment=fragment):
                self._calls[index]["function"]["arguments"] += fragment
            case CallClosed(index=index):
                self._closed.add(index)
            case Diagnostic(kind, _, index):
                self._account.add(event)
                if kind == "truncated" and index is not None:
                    self._cut.add(index)
        delta = self._shapes.delta(event) if self._streams else None
        return [] if delta is None else [self._chunk(delta)]

    def completion(self) -> Chunk:
        """The whole answer. Call it after feeding `Finished`."""
        finished = self._finished
        if finished is None:
            raise RuntimeError("completion() before the answer was finished")
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts["content"]) or None}
        if reasoning := "".join(self._texts["reasoning_content"]):
            message["reasoning_content"] = reasoning
        # A call that a limit cut is shown as far as it came, as in a stream and in OpenAI's API. One that the model
        # wrote wrongly is left out. `codec.diagnostics` reports both.
        shown = self._closed | self._cut if finished.reason == "length" else self._closed
        message |= self._shapes.message([call for number, call in enumerate(self._calls) if number in shown])
        reason = self._shapes.reason(finished.reason)
        choice: Chunk = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        if self._spell is not None:
            choice["logprobs"] = {"content": [*self._sent_logprobs, *self._unsent_logprobs], "refusal": None}
        prompt = {} if self._prompt_ids is None else {"prompt_token_ids": list(self._prompt_ids)}
        if self._prompt_ids is not None:
            choice["token_ids"] = self._ids
        return {
            **prompt,
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": usage_of(finished),
            "codec": self._codec(),
        }

    def _end(self, finished: Finished) -> list[Chunk]:
        last = {**self._chunk({}, self._shapes.reason(finished.reason)), "codec": self._codec()}
        if not self._usage_chunk:
            return [{**last, "usage": usage_of(finished)}]
        no_choices: list[Chunk] = []
        usage = {"object": "chat.completion.chunk", "choices": no_choices, "usage": usage_of(finished)}
        return [last, {**self._head, **usage}]

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> Chunk:
        choice: Chunk = {"index": 0, "delta": delta, "finish_reason": reason}
        if self._prompt_ids is not None:
            choice["token_ids"], self._pending = self._pending, []
        if self._unsent_logprobs:
            choice["logprobs"] = {"content": self._unsent_logprobs, "refusal": None}
            self._sent_logprobs += self._unsent_logprobs
            self._unsent_logprobs = []
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _codec(self) -> dict[str, Any]:
        spliced = {"spliced": self._spliced} if self._spliced else {}
        return {**self._account.codec(), **spliced}


def usage_of(finished: Finished) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": finished.prompt_ids,
        "completion_tokens": finished.completion_ids,
        "total_tokens": finished.prompt_ids + finished.completion_ids,
        "prompt_tokens_details": {"cached_tokens": finished.cached_ids},
        "completion_tokens_details": {"reasoning_tokens": finished.reasoning_ids},
    }


# Several answers to one request (`n`), in OpenAI's shape: chunks with the answer's index, or one completion with all.
#
# The answers are made one after another. Each has its own `ChatReply`; this combines them. Pure.


class ChoicesReply(OpenAiReply):
    """The reply to one request for several answers. `prompt`: how many ids the prompt has, which are counted once."""

    def __init__(self, replies: Sequence[ChatReply], prompt: int, *, usage_chunk: bool) -> None:
        self._replies = replies
        self._prompt = prompt
        self._usage_chunk = usage_chunk
        self._at = 0
        """Number of the answer that is being made."""
        self._finished: list[Finished] = []

    def begin(self) -> list[Chunk]:
        """The first chunk of each answer."""
        return [chunk for number, reply in enumerate(self._replies) for chunk in _numbered(reply.begin(), number)]

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks for one event of the answer that is being made."""
        number = self._at
        chunks = _numbered(self._replies[number].feed(event), number)
        if not isinstance(event, Finished):
            return chunks
        self._finished.append(event)
        self._at += 1
        if self._at < len(self._replies) or not chunks:
            return chunks
        if not self._usage_chunk:
            return [*chunks[:-1], {**chunks[-1], "usage": self._usage()}]
        head = {key: value for key, value in chunks[-1].items() if key != "codec"}
        return [*chunks, {**head, "choices": [], "usage": self._usage()}]

    def completion(self) -> Chunk:
        """All answers. `codec` describes the first one; `codec.choices` has one entry for each of the others."""
        first, *others = (reply.completion() for reply in self._replies)
        choices = [{**one["choices"][0], "index": number} for number, one in enumerate((first, *others))]
        codec = {**first["codec"], "choices": [other["codec"] for other in others]}
        return {**first, "choices": choices, "usage": self._usage(), "codec": codec}

    def _usage(self) -> Chunk:
        again = self._prompt * (len(self._finished) - 1)
        return usage_of(
            Finished(
                reason="stop",
                prompt_ids=sum(one.prompt_ids for one in self._finished) - again,
                cached_ids=max(sum(one.cached_ids for one in self._finished) - again, 0),
                completion_ids=sum(one.completion_ids for one in self._finished),
                reasoning_ids=sum(one.reasoning_ids for one in self._finished),
            )
        )


def _numbered(chunks: Sequence[Chunk], number: int) -> list[Chunk]:
    """The chunks of one answer with its index, without its own usage: usage is reported for all answers together."""
    told = ({key: value for key, value in chunk.items() if key != "usage"} for chunk in chunks if chunk["choices"])
    return [{**chunk, "choices": [{**chunk["choices"][0], "index": number}]} for chunk in told]
