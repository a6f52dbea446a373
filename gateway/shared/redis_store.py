"""One Redis or Valkey: it runs the scripts of a request within a time limit, or not at all.

Turns a script and its arguments into its result, or into None if the store is down, slow, at fault, or not a Redis.
After the store has failed to answer, it gets no request until it answers a probe; one is sent every second, in the
background. If a request may only have been too large for the time limit, a probe is sent at once, to see whether the
store is down. The log says once that it stopped answering, and once that it answers again. Knows no keys and no values.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, cast

import anyio
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.maint_notifications import MaintNotificationsConfig

from gateway.errors import ConfigError
from gateway.escape import escape_text
from gateway.observe.backend_metrics import SharedMetrics, SharedResult
from gateway.observe.logs import get_logger
from gateway.shared.scripts import Script

Argument = bytes | str | int | float

_AGAIN: Final = 1.0
"""Seconds between two probes while the store is down."""
_BEAT: Final = 5.0
"""Seconds between two probes while the store answers."""
_CONNECT: Final = 1.0
"""Seconds that a probe may take to connect: nobody waits for it."""
_CONNECTIONS: Final = 32
_SHOWN: Final = 200

log = get_logger("shared")


class RedisClient(Protocol):
    """The part of the library that is used."""

    async def execute_command(self, *args: Argument) -> Any:
        """Send a command and return the answer."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


def open_client(url: str, timeout: float) -> RedisClient:
    """A client for an address; nothing is connected yet. Raises `ConfigError` for an invalid address."""
    try:
        client = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            socket_timeout=timeout,
            socket_connect_timeout=_CONNECT,
            # Requests have a time limit that leaves no time for a second try.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            # Else the server could send us to another address.
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            driver_info=None,
        )
        # The parameters in the query of the URL are checked only when a connection is created.
        client.connection_pool.make_connection()
    except (ValueError, TypeError, AttributeError, RedisError, OSError) as error:
        raise ConfigError(f"shared.url can't be used: {_shown(error)}") from None
    return cast("RedisClient", client)


class RedisStore:
    """One store, and whether it answers."""

    def __init__(self, client: RedisClient, timeout: float, metrics: SharedMetrics) -> None:
        """The store counts as down until it has answered. `timeout`: the seconds that a request may take."""
        self._client = client
        self._timeout = timeout
        self._metrics = metrics
        self._turns = asyncio.Semaphore(_CONNECTIONS)
        self._reason: str | None = "it has not been asked yet"
        self._logged: str | None = None
        """The last refusal or failure that was logged."""
        self._failed = asyncio.Event()
        """Set when the store is to be probed at once."""
        self._sure = asyncio.Event()
        """Unset while a probe has yet to show whether the store is down."""
        self._sure.set()
        self._was_away = False
        """Whether a probe has failed since it last answered one: it may have lost what it held."""
        self._returned = -math.inf
        """When it last answered after that, by the event loop's clock."""
        self._stopped = False
        """Whether it is no longer watched."""
        metrics.up(False)

    @property
    def reason(self) -> str | None:
        """Why it is down; None: it answers."""
        return self._reason

    @property
    def back_for(self) -> float:
        """For how many seconds it has answered since it was last away; infinite: it never was.

        One late answer does not count: a busy store would seem to come back all the time.
        """
        return asyncio.get_running_loop().time() - self._returned

    async def run(self, kind: str, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """The result of a script; None: there was no answer. `kind`: how the request is counted."""
        clock = asyncio.get_running_loop().time
        until = clock() + self._timeout
        if not await self._answers(until):
            self._metrics.asked(kind, "away")
            return None
        excuse = True
        try:
            async with asyncio.timeout_at(until), self._turns:
                # Time spent waiting for a connection is not the store's fault.
                excuse = script.large or until - clock() < self._timeout / 2
                answer = await self._evaluate(script, keys, args)
        # Whatever is at that address, and whatever it answers, no request of a client may fail because of it.
        except Exception as error:  # noqa: BLE001
            self._metrics.asked(kind, self._fault(error, excuse=excuse))
            return None
        self._metrics.asked(kind, "ok")
        return answer

    async def _answers(self, until: float) -> bool:
        """Whether the store answers, as far as is known. Waits for the outcome of a probe that decides it."""
        if not self._sure.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._sure.wait()
        return self._reason is None and self._sure.is_set()

    @asynccontextmanager
    async def running(self, beat: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
        """Watch the store while the context lasts. `beat`: asks it something, and raises if it does not answer."""
        await self._look(beat)
        watching = asyncio.get_running_loop().create_task(self._watch(beat))
        try:
            yield
        finally:
            self._stopped = True
            watching.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({watching})
                await self._close()

    async def ask(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """The result of a script, whether or not the store counts as down. Raises what the library raises."""
        async with asyncio.timeout(self._timeout):
            return await self._evaluate(script, keys, args)

    async def _watch(self, beat: Callable[[], Awaitable[None]]) -> None:
        # A cancellation can be lost inside the library (`asyncio.wait_for` of Python 3.11).
        while not self._stopped:
            with anyio.move_on_after(_BEAT):
                await self._failed.wait()
            if self._reason is not None:
                await anyio.sleep(_AGAIN)
            await self._look(beat)

    async def _look(self, beat: Callable[[], Awaitable[None]]) -> None:
        try:
            # Connecting may take longer than a request may wait, but not when requests wait for this probe.
            async with asyncio.timeout(_CONNECT if self._sure.is_set() else self._timeout):
                await self._client.execute_command("PING")
            await beat()
        except Exception as error:  # noqa: BLE001 - as above
            self._was_away = True
            self._lost(error)
            # The connections may lead to a server that is no longer the primary, or to none.
            await self._close()
            return
        self._failed.clear()
        self._sure.set()
        if self._was_away:
            self._was_away, self._returned = False, asyncio.get_running_loop().time()
        if self._reason is not None:
            self._reason = self._logged = None
            self._metrics.up(True)
            log.info("the shared store answers")

    async def _close(self) -> None:
        """Close all connections; new ones are made when needed. What the library raises must not end the watch."""
        with suppress(Exception):
            await self._client.aclose()

    async def _evaluate(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        try:
            return await self._client.execute_command("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.text, len(keys), *keys, *args)

    def _fault(self, error: Exception, *, excuse: bool) -> SharedResult:
        """How a failed request is counted. `excuse`: whether it may be late although the store is up."""
        if isinstance(error, ResponseError):
            if self._logged is None:
                self._logged = _shown(error)
                log.warning(
                    "the shared store refused a request: this gateway continues without an answer", reason=self._logged
                )
            return "refused"
        late = isinstance(error, TimeoutError | RedisTimeoutError)
        if late and excuse and self._reason is None:
            self._sure.clear()
            self._failed.set()
        else:
            self._lost(error)
        return "late" if late else "lost"

    def _lost(self, error: Exception) -> None:
        before, self._reason = self._reason, _shown(error)
        self._failed.set()
        self._sure.set()
        self._metrics.up(False)
        if before is None or self._logged is None:
            self._logged = self._reason
            log.warning("the shared store can't be used: this gateway continues without it", reason=self._reason)


def _shown(error: Exception) -> str:
    """The text of an error, escaped and cut: what a server says is not trusted."""
    words = "it did not answer in time" if isinstance(error, TimeoutError | RedisTimeoutError) else str(error)
    return escape_text(words or type(error).__name__, _SHOWN)
