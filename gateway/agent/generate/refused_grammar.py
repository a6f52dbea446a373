"""A grammar that the engine refuses: which tools are to blame, and what holds the request instead.

Tries grammars of fewer tools on the engine, in the generation's own slot, generating one id each time. What it finds is
kept with the engine, so that no other request meets the refusal. `toolcalls.grammar.loosened` bisects the tools. Where
the engine takes no grammar that waits for a call, calls that a model decides on are free, as without `hold_calls`.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gateway.agent.generate.choice import Hold
from gateway.context.compose.conversation import Conversation
from gateway.engine.interface import GenerateRequest
from gateway.engine.rendering.template_forms import ToolFault
from gateway.errors import GrammarRefused, RequestInvalid
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.toolcalls.grammar.loosened import too_much
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic

_PLAINEST: Final = ToolSpec("f", "", {"type": "object"})
"""A tool whose grammar is refused only by engines that refuse every grammar."""
_LOOSE: Final = (
    "no grammar holds the arguments of {}: the engine refuses it, or the schema is too large, or too many of its "
    "alternatives begin alike; any JSON object is accepted there"
)

_REFUSED: Final = "the engine refuses the grammar of its schema; the arguments of its calls may be any JSON object"

log = get_logger("agent")


async def loosened_hold(
    hold: Hold, request: GenerateRequest, conversation: Conversation, metrics: Metrics
) -> Hold | None:
    """Return what holds `request` in place of a hold whose grammar was refused; None where nothing does.

    Raises `RequestInvalid` where the engine refuses the grammar of the answer's form.
    """

    ready = conversation.ready

    async def takes(tools: Sequence[ToolSpec]) -> bool:
        grammar = replace(hold, tools=tuple(tools)).grammar
        try:
            async with ready.engine.generate(replace(request, grammar=grammar, max_tokens=1)) as events:
                # Read to the end, so that the slot is at rest afterwards.
                async for _ in events:
                    pass
        except GrammarRefused:
            return False
        return True

    def note(tool: ToolSpec) -> None:
        ready.loose.note(tool)
        metrics.grammar_refused()
        ready.forms.report(ToolFault(conversation.asked.owner_of(tool.name), tool.name, _REFUSED))

    if hold.formed and not await takes(()):
        raise form_refused()
    if hold.triggers and not await takes((_PLAINEST,)):
        ready.loose.note_lazy()
        metrics.grammar_refused()
        log.warning(
            "the engine refuses grammars that begin only at a call (`hold_calls`); "
            "only calls that `tool_choice` requires are held from now on"
        )
        return None
    found = await too_much(hold.tools, takes, note)
    loose = hold.loosening(found.__contains__)
    return loose if not hold.triggers or await takes(loose.tools) else None


def form_refused() -> RequestInvalid:
    """Return the error for a form of answer whose grammar the engine refuses."""
    return RequestInvalid("the engine refuses the grammar for this form of answer; send a simpler or smaller schema")


def looseness(hold: Hold | None) -> list[Diagnostic]:
    """Report which tools' calls are held loosely, if any are."""
    if hold is None or not hold.loose:
        return []
    return [Diagnostic("loose", _LOOSE.format(", ".join(map(repr, sorted(hold.loose)))))]
