"""What stands before a tool's result is processed while the tool works.

Turns a turn whose calls run into the ids that are sure to follow it, whatever the tools say: the template's, up to the
first result. `engine/prefill.py` has them processed. Nothing waits for it but a result that comes in the middle.
"""

import time
from contextlib import suppress

from gateway.agent.calls import RunningCalls
from gateway.agent.conversation import Conversation
from gateway.errors import EngineUnavailable, GatewayError
from gateway.observe.metrics import Metrics


async def prefill(conversation: Conversation, calls: RunningCalls, room: int, metrics: Metrics) -> None:
    """Return when the calls are over, or all is processed that may be; a piece is always done to its end.

    `room`: ids that what follows the turn may take; where the template's own take more, no result will be spliced.
    """
    ahead = conversation.ready.prefill
    # A turn with ids that were guessed may not be what the engine holds.
    if ahead is None or conversation.guessed or (over := calls.closing()).is_set():
        return
    try:
        # What reads a result writes around it as that wants it.
        if await conversation.ready.template.reads_results():
            return
        scaffold = await conversation.around_results()
    except GatewayError:
        # Whoever splices the results is told.
        return

    def told(ids: int, seconds: float) -> None:
        conversation.spliced.prefilled += ids
        conversation.spliced.prefilled_seconds += seconds
        metrics.ids_prefilled(ids)

    if scaffold.size < room and ahead.pays(len(scaffold.pieces[0])):
        # One that is lost meanwhile is left by whoever generates next.
        with suppress(EngineUnavailable):
            await conversation.place().wait(
                ahead.run(conversation.ids, scaffold.pieces[0], conversation.principal.name, over, told)
            )
    # Only what the results have waited for is time to the next token.
    conversation.spliced.seconds = time.perf_counter() - calls.ended if over.is_set() else 0.0
