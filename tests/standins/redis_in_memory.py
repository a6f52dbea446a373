"""A Redis in the tests' own process: its wire, its clock and its types in Python; the scripts run in real Lua 5.1.

It knows the commands that the gateway's scripts use, and no other: a new one fails with its name. `make shared-check`
runs the same tests with the real server.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from hashlib import sha1
from typing import Any

from lupa.lua51 import LuaRuntime, lua_type


class Refused(Exception):
    """An error reply."""


class Status(bytes):
    """A reply that is no value."""


class Memory:
    """Keys and their values, on a clock that may be a test's."""

    def __init__(self, clock: Callable[[], float] = lambda: datetime.now(UTC).timestamp()) -> None:
        self.clock = clock
        self.values: dict[bytes, Any] = {}
        self.ends: dict[bytes, float] = {}
        self._texts: dict[bytes, bytes] = {}
        self._lua = LuaRuntime(encoding=None, unpack_returned_tuples=True)
        self._lua.globals()[b"redis"] = self._lua.table_from({b"call": self._call})

    def command(self, name: bytes, *args: bytes) -> Any:
        """One command; gives what Redis would."""
        found = getattr(self, f"_{name.decode().lower()}", None)
        if found is None:
            raise Refused(f"ERR unknown command '{name.decode()}'")
        return found(*args)

    def _held(self, key: bytes, kind: type) -> Any:
        if (end := self.ends.get(key)) is not None and end < self.clock():
            self.values.pop(key, None)
            self.ends.pop(key, None)
        value = self.values.get(key)
        if value is not None and kind is not object and type(value) is not kind:
            raise Refused("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def _made(self, key: bytes, kind: type) -> Any:
        value = self._held(key, kind)
        if value is None:
            value = self.values[key] = kind()
        return value

    def _swept(self, key: bytes) -> None:
        if not self.values.get(key):
            self._del(key)

    # Scripts.

    def _eval(self, text: bytes, count: bytes, *rest: bytes) -> Any:
        self._texts[sha1(text).hexdigest().encode()] = text
        n = int(count)
        table = self._lua.table_from
        run = self._lua.execute(b"return function(KEYS, ARGV) " + text + b" end")
        return self._told(run(table(list(rest[:n])), table(list(rest[n:]))))

    def _evalsha(self, digest: bytes, count: bytes, *rest: bytes) -> Any:
        if digest not in self._texts:
            raise Refused("NOSCRIPT No matching script. Please use EVAL.")
        return self._eval(self._texts[digest], count, *rest)

    def _call(self, name: bytes, *args: Any) -> Any:
        texts = [each if isinstance(each, bytes) else _number(each) for each in args]
        return self._as_lua(self.command(name, *texts))

    def _as_lua(self, value: Any) -> Any:
        if isinstance(value, Status):
            return self._lua.table_from({b"ok": bytes(value)})
        if value is None:
            return False
        return self._lua.table_from([self._as_lua(each) for each in value]) if isinstance(value, list) else value

    def _told(self, value: Any) -> Any:
        if lua_type(value) == "table":
            found: list[Any] = []
            while (each := value[len(found) + 1]) is not None:
                found.append(self._told(each))
            return found
        if isinstance(value, bool) or value is None:
            return 1 if value else None
        return int(value) if isinstance(value, int | float) else value

    # Commands.

    def _ping(self) -> bytes:
        return b"PONG"

    def _time(self) -> list[bytes]:
        whole, part = divmod(self.clock(), 1)
        return [b"%d" % whole, b"%d" % (part * 1_000_000)]

    def _del(self, *keys: bytes) -> int:
        self.ends = {key: end for key, end in self.ends.items() if key not in keys}
        return sum(self.values.pop(key, None) is not None for key in keys)

    def _pexpire(self, key: bytes, ms: bytes) -> int:
        if key in self.values:
            self.ends[key] = self.clock() + int(ms) / 1000
        return int(key in self.values)

    def _exists(self, key: bytes) -> int:
        return int(self._held(key, object) is not None)

    def _type(self, key: bytes) -> Status:
        held = self._held(key, object)
        names = {dict: b"hash", _Sorted: b"zset", bytes: b"string"}
        return Status(b"none" if held is None else names[type(held)])

    def _get(self, key: bytes) -> bytes | None:
        return self._held(key, bytes)

    def _set(self, key: bytes, value: bytes) -> Status:
        self._del(key)
        self.values[key] = value
        return Status(b"OK")

    def _incrby(self, key: bytes, more: bytes) -> int:
        total = int(self._held(key, bytes) or b"0") + int(more)
        self.values[key] = b"%d" % total
        return total

    def _zincrby(self, key: bytes, more: bytes, member: bytes) -> bytes:
        held = self._made(key, _Sorted)
        held[member] = held.get(member, 0.0) + float(more)
        return _number(held[member])

    def _zrange(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        held = self._held(key, _Sorted)
        return held.ordered()[int(first) : int(last) + 1] if held else []

    def _zrevrange(self, key: bytes, first: bytes, last: bytes) -> list[bytes]:
        held = self._held(key, _Sorted)
        return held.ordered()[::-1][int(first) : int(last) + 1] if held else []

    def _hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        held = self._held(key, dict) or {}
        return [held.get(field) for field in fields]

    def _hget(self, key: bytes, field: bytes) -> bytes | None:
        return self._hmget(key, field)[0]

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        self._made(key, dict).update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(pairs) // 2

    def _zadd(self, key: bytes, *pairs: bytes) -> int:
        self._made(key, _Sorted).update(
            {member: float(score) for score, member in zip(*[iter(pairs)] * 2, strict=True)}
        )
        return len(pairs) // 2

    def _zrem(self, key: bytes, *members: bytes) -> int:
        held = self._held(key, _Sorted) or {}
        removed = sum(held.pop(member, None) is not None for member in members)
        self._swept(key)
        return removed

    def _zcard(self, key: bytes) -> int:
        return len(self._held(key, _Sorted) or ())

    def _zscore(self, key: bytes, member: bytes) -> bytes | None:
        score = (self._held(key, _Sorted) or {}).get(member)
        return None if score is None else _number(score)

    def _zrangebyscore(self, key: bytes, low: bytes, high: bytes, *limit: bytes) -> list[bytes]:
        held = self._held(key, _Sorted) or {}
        found = [each for each in held.ordered() if float(low) <= held[each] <= float(high)] if held else []
        return found[: int(limit[2])] if limit else found

    def _zremrangebyscore(self, key: bytes, low: bytes, high: bytes) -> int:
        return self._zrem(key, *self._zrangebyscore(key, low, high))


class _Sorted(dict[bytes, float]):
    """A sorted set."""

    def ordered(self) -> list[bytes]:
        return sorted(self, key=lambda member: (self[member], member))


def _number(value: float) -> bytes:
    """As Redis makes a text of a Lua number."""
    return b"%d" % value if float(value).is_integer() else b"%.17g" % value


@asynccontextmanager
async def redis_in_memory(memory: Memory, port: int = 0) -> AsyncGenerator[int]:
    """Serve it on loopback while the context lasts; gives the port."""

    writers: set[asyncio.StreamWriter] = set()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        try:
            while line := await reader.readline():
                args = []
                for _ in range(int(line[1:])):
                    size = int((await reader.readline())[1:])
                    args.append((await reader.readexactly(size + 2))[:-2])
                try:
                    writer.write(_encoded(memory.command(*args)))
                except Refused as error:
                    writer.write(b"-%b\r\n" % str(error).encode())
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writers.discard(writer)
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for writer in list(writers):
            writer.transport.abort()


def _encoded(value: Any) -> bytes:
    if value is None:
        return b"$-1\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(map(_encoded, value))
    return b"$%d\r\n%b\r\n" % (len(value), value)


async def _serve(port: int) -> None:
    async with redis_in_memory(Memory(), port):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
