"""What was done for an answer, shown under the key `codec` in the answers of every API, and its log probabilities."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from gateway.agent.events import Compacted, GenerationFinished, TokenLogprob, ToolFinished
from gateway.agent.figures import reused_share
from gateway.context.memory import RequestFigures
from gateway.escape import cut_text
from gateway.toolcalls.stream.output_events import Diagnostic

# What was done for an answer, shown under the key `codec` in the answers of every API.
#
# Turns the agent events that no API has a place for into numbers and texts: generations, results of the gateway's tools
# and where their ids came from, how much of the prompt was in the cache, what could not be parsed, and which request
# fields had no effect. Pure.

_RESULT_TEXT: Final = 4000
"""Maximum characters of a tool's result that `codec` shows. What the model gets has its own limit, in ids."""


class Account:
    """The account of one answer, filled in while the answer is made."""

    def __init__(self, ignored: Sequence[str] = ()) -> None:
        """`ignored`: the request's fields that have no effect."""
        self._ignored = list(ignored)
        self._turns: list[dict[str, Any]] = []
        self._results: list[dict[str, Any]] = []
        self._prompt: dict[str, Any] | None = None
        self._compaction: dict[str, Any] | None = None
        self._diagnostics: list[dict[str, Any]] = []

    def add(self, event: GenerationFinished | RequestFigures | Diagnostic | Compacted) -> None:
        """Add an event."""
        match event:
            case GenerationFinished():
                self._turns.append(turn_numbers(event))
            case RequestFigures():
                self._prompt = prompt_figures(event)
            case Compacted():
                self._compaction = {
                    "prompt": event.prompt_ids,
                    "cached": event.cached_ids,
                    "summary": event.completion_ids,
                }
            case Diagnostic():
                self._diagnostics.append({"kind": event.kind, "message": event.message, "index": event.index})

    def add_result(self, event: ToolFinished) -> dict[str, Any]:
        """Add a finished call of a gateway's tool; return it as it is shown."""
        self._results.append(_tool_result(event))
        return self._results[-1]

    def codec(self) -> dict[str, Any]:
        """Return the whole account, the value of `codec`."""
        told: dict[str, Any] = {"turns": self._turns, "tool_results": self._results}
        if self._prompt is not None:
            told["prompt"] = self._prompt
        if self._compaction is not None:
            told["compaction"] = self._compaction
        if self._ignored:
            told["ignored"] = self._ignored
        if self._diagnostics:
            told["diagnostics"] = self._diagnostics
        return told


def turn_numbers(turn: GenerationFinished) -> dict[str, Any]:
    """One generation in numbers, as `codec.turns[]` and `codec-gateway demo --json` show it: ids and milliseconds."""
    timings, reuse = turn.timings, reused_share(turn)
    return {
        "generated": turn.generated,
        "reinjected": {"leaf": turn.reinjected_leaf, "shim": turn.reinjected_shim},
        "scaffold": turn.scaffold,
        "held": turn.held,
        "cache_n": timings.cache_n if timings else None,
        "prompt_n": timings.prompt_n if timings else None,
        "prefilled": turn.prefilled,
        "reuse": None if reuse is None else round(reuse, 4),
        "ttft_ms": round(turn.ttft * 1000, 2),
        "guessed": turn.guessed,
        **({"moved": turn.moved} if turn.moved else {}),
    }


def prompt_figures(figures: RequestFigures) -> dict[str, Any]:
    """The figures of a request as `codec.prompt` shows them, with the words that its client changed."""
    told: dict[str, Any] = {**figures.counts}
    if figures.reason is not None:
        told["reason"] = figures.reason
    if (miss := figures.recall_miss) is not None:
        if miss.message is not None:
            told |= {"message": miss.message, "at": miss.at, "was": miss.was, "now": miss.now}
        if miss.results_lost:
            told["results_lost"] = True
    return told


def _tool_result(event: ToolFinished) -> dict[str, Any]:
    kept = event.kept
    return {
        "call_id": event.call_id,
        "name": event.name,
        "arguments": event.arguments,
        "text": cut_text(event.text, _RESULT_TEXT),
        "source": event.source,
        "ids": event.leaf_ids + event.shim_ids,
        "is_error": event.is_error,
        "seconds": round(event.seconds, 6),
        **({} if kept is None else {"kept": {"handle": kept.handle, "tokens": kept.tokens, "shown": kept.shown}}),
        **({"saved_tokens": event.saved} if event.saved else {}),
    }


# Ids of an answer with their log probabilities, as OpenAI's APIs write them. Pure.

Spell = Callable[[int], bytes]
"""Returns an id's bytes."""
_NEVER: Final = -9999.0
"""The log probability of what is impossible, as OpenAI writes it."""


def logprob_entry(token: TokenLogprob, spell: Spell) -> dict[str, Any]:
    """An id with its log probability, and the likeliest ids in its place."""
    return {
        **_entry(token.token_id, token.logprob, spell),
        "top_logprobs": [_entry(token_id, logprob, spell) for token_id, logprob in token.tops],
    }


def _entry(token_id: int, logprob: float | None, spell: Spell) -> dict[str, Any]:
    data = spell(token_id)
    # None: the engine gave no log probability, or the id was impossible.
    return {
        "token": data.decode("utf-8", "replace"),
        "logprob": _NEVER if logprob is None else logprob,
        "bytes": [*data],
    }
