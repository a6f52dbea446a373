"""Translation between the eras: a handshake-era server's questions for a modern client, and the reverse.

A handshake-era server asks in the middle of a call and waits; a modern client can't be asked, but repeats its request
with what the last answer asked for. So the server's call is parked: the client gets `input_required` with the questions
and a token, and its next request with that token continues the call. The other way round, a modern server's
`input_required` becomes questions to the client, and the request is repeated with the client's answers. Tokens are
secret, belong to the principal who got them, and expire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import anyio

from gateway.errors import GatewayError, RpcError, UpstreamUnavailable, rpc_error
from gateway.protocol.eras import PROGRESS, PROGRESS_KEY, excess_of_answer, is_input_required, meta_of
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.dispatcher import SessionGone
from gateway.proxy.upstream.session.session import cannot_ask
from gateway.proxy.upstream.upstream import Upstream

# A modern client sees states of calls parked here and of modern servers, and such a server may be a gateway like this
# one, whose states begin like ours. So a server's state that could be taken for ours gets a prefix on its way to the
# client, and loses it on its way back.

PARKED: Final = "codec-gateway."
"""Prefix of our own states."""
_RELAYED: Final = "relayed."
"""The prefix for a server's state. A state that begins with it already gets it too, so exactly one is removed."""


def is_parked(params: Mapping[str, Any]) -> bool:
    """Whether a request continues a call that is parked here, or claims to."""
    state = params.get("requestState")
    return isinstance(state, str) and state.startswith(PARKED)


def to_client(result: dict[str, Any]) -> dict[str, Any]:
    """A server's `input_required` as the client gets it."""
    state = result.get("requestState")
    if not isinstance(state, str) or not state.startswith((PARKED, _RELAYED)):
        return result
    return {**result, "requestState": _RELAYED + state}


def to_server(params: dict[str, Any]) -> dict[str, Any]:
    """The params of a client's next round as the server gets them."""
    state = params.get("requestState")
    if not isinstance(state, str) or not state.startswith(_RELAYED):
        return params
    return {**params, "requestState": state.removeprefix(_RELAYED)}


_ANSWER_TIME: Final = 600.0
"""Seconds that a question waits for the client's next round, and an outcome for the client to fetch it."""
_MOST: Final = 1000
_ROUNDS: Final = 32


Run = Callable[[Caller], Awaitable[dict[str, Any]]]


class Parked:
    """One call to a handshake-era server, which spans several requests of the client; the server's `Caller`."""

    modern = True
    session: ClientSession | None = None

    def __init__(self, token: str, caller: Caller, server: str, method: str, params: Mapping[str, Any]) -> None:
        """Start without questions. `params`: those of the first round."""
        self.token = token
        self.server = server
        self.method = method
        self.capabilities: Mapping[str, Any] = caller.capabilities
        self.log_level = caller.log_level
        self.principal: Principal = caller.principal
        self.round: Caller | None = None
        self.outcome: dict[str, Any] | GatewayError | None = None
        self.scope = anyio.CancelScope()
        self._questions: dict[str, tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]] = {}
        self._asked = 0
        self._progress_token: object = None
        self._changed = asyncio.Event()
        self.join(caller, params)

    def join(self, caller: Caller, params: Mapping[str, Any]) -> None:
        """Attach the client's current round; each has a progress token of its own, or none."""
        self.round = caller
        self._progress_token = meta_of(params).get(PROGRESS_KEY)

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Pass the notification to the current round, if there is one."""
        if self.round is None:
            return
        if method == PROGRESS and self._progress_token is None:
            return
        named = {PROGRESS_KEY: self._progress_token} if method == PROGRESS else {}
        self.round.notified(method, {**params, **named})

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Put the question among the input requests of the next answer, and wait for the client's response."""
        if method.partition("/")[0] not in self.capabilities:
            raise cannot_ask(method)
        self._asked += 1
        key = f"q{self._asked}"
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._questions[key] = ({"method": method, "params": params}, answer)
        self._changed.set()
        try:
            with anyio.fail_after(_ANSWER_TIME):
                result = await answer
        except TimeoutError:
            raise rpc_error(INTERNAL_ERROR, f"the client did not answer {method!r} in time") from None
        finally:
            self._questions.pop(key, None)
        if (why := excess_of_answer(method, result)) is not None:
            raise rpc_error(INTERNAL_ERROR, why)
        return result

    def end(self, outcome: dict[str, Any] | GatewayError) -> None:
        """Store the outcome of the server's call, which is over."""
        self.outcome = outcome
        self._changed.set()

    def answer(self, responses: Mapping[str, Any]) -> None:
        """Give the responses of the client's next round to the questions that wait for them."""
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and not question[1].done() and isinstance(response, dict):
                question[1].set_result(cast("dict[str, Any]", response))
                # Removed at once, so that this round's answer does not ask it again.
                self._questions.pop(key)

    async def settled(self) -> dict[str, Any]:
        """Wait for what answers this round, and return it: the outcome, or the open questions. Raises `GatewayError`:
        the outcome is an error."""
        while self.outcome is None and not self._questions:
            self._changed.clear()
            await self._changed.wait()
        if isinstance(self.outcome, GatewayError):
            raise self.outcome
        if self.outcome is not None:
            return self.outcome
        requests = {key: question for key, (question, _) in self._questions.items()}
        return {"resultType": "input_required", "inputRequests": requests, "requestState": self.token}


class Bridge:
    """The parked calls of one proxy."""

    def __init__(self, start_soon: Callable[..., None], rule: ShareRule, name: Callable[[str], str]) -> None:
        """Start with no parked calls.

        Args:
            start_soon: starts the tasks that run parked calls.
            rule: how many parked calls one principal may have.
            name: turns a principal's name into a token that nobody can guess.
        """
        self._name = name
        self._start_soon = start_soon
        self._shares = rule.shares("parked_call", _MOST, "places for calls that wait for their clients' answers")
        self._parked: dict[str, Parked] = {}

    @property
    def waits(self) -> bool:
        """Whether any call is parked."""
        return bool(self._parked)

    async def begin(self, server: str, method: str, params: dict[str, Any], caller: Caller, run: Run) -> dict[str, Any]:
        """Run the first round of a call in which the client may be asked questions.

        Args:
            run: makes the call on behalf of the caller that it is given, and returns the result.

        Raises:
            GatewayError: what `run` raised, or the principal has too many parked calls.
        """
        if (over := self._shares.take(caller.principal)) is not None:
            raise UpstreamUnavailable(over.message, server=server)
        token = PARKED + self._name(caller.principal.name)
        parked = Parked(token, caller, server, method, params)
        self._parked[parked.token] = parked
        self._start_soon(self._run, parked, run)
        return await self._round(parked)

    async def resume(self, method: str, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """Run a further round of a parked call.

        Raises:
            RpcError: the token is not one of this principal's, or has expired.
            GatewayError: as `Dispatcher.request`.
        """
        parked = self._parked.get(str(params.get("requestState")))
        if parked is None or parked.principal != caller.principal or parked.method != method:
            raise unknown_state()
        if parked.round is not None:
            raise rpc_error(INVALID_PARAMS, "a request with this requestState is already running")
        parked.join(caller, params)
        responses: object = params.get("inputResponses")
        parked.answer(cast("dict[str, Any]", responses) if isinstance(responses, dict) else {})
        return await self._round(parked)

    async def _round(self, parked: Parked) -> dict[str, Any]:
        try:
            answer = await parked.settled()
        except BaseException:
            # The outcome is an error, or the client disconnected during the round: nobody will come back for it.
            self._end(parked)
            raise
        if parked.outcome is not None:
            self._end(parked)
        parked.round = None
        return answer

    def _end(self, parked: Parked) -> None:
        self._forget(parked)
        parked.scope.cancel()

    def _forget(self, parked: Parked) -> None:
        if self._parked.pop(parked.token, None) is not None:
            self._shares.give_back(parked.principal)

    async def _run(self, parked: Parked, run: Run) -> None:
        with parked.scope:
            try:
                parked.end(await run(parked))
            except GatewayError as error:
                parked.end(error)
            except Exception as error:  # noqa: BLE001 - the one boundary: one parked call must not end the others
                parked.end(rpc_error(INTERNAL_ERROR, f"the call failed inside the gateway: {type(error).__name__}"))
            # A server may finish without waiting for an answer; the client, told to come back, finds the outcome here.
            await anyio.sleep(_ANSWER_TIME)
        self._forget(parked)


def unknown_state(why: str = "") -> RpcError:
    """The error for a token that belongs to no parked call, or no longer. `why`: the reason, if it is known."""
    detail = f" ({why})" if why else ""
    return rpc_error(INVALID_PARAMS, f"unknown or expired requestState{detail}: send the request again without it")


async def ask_alone(
    upstream: Upstream,
    method: str,
    params: dict[str, Any],
    caller: Caller,
    recheck: Callable[[], Awaitable[None]] | None = None,
) -> dict[str, Any]:
    """Make the call in a session that nobody else uses; in a new one, if the server has forgotten the first.

    `recheck`: see `Dispatcher.request`.
    """
    try:
        async with upstream.lease(caller, params) as member:
            return await upstream.dispatcher.request(method, params, caller, member=member)
    except SessionGone:
        async with upstream.lease(caller, params) as member:
            if recheck is not None:
                await recheck()
            return await upstream.dispatcher.request(method, params, caller, member=member)


async def answer_rounds(
    result: dict[str, Any],
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    params: Mapping[str, Any],
    caller: Caller,
) -> dict[str, Any]:
    """Return a modern server's final result, after asking a handshake-era caller for what the server needs.

    Args:
        result: the first result, which may be final already.
        ask: sends the request again, with the given params.

    Raises:
        RpcError: the client refused or can't be asked, or the server still asks after 32 rounds.
    """
    for _ in range(_ROUNDS):
        if not is_input_required(result):
            return result
        requests: object = result.get("inputRequests")
        answers: dict[str, Any] = {}
        for key, request in (cast("dict[str, Any]", requests) if isinstance(requests, dict) else {}).items():
            answers[key] = await _put(request, caller)
        sent = {key: value for key, value in params.items() if key != "requestState"}
        sent["inputResponses"] = answers
        if "requestState" in result:
            sent["requestState"] = result["requestState"]
        result = await ask(sent)
    raise rpc_error(INTERNAL_ERROR, f"the server asked for input {_ROUNDS} times and gave no result")


async def _put(request: object, caller: Caller) -> dict[str, Any]:
    question = cast("dict[str, Any]", request) if isinstance(request, dict) else {}
    method, params = question.get("method"), question.get("params")
    if not isinstance(method, str):
        raise rpc_error(INTERNAL_ERROR, "the server asked for input, but one of its inputRequests names no method")
    return await caller.asked(method, cast("dict[str, Any]", params) if isinstance(params, dict) else {})
