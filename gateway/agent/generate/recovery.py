"""Generations that can't run as they were asked for: their engine is lost, or refuses the grammar.

A lost generation continues on another engine from the prompt and the ids so far, so that no id is reported twice, and
none is left out; the caller decides whether and where it can continue (`rewind`). For a refused grammar, grammars of
fewer tools are tried on the engine, in the generation's own slot, generating one id each time. What is found is kept
with the engine, so that no other request meets the refusal. `toolcalls.grammar.loosened` bisects the tools. Where the
engine takes no grammar that waits for a call, calls that a model decides on are free, as without `hold_calls`.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from gateway.agent.generate.generation_options import Hold
from gateway.context.compose.conversation import Conversation
from gateway.engine.interface import GenerateRequest
from gateway.engine.pool.pool import Stay, is_loss
from gateway.engine.rendering.template_forms import ToolFault
from gateway.errors import EngineError, EngineLost, GrammarRefused, RequestInvalid
from gateway.observe.logs import get_logger
from gateway.observe.metrics import Metrics
from gateway.toolcalls.grammar.loosened import too_much
from gateway.toolcalls.schema.spec import ToolSpec
from gateway.toolcalls.stream.output_events import Diagnostic

T = TypeVar("T")
_PLAINEST: Final = ToolSpec("f", "", {"type": "object"})
"""A tool whose grammar is refused only by engines that refuse every grammar."""
_LOOSE: Final = (
    "no grammar holds the arguments of {}: the engine refuses it, or the schema is too large, or too many of its "
    "alternatives begin alike; any JSON object is accepted there"
)
_REFUSED: Final = "the engine refuses the grammar of its schema; the arguments of its calls may be any JSON object"
log = get_logger("agent")


def lost_grammar(error: EngineError) -> EngineLost:
    """Return the error for an answer under a grammar, which another engine would start from the beginning."""
    return EngineLost(
        "the engine was lost during an answer under a grammar, which no other engine can continue; "
        f"keep the part that has arrived, or ask again ({error.message})"
    )


async def replayed(
    stay: Stay, run: Callable[[], Awaitable[T]], rewind: Callable[[EngineError], Awaitable[T | None]]
) -> T:
    """Run until one run completes; return its outcome.

    Args:
        stay: the engine, and those that can take its place.
        run: generates on the current engine.
        rewind: prepares to continue from what was generated; returns the outcome where nothing is left to do, and
            raises where the generation can't continue.

    Raises `EngineError`: the reason that the last engine was lost, or an error that another engine would give too.
    """
    while True:
        try:
            return await run()
        except EngineError as error:
            stay.lost(error)
            if not (stay.may_move and is_loss(error)):
                raise
            done = await rewind(error)
            if done is not None:
                return done
            stay.move(error)


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
