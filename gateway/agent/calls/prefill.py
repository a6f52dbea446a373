"""Has the engine process what stands before a tool's result while the tool works.

Turns a turn whose calls are running into the ids that will follow it whatever the tools say: the template's, up to the
first result. `engine/slots/prefill.py` has them processed. Only a result that arrives in the middle of it has to wait.
"""

import time
from contextlib import suppress

from gateway.agent.calls.runner import RunningCalls
from gateway.context.compose.conversation import Conversation
from gateway.errors import EngineUnavailable, GatewayError
from gateway.observe.metrics import Metrics


async def prefill(conversation: Conversation, calls: RunningCalls, room: int, metrics: Metrics) -> None:
    """Return when the calls are over, or everything that may be processed is; a piece is never left unfinished.

    `room`: ids that what follows the turn may take; where the template's own ids fill it, no result will be spliced.
    """
    ahead = conversation.ready.prefill
    # The engine may hold other ids than those of a turn with guessed ids.
    if ahead is None or conversation.guessed or (over := calls.closing()).is_set():
        return
    try:
        # A template that reads results may write different text around each of them.
        if await conversation.ready.template.reads_results():
            return
        # It would cost the way back to the question.
        if (await conversation.hints()).returns:
            return
        scaffold = await conversation.around_results()
    except GatewayError:
        # The caller meets the same error when it splices the results.
        return

    def told(ids: int, seconds: float) -> None:
        conversation.spliced.prefilled += ids
        conversation.spliced.prefilled_seconds += seconds
        metrics.ids_prefilled(ids)

    if scaffold.size < room and ahead.pays(len(scaffold.pieces[0])):
        # If the engine is lost meanwhile, the next generation moves to another one.
        with suppress(EngineUnavailable):
            await conversation.stay.wait(
                ahead.run(conversation.ids, scaffold.pieces[0], conversation.asked.principal.name, over, told)
            )
    # Only the time that finished results had to wait counts as time to the next token.
    conversation.spliced.seconds = time.perf_counter() - calls.ended if over.is_set() else 0.0
