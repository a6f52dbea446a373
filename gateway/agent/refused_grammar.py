"""A grammar that the engine refuses: which tools are to blame, and what holds the request in its place.

Asks the engine with grammars of fewer tools, in the slot that the generation has, an id each. What it finds is kept
with the engine, so that no other request meets it. `toolcalls.grammar.loosened` looks by halves. Calls that a model
decides on are free, as without `hold_calls`, where the engine takes no grammar that waits for them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.agent.choice import Hold
from gateway.engine.interface import GenerateRequest
from gateway.engine.readiness import ReadyEngine
from gateway.errors import GrammarRefused, RequestInvalid
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.toolcalls import Diagnostic, ToolSpec, too_much

_PLAINEST: Final = ToolSpec("f", "", {"type": "object"})
"""The tool whose grammar is refused by engines alone that refuse every one."""
_LOOSE: Final = "the engine takes no grammar of the arguments of {}: they may be any JSON object"

log = get_logger("agent")


async def loosened_hold(hold: Hold, request: GenerateRequest, ready: ReadyEngine, metrics: Metrics) -> Hold | None:
    """Give what holds `request` in place of a hold whose grammar was refused; None where nothing does.

    Raises `RequestInvalid` where it is the form of the answer that the engine takes no grammar of.
    """

    async def takes(tools: Sequence[ToolSpec]) -> bool:
        grammar = replace(hold, tools=tuple(tools)).grammar
        try:
            async with ready.engine.generate(replace(request, grammar=grammar, max_tokens=1)) as events:
                # To its end: the slot is at rest then.
                async for _ in events:
                    pass
        except GrammarRefused:
            return False
        return True

    def note(tool: ToolSpec) -> None:
        ready.loose.note(tool)
        metrics.grammar_refused()
        log.warning("the engine refuses the grammar of a tool; its calls are held loosely from now on", tool=tool.name)

    if hold.formed and not await takes(()):
        raise RequestInvalid("the engine takes no grammar of this form of answer: ask for a simpler or smaller schema")
    if hold.triggers and not await takes((_PLAINEST,)):
        ready.loose.note_lazy()
        metrics.grammar_refused()
        log.warning("the engine takes no grammar that waits for a call; calls are held where they are required alone")
        return None
    found = await too_much(hold.tools, takes, note)
    loose = hold.loosening(found.__contains__)
    return loose if not hold.triggers or await takes(loose.tools) else None


def looseness(hold: Hold | None) -> list[Diagnostic]:
    """Tell which tools' calls are held loosely, if any are."""
    if hold is None or not hold.loose:
        return []
    return [Diagnostic("loose", _LOOSE.format(", ".join(map(repr, sorted(hold.loose)))))]
