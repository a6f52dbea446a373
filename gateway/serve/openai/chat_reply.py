"""Agent events in OpenAI's shape: chunks while they come, or one whole completion.

`ChatReply` sees each event once and returns the chunks for it; `completion()` is the same answer whole. What OpenAI's
shape has no place for (where a result's ids came from, what the KV cache saved) travels under the additive key `codec`;
ids, where they are wanted, as vLLM spells them (`token_ids`, `prompt_token_ids`). Pure: it knows no HTTP and no engine.
"""

import secrets
from collections.abc import Sequence
from typing import Any

from gateway.agent.events import (
    AgentEvent,
    Finished,
    GenerationFinished,
    IdsGenerated,
    IdsSpliced,
    PromptCompared,
    ToolFinished,
)
from gateway.observe.escape import cut_text
from gateway.serve.http.errors import error_answer
from gateway.toolcalls import CallArguments, CallClosed, CallStarted, Content, Diagnostic, Event, Reasoning
from gateway.toolcalls.stream.deltas import event_delta

Chunk = dict[str, Any]

_RESULT_TEXT = 4000
"""Characters of a tool's result that `codec` shows; the model has its own limit, in ids."""


class ChatReply:
    """The reply to one request. `created`: seconds since the epoch."""

    def __init__(
        self,
        model: str,
        created: int,
        *,
        usage_chunk: bool,
        prompt_ids: Sequence[int] | None = None,
        ignored: Sequence[str] = (),
    ) -> None:
        """`prompt_ids`: given where the client wants ids, None where it does not. `ignored`: fields without effect."""
        self._head: Chunk = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": created, "model": model}
        self._usage_chunk = usage_chunk
        self._prompt_ids = prompt_ids
        self._ignored = list(ignored)
        self._pending: list[int] = []
        self._ids: list[int] = []
        self._spliced: list[dict[str, Any]] = []
        self._texts: dict[str, list[str]] = {"content": [], "reasoning_content": []}
        self._calls: list[dict[str, Any]] = []
        self._closed: set[str] = set()
        self._results: list[dict[str, Any]] = []
        self._turns: list[dict[str, Any]] = []
        self._prompt: dict[str, Any] | None = None
        self._diagnostics: list[dict[str, Any]] = []
        self._finished: Finished | None = None

    def begin(self) -> list[Chunk]:
        """The first chunk: who speaks, and after which ids."""
        first = self._chunk({"role": "assistant", "content": ""})
        return [first if self._prompt_ids is None else {**first, "prompt_token_ids": list(self._prompt_ids)}]

    def feed(self, event: AgentEvent) -> list[Chunk]:
        """Chunks to send for one event."""
        match event:
            case IdsGenerated(ids):
                self._pending += ids
                self._ids += ids
                return []
            case IdsSpliced():
                return [{**self._chunk({}), "codec": {"spliced": self._splice(event)}}]
            case ToolFinished():
                self._results.append(_tool_result(event))
                return [{**self._chunk({}), "codec": {"tool_result": self._results[-1]}}]
            case PromptCompared():
                self._prompt = _compared(event)
                return []
            case GenerationFinished():
                self._turns.append(turn_numbers(event))
                return []
            case Finished():
                self._finished = event
                return self._end(event)
            case _:
                self._keep(event)
                delta = event_delta(event)
                return [] if delta is None else [self._chunk(delta)]

    def _splice(self, event: IdsSpliced) -> list[dict[str, Any]]:
        """Ids that the model did not write, and where in `token_ids` they stand."""
        spliced: list[dict[str, Any]] = [
            {"at": len(self._ids), "ids": list(part.ids), "source": part.source, "call_id": part.call_id}
            for part in event.parts
        ]
        self._spliced += spliced
        return spliced

    def _keep(self, event: Event) -> None:
        """What the whole answer needs of the parser's events."""
        match event:
            case Content(text):
                self._texts["content"].append(text)
            case Reasoning(text):
                self._texts["reasoning_content"].append(text)
            case CallStarted(id=call_id, name=name):
                self._calls.append({"id": call_id, "type": "function", "function": {"name": name, "arguments": ""}})
            case CallArguments(index=index, fragment=fragment):
                self._calls[index]["function"]["arguments"] += fragment
            case CallClosed(id=call_id):
                self._closed.add(call_id)
            case Diagnostic():
                self._diagnostics.append({"kind": event.kind, "message": event.message, "index": event.index})

    def completion(self) -> Chunk:
        """The whole answer. Call it after `Finished` was fed."""
        finished = self._finished
        if finished is None:
            raise RuntimeError("completion() before the answer was finished")
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._texts["content"]) or None}
        if reasoning := "".join(self._texts["reasoning_content"]):
            message["reasoning_content"] = reasoning
        # A call that broke off is told in `codec.diagnostics`; its arguments are no JSON, and nobody could run it.
        if whole := [call for call in self._calls if call["id"] in self._closed]:
            message["tool_calls"] = whole
        choice: Chunk = {"index": 0, "message": message, "finish_reason": finished.reason, "logprobs": None}
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

    def fail(self, error: Exception) -> list[Chunk]:
        """The chunk that ends a stream which broke."""
        return [error_answer(error)[1]]

    def _end(self, finished: Finished) -> list[Chunk]:
        last = {**self._chunk({}, finished.reason), "codec": self._codec()}
        if not self._usage_chunk:
            return [{**last, "usage": usage_of(finished)}]
        no_choices: list[Chunk] = []
        usage = {"object": "chat.completion.chunk", "choices": no_choices, "usage": usage_of(finished)}
        return [last, {**self._head, **usage}]

    def _chunk(self, delta: dict[str, Any], reason: str | None = None) -> Chunk:
        choice: Chunk = {"index": 0, "delta": delta, "finish_reason": reason}
        if self._prompt_ids is not None:
            choice["token_ids"], self._pending = self._pending, []
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}

    def _codec(self) -> dict[str, Any]:
        codec: dict[str, Any] = {"turns": self._turns, "tool_results": self._results}
        if self._prompt is not None:
            codec["prompt"] = self._prompt
        if self._spliced:
            codec["spliced"] = self._spliced
        if self._ignored:
            codec["ignored"] = self._ignored
        if self._diagnostics:
            codec["diagnostics"] = self._diagnostics
        return codec


def turn_numbers(turn: GenerationFinished) -> dict[str, Any]:
    """One generation in numbers, as `codec.turns[]` and `codec-gateway demo --json` show it: ids and milliseconds."""
    timings = turn.timings
    return {
        "generated": turn.generated,
        "reinjected": {"leaf": turn.reinjected_leaf, "shim": turn.reinjected_shim},
        "scaffold": turn.scaffold,
        "held": turn.held,
        "cache_n": timings.cache_n if timings else None,
        "prompt_n": timings.prompt_n if timings else None,
        "reuse": round(turn.reuse, 4) if turn.reuse is not None else None,
        "ttft_ms": round(turn.ttft * 1000, 2),
        "guessed": turn.guessed,
    }


def _compared(event: PromptCompared) -> dict[str, Any]:
    """What the prompt found again of the conversation's last answer, and what was lost for which reason."""
    told: dict[str, Any] = {"held": event.held, "reused": event.reused, "lost": event.lost}
    if event.reason is not None:
        told["reason"] = event.reason
    if (miss := event.miss) is not None:
        if miss.message is not None:
            told |= {"message": miss.message, "at": miss.at, "was": miss.was, "now": miss.now}
        if miss.results_lost:
            told["results_lost"] = True
    return told


def _tool_result(event: ToolFinished) -> dict[str, Any]:
    return {
        "call_id": event.call_id,
        "name": event.name,
        "arguments": event.arguments,
        "text": cut_text(event.text, _RESULT_TEXT),
        "source": event.source,
        "ids": event.leaf_ids + event.shim_ids,
        "is_error": event.is_error,
        "seconds": round(event.seconds, 6),
    }


def usage_of(finished: Finished) -> dict[str, Any]:
    """OpenAI's `usage`."""
    return {
        "prompt_tokens": finished.prompt_ids,
        "completion_tokens": finished.completion_ids,
        "total_tokens": finished.prompt_ids + finished.completion_ids,
        "prompt_tokens_details": {"cached_tokens": finished.cached_ids},
    }
