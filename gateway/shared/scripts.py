"""What runs inside the store, in Lua: each script is one atomic step for all replicas, by the store's own clock.

Holds only the texts of the scripts. They build some names of keys themselves (for the totals of a kind, and for what a
record follows), so all keys must be on one server.
"""

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Final

_NOW: Final = "local t = redis.call('TIME')\nlocal now = tonumber(t[1]) + tonumber(t[2]) / 1000000\n"


@dataclass(frozen=True, slots=True)
class Script:
    """One script, and the digest by which the store knows it."""

    text: str
    large: bool = False
    """Whether its arguments or its result may be too large for the time limit of a request."""
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
"""Take a token from a bucket, or look whether there is one.

KEYS: the bucket. ARGV: its size, tokens a second, 1 to take one. Returns the seconds to wait, as text.
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
"""Register a replica. KEYS: the list. ARGV: its name, seconds for which that is valid. Returns how many there are."""

ABSENT: Final = Script("return redis.call('ZREM', KEYS[1], ARGV[1])")
"""Remove a replica. KEYS: the list. ARGV: its name."""

NEWEST: Final = Script(
    """
local newest, at = tonumber(ARGV[1]), nil
for _, key in ipairs(KEYS) do
  local version = tonumber(redis.call('HGET', key, 'version') or '')
  if version and version > newest then newest, at = version, key end
end
local found = {}
if at then
  found = {at, redis.call('HGET', at, 'value')}
elseif ARGV[2] ~= '' then
  at = KEYS[1]
  redis.call('HSET', at, 'version', ARGV[1], 'value', ARGV[2])
end
if at then redis.call('PEXPIRE', at, ARGV[3]) end
return found
"""
)
"""Read a value, or replace it by a newer one.

KEYS: where it may be stored; a new one is stored under the first. ARGV: the version that the caller has, its value
(empty: none), milliseconds to keep it. Returns the key and the value of a newer version; nothing if there is none.
"""

ACQUIRE: Final = Script(
    """
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then return 0 end
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1])
  redis.call('PEXPIRE', key, ARGV[2])
end
return 1
"""
)
"""Take a lease. KEYS: its names. ARGV: who takes it, milliseconds until it ends. Returns 1; 0: another has it."""

RELEASE: Final = Script(
    """
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
return 1
"""
)
"""End a lease. KEYS: its names. ARGV: who took it."""

_ROOM: Final = (
    _NOW
    + """
local owners, ends, sum, of = KEYS[1] .. 'owners', KEYS[1] .. 'ends', KEYS[1] .. 'sum', KEYS[1] .. 'of:'
local function forget(owner, member)
  local key, size = string.match(member, '^(%S+) (%d+)$')
  for alias in string.gmatch(redis.call('HGET', key, 'aliases') or '', '%S+') do
    -- It may name something newer by now.
    if redis.call('GET', alias) == key then redis.call('DEL', alias) end
  end
  redis.call('DEL', key)
  if redis.call('ZREM', of .. owner, member) == 1 then
    redis.call('INCRBY', sum, -tonumber(size))
    if tonumber(redis.call('ZINCRBY', owners, -tonumber(size), owner)) <= 0 then redis.call('ZREM', owners, owner) end
  end
end
local function leave(owner)
  redis.call('INCRBY', sum, -tonumber(redis.call('ZSCORE', owners, owner) or '0'))
  redis.call('ZREM', owners, owner)
  redis.call('ZREM', ends, owner)
  redis.call('DEL', of .. owner)
end
local function linked(key)
  -- What it follows, under one of its names; false where that is gone, nil where there was none.
  local names = redis.call('HGET', key, 'before') or ''
  for each in string.gmatch(names, '%S+') do
    if redis.call('EXISTS', each) == 1 then return each end
  end
  if names == '' then return nil end
  return false
end
local function use(owner, keys, ttl)
  -- What follows gives way first: without what comes before it, it is worth nothing.
  for n, key in ipairs(keys) do
    local size, aliases = unpack(redis.call('HMGET', key, 'size', 'aliases'))
    redis.call('ZADD', of .. owner, string.format('%.17g', now + ttl + n * 0.000001), key .. ' ' .. size)
    redis.call('PEXPIRE', key, math.ceil(ttl * 1000))
    for alias in string.gmatch(aliases or '', '%S+') do redis.call('PEXPIRE', alias, math.ceil(ttl * 1000)) end
  end
  redis.call('ZADD', ends, string.format('%.17g', now + ttl), owner)
  for _, key in ipairs({owners, ends, sum, of .. owner}) do
    redis.call('PEXPIRE', key, math.ceil(ttl * 1000) + 60000)
  end
end
"""
)
"""What the scripts for records have in common.

A record is a hash: its value, the names of what it follows, its size, its aliases. Under the name of the kind stand:
the bytes of each owner, when the last record of each owner expires, the bytes in all, and the records of each owner
in order of expiry.
"""

FIND: Final = Script(
    _ROOM
    + """
local most, depth, ttl, owner = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
for n = 2, #KEYS do
  local at = KEYS[n]
  if redis.call('TYPE', at)['ok'] == 'string' then at = redis.call('GET', at) end
  local keys, found, size = {}, {}, 0
  while at do
    local value = redis.call('HGET', at, 'value')
    if not value then break end
    size = size + #value
    keys[#keys + 1] = at
    found[#found + 1] = at
    found[#found + 1] = value
    if size > most or #keys > 2048 then break end
    local before = nil
    if #keys < depth then before = linked(at) end
    if before == nil then
      use(owner, keys, ttl)
      return found
    end
    at = before
  end
end
return {}
""",
    large=True,
)
"""Find the first of several records that exists, and all that it follows, or nothing.

KEYS: the kind, then records or their aliases. ARGV: bytes at most, records at most, seconds to keep them, their owner.
Returns the key and the value of each, newest first.
"""

KEEP: Final = Script(
    _ROOM
    + """
local value, before, ttl, owner = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local most, share, whole = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local key, aliases = KEYS[2], {}
for n = 3, #KEYS do aliases[#aliases + 1] = KEYS[n] end
local size = #value + 300 + 200 * #aliases
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 16)) do leave(gone) end
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', of .. owner, '-inf', now, 'LIMIT', 0, 64)) do forget(owner, gone) end
if redis.call('EXISTS', key) == 1 then return 2 end
redis.call('HSET', key, 'value', value, 'before', before, 'size', size, 'aliases', table.concat(aliases, ' '))
if whole and linked(key) == false then
  redis.call('DEL', key)
  return 0
end
for _, alias in ipairs(aliases) do redis.call('SET', alias, key) end
redis.call('ZINCRBY', owners, size, owner)
redis.call('INCRBY', sum, size)
local keys, at = {}, key
while at and #keys < 2048 do
  keys[#keys + 1] = at
  at = whole and linked(at)
end
use(owner, keys, ttl)
for _ = 1, 256 do
  local whose = owner
  if redis.call('ZCARD', owners) == 1 or tonumber(redis.call('ZSCORE', owners, owner) or '0') <= share then
    if tonumber(redis.call('GET', sum) or '0') <= most then break end
    whose = redis.call('ZREVRANGE', owners, 0, 0)[1]
  end
  local oldest = whose and redis.call('ZRANGE', of .. whose, 0, 0)[1]
  if oldest then forget(whose, oldest) elseif whose then leave(whose) else break end
end
return 1
""",
    large=True,
)
"""Keep a record, and delete others to stay within the bounds: those used longest ago, of whoever has the most.

KEYS: the kind, the record, its aliases. ARGV: its value, the names of what it follows, seconds to keep it, its owner,
bytes in all, bytes for one of several owners, 1 if what it follows must exist and is kept as long. Returns 1; 2 if the
record exists already; 0 if what it follows does not exist.
"""

DROP: Final = Script(
    _ROOM
    + """
local owner, dropped = ARGV[1], 0
for n = 2, #KEYS do
  local size = redis.call('HGET', KEYS[n], 'size')
  if size then
    forget(owner, KEYS[n] .. ' ' .. size)
    dropped = dropped + 1
  end
end
return dropped
"""
)
"""Delete records. KEYS: the kind, the records. ARGV: their owner. Returns how many existed."""
