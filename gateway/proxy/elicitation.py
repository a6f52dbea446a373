"""Asks the user of an MCP client to approve a call, and waits for the answer, but not for ever.

Turns a question into nothing where the user accepts it, and into `NotApproved` otherwise. Called before the call takes
a place at its server.
"""

from typing import Final

import anyio

from gateway.errors import NotApproved, RpcError
from gateway.observe.escape import escape_text
from gateway.proxy.approvals import METHOD, Question
from gateway.proxy.caller import Caller

_WAIT: Final = 600.0
"""Seconds that a user has to answer; as long as a parked call waits for its client's next round."""
_SHOWN: Final = 200


async def approve(question: Question, caller: Caller) -> None:
    """Return once the caller's user has approved the call. Raises `NotApproved`."""
    try:
        with anyio.fail_after(_WAIT):
            answer = await caller.asked(METHOD, question.params)
    except TimeoutError:
        raise NotApproved(question.refusal(f"nobody answered within {_WAIT:g} s")) from None
    except RpcError as error:
        cause = f"the client could not ask its user: {escape_text(error.message, _SHOWN)}"
        raise NotApproved(question.refusal(cause)) from None
    if answer.get("action") != "accept":
        raise NotApproved(question.refusal("the user did not approve this one"))
