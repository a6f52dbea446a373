"""Makes text from elsewhere fit for one line of a terminal or a log, without control characters and without secrets.

Turns any text into one without control characters: a newline can't start a second log line, an escape sequence can't
colour or move anything, a direction mark can't reorder what is read. Long text is cut, and says so. It does not judge
what the text means.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from typing import Final

CUT: Final = 2000
INVISIBLE: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0").union(
    map(chr, (*range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)))
)
"""What Python counts as printable and nobody sees: fillers, blank braille, joiners and variation selectors."""
WHOLE: Final = sys.maxsize
"""A limit with which nothing is left out."""


def escape_text(text: str, limit: int = CUT, also: frozenset[str] = frozenset()) -> str:
    """The text on one line: unprintable characters, and those in `also`, as `\\n`, `\\x1b`, `\\u202e`.

    At most `limit` characters are returned, and how many of the text are left out. Backslashes stay as they are, so
    that paths read well; the result is for people, not for parsing back.
    """
    if text.isprintable() and also.isdisjoint(text[:limit]):
        return cut_text(text, limit)
    shown: list[str] = []
    room = limit
    for character in text[:limit]:
        plain = character.isprintable() and character not in also
        spelled = character if plain else character.encode("unicode_escape").decode("ascii")
        room -= len(spelled)
        if room < 0:
            break
        shown.append(spelled)
    return "".join(shown) + _left_out(len(text) - len(shown))


def cut_text(text: str, limit: int = CUT) -> str:
    """At most `limit` characters of the text, and how many are left out."""
    return text[:limit] + _left_out(len(text) - limit)


def _left_out(count: int) -> str:
    return f"… ({count} more characters)" if count > 0 else ""


# Masks what must not be shown: values whose names sound like secrets, and secrets inside texts.
#
# Names are judged by their words (`API_KEY`, `authToken`), texts by two shapes that always carry a secret
# (`Bearer ...`, `https://user:password@`) and by the values that the caller knows. It does not know where the values
# came from.


MASK: Final = "****"
SHORTEST_SECRET: Final = 4
"""Shorter values are masked only if they are the whole text: inside others, masking would blank out half of them."""

_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+")
_SECRET_WORDS = frozenset(
    {"token", "secret", "secrets", "password", "passwd", "passphrase", "pwd", "authorization", "auth", "cookie"}
    | {"credential", "credentials", "apikey", "bearer", "jwt", "dsn", "pat"}
)
# It begins with its first letter; what stands before that is looked at afterwards. So a long text is searched for the
# letter, instead of tried at every character.
_BEARER = re.compile(r"([bB](?<!\w.)(?i:earer|asic))\s+(?i:[A-Za-z0-9+/_.~=-]{6,})")
_MAP_ID = re.compile(r"sha256:[0-9a-f]{64}")
_USERINFO = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def sounds_secret(name: str) -> bool:
    """Whether a setting, header or variable of this name holds a secret (`GITHUB_TOKEN`, `X-Api-Key`, `dbPassword`)."""
    words = [word.lower() for word in _WORD_BREAK.split(name) if word]
    return bool(_SECRET_WORDS.intersection(words)) or (len(words) > 1 and words[-1] == "key")


def mask_text(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with every known secret, bearer token and URL password replaced by `****`.

    A token map's id is public, even if it came from a variable: masked, it could not be compared with another.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if _MAP_ID.fullmatch(secret):
            continue
        if secret == text or len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, MASK) if secret else text
    return _USERINFO.sub(MASK, _BEARER.sub(rf"\1 {MASK}", text))


def secret_places(text: str, secrets: Iterable[str] = ()) -> Iterator[tuple[int, int]]:
    """The places in the text that `mask_text` would mask: first character, and the one after the last."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET and not _MAP_ID.fullmatch(secret):
            yield from (found.span() for found in re.finditer(re.escape(secret), text))
    yield from (found.span() for found in _USERINFO.finditer(text))
    yield from ((found.end(1), found.end()) for found in _BEARER.finditer(text))


def mask_value(name: str, value: str, secrets: Iterable[str] = ()) -> str:
    """The value of a named setting: masked as a whole if the name sounds secret, else only the secrets inside it."""
    return MASK if value and sounds_secret(name) else mask_text(value, secrets)
