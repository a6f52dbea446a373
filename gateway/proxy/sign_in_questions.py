"""Asks callers to sign in where each has a sign-in of its own, and finds the upstream that is theirs afterwards.

Turns a call to such a server into the caller's own upstream, into a question to its user that shows a page of the
gateway (MCP, "URL Mode Elicitation"), or into an error that names that page. The page proves who opens it: whoever else
gets its address can sign in for themselves only. It sends no request to the server.
"""

import secrets
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio

from gateway.errors import GatewayError, RpcError, SignInNeeded, UpstreamUnavailable, rpc_error
from gateway.proxy.approvals import METHOD
from gateway.proxy.bridge import PARKED
from gateway.proxy.caller import Caller, Principal
from gateway.proxy.results import CallOutcome, ending_of, failure
from gateway.proxy.upstream.upstream import OwnUpstreams, Upstream

_STATE: Final = f"{PARKED}sign-in"
"""The `requestState` of a modern client's next round. It stands for nothing: whether they signed in is looked up."""
_KEY: Final = "sign-in"
_URL_NEEDED: Final = -32042
"""The code of an error that names pages to be opened first (MCP of 2025-11-25)."""
_WAIT: Final = 600.0
"""Seconds that a handshake-era call waits for its user to sign in."""
_ROUND: Final = 45.0
"""Seconds that a modern client's next round waits for that; then it is asked again."""
_LOOK: Final = 0.5
"""Seconds between two looks: another worker or replica may have served the page."""


async def find_own(upstream: Upstream, tool: str, params: Mapping[str, Any], caller: Caller) -> Upstream | CallOutcome:
    """The caller's own upstream, which is up, of a server at which each principal signs in, for a call of a tool there;
    or why there is none, and what its user has to do. Raises `RpcError`."""
    server = upstream.config.name
    try:
        found = await _find_own(upstream, params, caller)
        if isinstance(found, dict):
            return CallOutcome(found, ending_of(found), server, tool)
        found = await _brought_up(upstream, found, caller)
    except UpstreamUnavailable as error:
        return CallOutcome(failure(error.message, modern=caller.modern), "unavailable", server, tool)
    return found


async def _brought_up(upstream: Upstream, own: Upstream, caller: Caller) -> Upstream:
    """The caller's own upstream, once it is up; the next one, if its user signs in again meanwhile."""
    try:
        await own.supervisor.want()
    except UpstreamUnavailable:
        newer = cast("OwnUpstreams", upstream.per_user).of(caller.principal)
        if newer is None or newer is own:
            raise
        await newer.supervisor.want()
        return newer
    return own


async def _find_own(upstream: Upstream, params: Mapping[str, Any], caller: Caller) -> Upstream | dict[str, Any]:
    """The caller's own upstream of a server, or the result that asks a modern client's user to sign in first.

    Raises:
        UpstreamUnavailable: it has none. `SignInNeeded`: its user can't be asked, or did not sign in.
        RpcError: a handshake-era client refuses to ask, though it opens pages.
    """
    users = cast("OwnUpstreams", upstream.per_user)
    if (own := await users.look_up(caller.principal)) is not None:
        return own
    error = users.why_none(caller.principal)
    if not isinstance(error, SignInNeeded) or not _shows_pages(caller.capabilities):
        raise error
    if not caller.modern:
        return await _ask(users, error, caller)
    if params.get("requestState") == _STATE:
        if not _accepts(params):
            raise error
        if (own := await _signed_in(users, caller, _ROUND)) is not None:
            return own
    requests = {_KEY: {"method": METHOD, "params": _question(error)}}
    return {"resultType": "input_required", "inputRequests": requests, "requestState": _STATE}


def answered(params: dict[str, Any]) -> dict[str, Any]:
    """The params of a request without the answer to our question, if they hold one."""
    if params.get("requestState") != _STATE:
        return params
    return {key: value for key, value in params.items() if key not in ("requestState", "inputResponses")}


def refusal(upstream: Upstream, caller: Caller) -> GatewayError:
    """The error for a request, other than a call of a tool, of a caller that has no upstream of its own."""
    error = cast("OwnUpstreams", upstream.per_user).why_none(caller.principal)
    if not isinstance(error, SignInNeeded) or caller.modern or not _shows_pages(caller.capabilities):
        return error
    asked = {**_question(error), "elicitationId": secrets.token_urlsafe(16)}
    return rpc_error(_URL_NEEDED, error.message, elicitations=[asked])


def sign_in_advice(upstream: Upstream, principal: Principal) -> str | None:
    """What a client is told at its start, in place of the server's instructions; None: its user need not sign in."""
    if upstream.per_user is None or upstream.serves(principal):
        return None
    error = upstream.per_user.why_none(principal)
    return error.message if isinstance(error, SignInNeeded) else None


async def _ask(users: OwnUpstreams, error: SignInNeeded, caller: Caller) -> Upstream:
    name = secrets.token_urlsafe(16)
    asked = {**_question(error), "elicitationId": name}
    try:
        answer = await caller.asked(METHOD, asked)
    except RpcError:
        # Some clients open pages only for this error (LibreChat, GitHub's pull request 14141).
        raise rpc_error(_URL_NEEDED, error.message, elicitations=[asked]) from None
    own = await _signed_in(users, caller, _WAIT) if answer.get("action") == "accept" else None
    if own is None:
        raise error
    caller.notified("notifications/elicitation/complete", {"elicitationId": name})
    return own


async def _signed_in(users: OwnUpstreams, caller: Caller, seconds: float) -> Upstream | None:
    """Wait until the caller has an upstream of its own; None: the time is over."""
    own = await users.look_up(caller.principal)
    with anyio.move_on_after(seconds):
        while own is None:
            await anyio.sleep(_LOOK)
            own = await users.look_up(caller.principal)
    return own


def _question(error: SignInNeeded) -> dict[str, Any]:
    message = f"The server {error.server!r} needs you to sign in to it, with your own account there."
    return {"mode": "url", "url": error.page, "message": message}


def _accepts(params: Mapping[str, Any]) -> bool:
    responses: object = params.get("inputResponses")
    answer = cast("dict[str, Any]", responses).get(_KEY) if isinstance(responses, dict) else None
    return isinstance(answer, dict) and cast("dict[str, Any]", answer).get("action") == "accept"


def _shows_pages(capabilities: Mapping[str, Any]) -> bool:
    """Whether a client with these capabilities opens pages for its user."""
    modes: object = capabilities.get("elicitation")
    return isinstance(modes, Mapping) and "url" in modes
