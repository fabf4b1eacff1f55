"""What the server does in one step for us, as scripts. Nothing else runs meanwhile, so each is atomic.

The state is one hash: `token`, `owner` (who may write: a name that each claim makes up), `holder` (for people),
`lease` (its end, in milliseconds of the server's clock), `record`, `checkpoint`.
"""

from __future__ import annotations

from hashlib import sha1
from typing import NamedTuple


class Script(NamedTuple):
    """A script, and the name under which the server keeps it."""

    text: str
    digest: str


def _script(text: str) -> Script:
    return Script(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_NOW = "local time = redis.call('TIME') local now = time[1] * 1000 + math.floor(time[2] / 1000)"

CLAIM = _script(f"""
{_NOW}
local held = redis.call('HMGET', KEYS[1], 'token', 'owner', 'lease', 'tokens')
if held[2] ~= ARGV[1] and tonumber(held[3] or 0) > now then return tonumber(held[1] or 0) end
local token, lease = tonumber(ARGV[5]), tonumber(ARGV[6])
if token <= tonumber(held[1] or 0) then
    token, lease = math.max(tonumber(held[1] or 0), tonumber(held[4] or 0)) + 1, tonumber(ARGV[4])
    redis.call('HSET', KEYS[1], 'tokens', string.format('%.0f', token))
end
redis.call('HSET', KEYS[1], 'token', string.format('%.0f', token), 'owner', ARGV[2],
           'holder', ARGV[3], 'lease', string.format('%.0f', now + lease))
return redis.call('HMGET', KEYS[1], 'token', 'record', 'checkpoint')
""")
"""The former owner of ours, the new one, the holder, the lease until the token is on disk, a token that is there
already or 0, the lease with that. While somebody else holds the claim the answer is the token of that."""

RESERVE = _script("""
local held = redis.call('HMGET', KEYS[1], 'token', 'tokens')
local token = string.format('%.0f', math.max(tonumber(held[1] or 0), tonumber(held[2] or 0)) + 1)
redis.call('HSET', KEYS[1], 'tokens', token)
return token
""")
"""A token that nobody has had, for a claim to come. `tokens` is the highest that was ever given out."""

RENEW = _script(f"""
{_NOW}
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'lease', string.format('%.0f', now + tonumber(ARGV[2])))
return 1
""")

RELEASE = _script("""
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'owner', 'holder', 'lease')
return 1
""")

NOTE = _script("""
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[1], 'checkpoint', ARGV[2])
return 1
""")

MOST_WORDS = 7_900
"""Of one XADD: Lua passes 8,000 arguments at most."""

APPEND = _script("""
local held = redis.call('HMGET', KEYS[1], 'owner', 'record')
if held[1] ~= ARGV[1] or (held[2] or '') ~= ARGV[2] then return 0 end
local done, next = {}, 4
while next <= #ARGV do
  local key, last = KEYS[tonumber(ARGV[next]) + 2], next + 1 + tonumber(ARGV[next + 1])
  local id = redis.pcall('XADD', key, '*', unpack(ARGV, next + 2, last))
  if type(id) == 'table' then
    for _, each in ipairs(done) do redis.call('XDEL', each[1], each[2]) end
    return id
  end
  done[#done + 1] = {key, id}
  next = last + 1
end
redis.call('HSET', KEYS[1], 'record', ARGV[3])
return 1
""")
"""The state and the streams; owner, expected record, record, then of each entry: stream, words, the words.

What the server refuses it refuses with the first entry nearly always (type, memory). Should it be a later one, those
before it are taken back; nobody has seen them.
"""

LOOK = _script("""
local type = redis.call('TYPE', KEYS[1]).ok
if type == 'none' then return {} end
if type ~= 'stream' then return redis.error_reply('WRONGTYPE it is a ' .. type) end
local is, words = {}, redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #words, 2 do is[words[i]] = words[i + 1] end
local digest, id = '', ARGV[1]
if id == '$' then id = is['last-generated-id'] end
local found = redis.call('XRANGE', KEYS[1], id, id)
if found[1] then digest = redis.sha1hex(table.concat(found[1][2], '\\0')) end
return {is['length'], is['last-generated-id'], is['max-deleted-entry-id'] or '0-0', is['entries-added'] or -1,
        is['first-entry'] and is['first-entry'][1] or '0-0', digest}
""")
"""`Facts` of a stream, with the digest of one entry, or of the last."""
