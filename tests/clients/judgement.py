"""What a recorded conversation comes to: how much of it the engine found again, and whose calls ran how often.

Turns the exchanges of one client into numbers, for the gateway by what its answers say (`codec`, ids), for a llama.cpp
server by its `timings`. Pure: it starts and prints nothing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from tests.clients.recorder import Exchange

OWN: Final = "forecast"
"""The tool that each client has."""
GATEWAY_S: Final = "clock"
"""The tool that the gateway has beside it."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """One conversation in numbers."""

    requests: int
    turns: int
    """Generations after the first one: those that could have found something again."""
    whole: int
    """Of them, those in which the engine found all that it had held."""
    processed: int
    """Ids of prompts that the engine processed."""
    again: int
    """Of them, those that it had held before."""
    drift: int = 0
    """Positions of a prompt that hold another id than the context before did."""
    called: int = 0
    """Calls that the model made of the gateway's tool."""
    faults: tuple[str, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether everything that the engine held was found again."""
        return self.whole == self.turns and not self.again and not self.drift


def of_gateway(exchanges: Sequence[Exchange], ran: int) -> Judgement:
    """Judge what passed between a client and the gateway. `ran`: how often the gateway's tool was called in fact."""
    answered = [each for each in exchanges if each.status == 200]
    turns = [turn for each in answered for turn in each.answer["codec"]["turns"]]
    after = turns[1:]
    contexts = [_context(each.answer) for each in answered]
    prompts = [each.answer["prompt_token_ids"] for each in answered]
    drift = sum(_differing(was, now) for was, now in zip(contexts, prompts[1:], strict=False))
    results = [result for each in answered for result in each.answer["codec"]["tool_results"]]
    called = sum(result["name"] == GATEWAY_S and not result["is_error"] for result in results)
    more = [] if called == ran else [f"{GATEWAY_S} was called {called} times by the model, and ran {ran} times"]
    return Judgement(
        requests=len(exchanges),
        turns=len(after),
        whole=sum(0 < turn["held"] == turn["cache_n"] for turn in after),
        processed=sum(turn["prompt_n"] for turn in turns),
        again=sum(turn["held"] - turn["cache_n"] for turn in after),
        drift=drift,
        called=called,
        faults=(*_faults(exchanges), *more),
    )


def of_engine(exchanges: Sequence[Exchange]) -> Judgement:
    """Judge what passed between a client and a llama.cpp server."""
    timings = [each.answer["timings"] for each in exchanges if each.status == 200]
    # The last id of an answer was sampled, and not processed.
    held = [each["cache_n"] + each["prompt_n"] + each["predicted_n"] - 1 for each in timings]
    found = [(had, each["cache_n"]) for had, each in zip(held, timings[1:], strict=False)]
    return Judgement(
        requests=len(exchanges),
        turns=len(found),
        whole=sum(had <= again for had, again in found),
        processed=sum(each["prompt_n"] for each in timings),
        again=sum(max(had - again, 0) for had, again in found),
        faults=tuple(_faults(exchanges)),
    )


def _context(answer: dict[str, Any]) -> list[int]:
    """All ids that the engine had at the end of an answer: the prompt's, and in its order what came behind them."""
    written = answer["choices"][0]["token_ids"]
    ids, done = list(answer["prompt_token_ids"]), 0
    for part in answer["codec"].get("spliced", ()):
        ids += [*written[done : part["at"]], *part["ids"]]
        done = part["at"]
    return [*ids, *written[done:]]


def _differing(was: Sequence[int], now: Sequence[int]) -> int:
    return sum(mine != other for mine, other in zip(was, now, strict=False)) + max(len(was) - len(now), 0)


def _faults(exchanges: Sequence[Exchange]) -> Iterator[str]:
    shown: set[str] = set()
    for number, each in enumerate(exchanges, 1):
        if each.status != 200 or "error" in each.answer:
            yield f"request {number} was answered with {each.status}: {each.answer.get('error')}"
            continue
        for message in each.request["messages"]:
            if message["role"] == "tool" and message["tool_call_id"] not in shown:
                yield f"request {number} has a result of a call that was not shown: {message}"
        for call in each.answer["choices"][0]["message"].get("tool_calls") or ():
            shown.add(call["id"])
            if call["function"]["name"] == GATEWAY_S:
                yield f"answer {number} shows a call that the gateway has run"
    if not all(_grows(was.request, now.request) for was, now in pairwise(exchanges)):
        yield "the messages of a request are fewer than those of the one before"


def _grows(was: dict[str, Any], now: dict[str, Any]) -> bool:
    return len(now["messages"]) > len(was["messages"])
