"""One Redis or Valkey: it runs the scripts of a request within a time limit, or not at all.

Turns a script and its arguments into its result, or into None if the store is down, slow, at fault, or no Redis. Once
it has failed to answer, it is asked nothing more until it answers a try; one is made every second, in the background.
If a request may only have been too large for the time limit, a try at once shows whether the store is down. The log is
told once when it stops answering, and once when it answers again. It knows no keys and no values.
"""

import asyncio
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
from gateway.observe.escape import escape_text
from gateway.observe.logs import get_logger
from gateway.observe.shared_metrics import SharedMetrics, SharedResult
from gateway.shared.scripts import Script

Argument = bytes | str | int | float

_AGAIN: Final = 1.0
"""Seconds between two tries while it is away."""
_BEAT: Final = 5.0
"""Seconds between two looks while it is there."""
_CONNECT: Final = 1.0
"""Seconds that a try may take to connect: nobody waits for it."""
_CONNECTIONS: Final = 32
_SHOWN: Final = 200

log = get_logger("shared")


class Client(Protocol):
    """The part of the library that is used."""

    async def execute_command(self, *args: Argument) -> Any:
        """Send a command; gives the answer."""
        ...

    async def aclose(self) -> None:
        """Close all connections."""
        ...


def open_client(url: str, timeout: float) -> Client:
    """A client for an address; nothing is connected yet. Raises `ConfigError` for an invalid address."""
    try:
        client = Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            socket_timeout=timeout,
            socket_connect_timeout=_CONNECT,
            # Whoever waits has no time for a second try.
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            # The server can't send us elsewhere.
            maint_notifications_config=MaintNotificationsConfig(enabled=False),
            driver_info=None,
        )
        # What the address says in its query is looked at when a connection is made.
        client.connection_pool.make_connection()
    except (ValueError, TypeError, AttributeError, RedisError, OSError) as error:
        raise ConfigError(f"shared.url can't be used: {_shown(error)}") from None
    return cast("Client", client)


class RedisStore:
    """One store, and whether it answers."""

    def __init__(self, client: Client, timeout: float, metrics: SharedMetrics) -> None:
        """The store counts as down until it has answered. `timeout`: the seconds that a request may take."""
        self._client = client
        self._timeout = timeout
        self._metrics = metrics
        self._turns = asyncio.Semaphore(_CONNECTIONS)
        self._reason: str | None = "it was not asked yet"
        self._told: str | None = None
        """The last refusal that was said."""
        self._failed = asyncio.Event()
        """It is to be looked at."""
        self._sure = asyncio.Event()
        """Unset while a look is to tell whether it is there."""
        self._sure.set()
        self._left = False
        """Whether nobody looks after it any more."""
        metrics.up(False)

    @property
    def reason(self) -> str | None:
        """Why it is down; None: it answers."""
        return self._reason

    async def run(self, kind: str, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """A script's result; None: there was no answer. `kind`: how the request is counted."""
        until = asyncio.get_running_loop().time() + self._timeout
        if not await self._answers(until):
            self._metrics.asked(kind, "away")
            return None
        excuse = True
        try:
            async with asyncio.timeout_at(until), self._turns:
                # To wait for others is not its fault.
                excuse = script.large
                answer = await self._evaluate(script, keys, args)
        # Whatever a server may say that is none, or not for us: no request fails for it.
        except Exception as error:  # noqa: BLE001
            self._metrics.asked(kind, self._fault(error, excuse=excuse))
            return None
        self._metrics.asked(kind, "ok")
        return answer

    async def _answers(self, until: float) -> bool:
        """Whether the store answers, as far as is known. If that is being tried just now, wait for the outcome."""
        if not self._sure.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._sure.wait()
        return self._reason is None and self._sure.is_set()

    @asynccontextmanager
    async def running(self, beat: Callable[[], Awaitable[None]]) -> AsyncGenerator[None]:
        """Watch the store for as long as the context lasts. `beat`: asks it something, and raises without an answer."""
        await self._look(beat)
        watching = asyncio.get_running_loop().create_task(self._watch(beat))
        try:
            yield
        finally:
            self._left = True
            watching.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({watching})
                await self._close()

    async def ask(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """A script's result, whether or not the store counts as down. Raises what the library raises."""
        async with asyncio.timeout(self._timeout):
            return await self._evaluate(script, keys, args)

    async def _watch(self, beat: Callable[[], Awaitable[None]]) -> None:
        # A cancellation can be lost on its way through the library (`asyncio.wait_for` of Python 3.11).
        while not self._left:
            with anyio.move_on_after(_BEAT):
                await self._failed.wait()
            if self._reason is not None:
                await anyio.sleep(_AGAIN)
            await self._look(beat)

    async def _look(self, beat: Callable[[], Awaitable[None]]) -> None:
        try:
            # To connect may take longer than a request may wait; the answer after that may not.
            async with asyncio.timeout(_CONNECT if self._sure.is_set() else self._timeout):
                await self._client.execute_command("PING")
            await beat()
        except Exception as error:  # noqa: BLE001 - as above
            self._lost(error)
            # They may lead to a server that is no primary any more, or to nobody.
            await self._close()
            return
        self._failed.clear()
        self._sure.set()
        if self._reason is not None:
            self._reason = self._told = None
            self._metrics.up(True)
            log.info("the shared store answers")

    async def _close(self) -> None:
        """Close all connections; new ones are made when needed. The watch goes on whatever the library raises."""
        with suppress(Exception):
            await self._client.aclose()

    async def _evaluate(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        try:
            return await self._client.execute_command("EVALSHA", script.digest, len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.text, len(keys), *keys, *args)

    def _fault(self, error: Exception, *, excuse: bool) -> SharedResult:
        """How a failed request is counted. `excuse`: it may be late for another reason than that the store is down."""
        if isinstance(error, ResponseError):
            if self._told is None:
                self._told = _shown(error)
                log.warning("the shared store refuses a question: this gateway goes on without", reason=self._told)
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
        if before is None or self._told is None:
            self._told = self._reason
            log.warning("the shared store is away: this gateway goes on with what it has", reason=self._reason)


def _shown(error: Exception) -> str:
    """The error's words, escaped and cut: a server's are not trusted."""
    words = "it did not answer in time" if isinstance(error, TimeoutError | RedisTimeoutError) else str(error)
    return escape_text(words or type(error).__name__, _SHOWN)
