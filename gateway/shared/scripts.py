"""What the store does by itself, in Lua: each script is one step for all replicas, by the store's own clock.

Texts alone. A script's keys must be in one place: a cluster that spreads them needs a prefix with braces, `{gateway}:`.
"""

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Final

_NOW: Final = "local t = redis.call('TIME')\nlocal now = tonumber(t[1]) + tonumber(t[2]) / 1000000\n"


@dataclass(frozen=True, slots=True)
class Script:
    """One script, and the digest by which a store knows one that it has seen."""

    text: str
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", sha1(self.text.encode(), usedforsecurity=False).hexdigest())


BUCKET: Final = Script(
    _NOW
    + """
local size, rate, take = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local held = redis.call('HMGET', KEYS[1], 'left', 'at')
local left, at = tonumber(held[1] or ''), tonumber(held[2] or '')
if left == nil or at == nil then left, at = size, now end
-- A clock that was set back gives nothing, and takes nothing.
left = math.min(size, left + math.max(0, now - at) * rate)
local wait = 0
if left < 1 - 0.000001 then wait = (1 - left) / rate elseif take == 1 then left = math.max(0, left - 1) end
if take == 1 then
  redis.call('HSET', KEYS[1], 'left', string.format('%.17g', left), 'at', string.format('%.17g', now))
  redis.call('PEXPIRE', KEYS[1], math.ceil((size - left) / rate * 1000) + 1000)
end
return string.format('%.17g', wait)
"""
)
"""Take a token of a bucket, or look whether there is one.

KEYS: the bucket. ARGV: its size, tokens a second, 1 to take. Gives seconds to wait, as text.
"""

PRESENT: Final = Script(
    _NOW
    + """
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - tonumber(ARGV[2]))
redis.call('PEXPIRE', KEYS[1], math.ceil(tonumber(ARGV[2]) * 1000))
return redis.call('ZCARD', KEYS[1])
"""
)
"""Say that a replica is there. KEYS: the list. ARGV: its name, seconds for which that counts. Gives how many are."""

ABSENT: Final = Script("return redis.call('ZREM', KEYS[1], ARGV[1])")
"""Say that it is not any more. KEYS: the list. ARGV: its name."""
