"""Between the eras: a handshake-era server's questions for a modern client, and the reverse.

A handshake-era server asks in the middle of a call and waits; a modern client can only be answered, and comes back with
what was asked for. So the server's call is parked: the client gets `input_required` with the questions and a token, and
its next request with that token goes on where the call stands. The other way round, a modern server's `input_required`
becomes questions to the client, whose answers go out with a repeated request. Tokens are secret, belong to the
principal who got them, and expire.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import anyio

from gateway.errors import GatewayError, RpcError, UpstreamUnavailable
from gateway.protocol.client_bounds import excess_of_answer
from gateway.protocol.eras import PROGRESS_KEY, is_input_required, meta_of
from gateway.protocol.messages import INTERNAL_ERROR, INVALID_PARAMS
from gateway.proxy.caller import Caller, ClientSession, Principal
from gateway.proxy.round_states import PARKED
from gateway.proxy.shares import ShareRule
from gateway.proxy.upstream.dispatcher import SessionGone
from gateway.proxy.upstream.session import PROGRESS, cannot_ask, rpc_error
from gateway.proxy.upstream.upstream import Upstream

_ANSWER_TIME: Final = 600.0
"""Seconds that a question waits for the client's next round."""
_MOST: Final = 1000
_ROUNDS: Final = 32


class Parked:
    """One call of a handshake-era server, which outlives the client's rounds; the `Caller` that the server sees."""

    modern = True
    session: ClientSession | None = None

    def __init__(self, token: str, caller: Caller, server: str, method: str, params: Mapping[str, Any]) -> None:
        """Nothing has been asked yet; `params`: of the first round."""
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
        """This round is there now; each has a progress token of its own, or none."""
        self.round = caller
        self._progress_token = meta_of(params).get(PROGRESS_KEY)

    def notified(self, method: str, params: dict[str, Any]) -> None:
        """Goes to the round that is there, if one is."""
        if self.round is None:
            return
        if method == PROGRESS and self._progress_token is None:
            return
        named = {PROGRESS_KEY: self._progress_token} if method == PROGRESS else {}
        self.round.notified(method, {**params, **named})

    async def asked(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Becomes one of the next answer's input requests."""
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
        """The server's call is over."""
        self.outcome = outcome
        self._changed.set()

    def answer(self, responses: Mapping[str, Any]) -> None:
        """The client's next round: its answers reach who asked."""
        for key, response in responses.items():
            question = self._questions.get(key)
            if question is not None and not question[1].done() and isinstance(response, dict):
                question[1].set_result(cast("dict[str, Any]", response))
                # Taken out at once: it is not to be asked again in this round's answer.
                self._questions.pop(key)

    async def settled(self) -> dict[str, Any]:
        """What this round is answered: the outcome, or the questions that are open.

        Raises:
            GatewayError: the outcome is an error.
        """
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
        """Nothing is parked.

        Args:
            start_soon: of the tasks that run parked calls.
            rule: how many of them may be one principal's.
            name: gives a name that nobody can guess, of the principal of this name.
        """
        self._name = name
        self._start_soon = start_soon
        self._shares = rule.shares("parked_call", _MOST, "calls that wait for their clients' answers")
        self._parked: dict[str, Parked] = {}

    @property
    def waits(self) -> bool:
        """Whether any call is parked."""
        return bool(self._parked)

    async def begin(self, upstream: Upstream, method: str, params: dict[str, Any], caller: Caller) -> dict[str, Any]:
        """The first round of a call that may ask.

        Raises:
            GatewayError: as `Upstream.request`.
        """
        if (over := self._shares.take(caller.principal)) is not None:
            raise UpstreamUnavailable(over.message, server=upstream.config.name)
        token = PARKED + self._name(caller.principal.name)
        parked = Parked(token, caller, upstream.config.name, method, params)
        self._parked[parked.token] = parked
        self._start_soon(self._run, parked, upstream, params)
        return await self._round(parked)

    async def resume(self, method: str, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        """A further round.

        Raises:
            RpcError: the token is not one of this principal's, or has expired.
            GatewayError: as `Upstream.request`.
        """
        parked = self._parked.get(str(params.get("requestState")))
        if parked is None or parked.principal != caller.principal or parked.method != method:
            raise unknown_state()
        if parked.round is not None:
            raise rpc_error(INVALID_PARAMS, "this requestState is being answered already")
        parked.join(caller, params)
        responses: object = params.get("inputResponses")
        parked.answer(cast("dict[str, Any]", responses) if isinstance(responses, dict) else {})
        return await self._round(parked)

    async def _round(self, parked: Parked) -> dict[str, Any]:
        try:
            answer = await parked.settled()
        except BaseException:
            # The outcome is an error, or the client went away in the middle: nobody will come back for it.
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

    async def _run(self, parked: Parked, upstream: Upstream, params: dict[str, Any]) -> None:
        with parked.scope:
            try:
                parked.end(await _ask_alone(upstream, parked, params))
            except GatewayError as error:
                parked.end(error)
            except Exception as error:  # noqa: BLE001 - the one boundary: one parked call must not end the others
                parked.end(rpc_error(INTERNAL_ERROR, f"the call broke off: {type(error).__name__}"))
            # A server need not wait for what it asks: the client, who was told to come back, finds the outcome here.
            await anyio.sleep(_ANSWER_TIME)
        self._forget(parked)


def unknown_state(why: str = "") -> RpcError:
    """The error for a token that no call waits for any more. `why`: what is known of that."""
    detail = f" ({why})" if why else ""
    return rpc_error(INVALID_PARAMS, f"unknown or expired requestState{detail}: begin again without it")


async def _ask_alone(upstream: Upstream, parked: Parked, params: dict[str, Any]) -> dict[str, Any]:
    """The outcome on a session that nobody else uses; on another one, if the server had forgotten the first."""
    try:
        async with upstream.lease(parked, params) as member:
            return await upstream.dispatcher.request(parked.method, params, parked, member=member)
    except SessionGone:
        async with upstream.lease(parked, params) as member:
            return await upstream.dispatcher.request(parked.method, params, parked, member=member)


async def answer_rounds(
    result: dict[str, Any],
    ask: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    params: Mapping[str, Any],
    caller: Caller,
) -> dict[str, Any]:
    """The final result of a modern server for a caller of the handshake era, who is asked what the server needs.

    Args:
        result: the first one, which may be final already.
        ask: puts the request again, with more in its params.

    Raises:
        RpcError: the client refused or can't be asked, or the server asks without end.
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
    raise RpcError({"code": INTERNAL_ERROR, "message": f"the server asked {_ROUNDS} times and gave no answer"})


def asks_only(result: Mapping[str, Any], method: str) -> bool:
    """Whether all that an `input_required` result asks for is of this method."""
    requests: object = result.get("inputRequests")
    asked = cast("dict[str, Any]", requests) if isinstance(requests, dict) else {}
    methods = [
        cast("dict[str, Any]", each).get("method") if isinstance(each, dict) else None for each in asked.values()
    ]
    return bool(methods) and all(each == method for each in methods)


async def _put(request: object, caller: Caller) -> dict[str, Any]:
    question = cast("dict[str, Any]", request) if isinstance(request, dict) else {}
    method, params = question.get("method"), question.get("params")
    if not isinstance(method, str):
        raise rpc_error(INTERNAL_ERROR, "the server asked something that is not a request")
    return await caller.asked(method, cast("dict[str, Any]", params) if isinstance(params, dict) else {})
