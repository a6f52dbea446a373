"""The small parts of values as models and programs spell them: numbers, words, escapes, and what stands between."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

# Converts the small parts of values as programs spell them to JSON: numbers, words, and the escapes inside strings.
#
# The scanner (`literal`) says where a part begins; a part is converted whole or not at all. Sources: RFC 8259; Python's
# reference, 2.4.1 and 2.4.5.

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"[-+]?[0-9](?:_?[0-9])*")
_HEX = re.compile(r"[-+]?0[xX][0-9a-fA-F]{1,16}")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][-+]?[0-9]+)?")
_ESCAPE = re.compile(
    r"""\\(?:(?P<json>["\\/bfnrt]|u[0-9a-fA-F]{4})|x(?P<hex>[0-9a-fA-F]{2})|U(?P<long>[0-9a-fA-F]{8})"""
    r"""|(?P<octal>[0-7]{1,3})|(?P<char>(?s:.)))"""
)
_ESCAPE_START = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-7]{1,2})?\Z")
_NAMED = {"'": "'", "\n": "", "a": "\\u0007", "v": "\\u000b"}
WORDS = {
    spelled: meant
    for meant, words in {
        "true": "true True TRUE",
        "false": "false False FALSE",
        "null": "null Null NULL None NONE",
    }.items()
    for spelled in words.split()
}
CLOSING_QUOTES = {'"': '"', "'": "'", "`": "`", "“": "”", "‘": "’"}
"""What models open strings with, and what closes each; JSON has the first."""
_MAX_CODE_POINT = 0x10FFFF

MAX_BLANK = 64
"""Most characters of whitespace after a quote that are held until it is clear whether the quote ends a string."""

_GOES_ON = ")\"'`."
"""What follows the parenthesis that closes a call inside a string, and never one that closes the tool's call."""
_BEHIND_STRING = re.compile(r"[ \t\r\n]{0,64}+(?P<char>[^ \t\r\n])(?P<next>.?)", re.DOTALL)
"""What follows a quote, which decides whether the quote ends its string (`string_ends`)."""


def json_string(text: str) -> str:
    """Return a text as it stands inside a JSON string, without the quotation marks."""
    return json.encoder.encode_basestring(text)[1:-1]


def number(atom: str) -> str | None:
    """Return a number as JSON spells it; None for what is not a number, or not one that JSON has."""
    if _JSON_NUMBER.fullmatch(atom):
        return atom
    if _INTEGER.fullmatch(atom):
        return str(int(atom))
    if _HEX.fullmatch(atom):
        return str(int(atom, 16))
    if _FLOAT.fullmatch(atom):
        value = repr(float(atom))
        return value if _JSON_NUMBER.fullmatch(value) else None
    return None


def escape(text: str, at: int, plain: Callable[[str], str]) -> tuple[str, int]:
    """Return the JSON of the escape that begins at `at`, and where it ends; "" and `at` while it is incomplete.

    `plain` turns stand-ins for markers in `text` back into the markers' text.
    """
    found = _ESCAPE.match(text, at)
    if found is None or _ESCAPE_START.match(text, at):
        return "", at
    code = int(found["hex"] or found["long"] or "0", 16) or int(found["octal"] or "0", 8)
    if found["json"]:
        told = found.group()
    elif found["char"]:
        # Python keeps the backslash of an unknown escape.
        told = _NAMED.get(found["char"], "\\\\" + json_string(plain(found["char"])))
    elif code > _MAX_CODE_POINT or 0xD800 <= code <= 0xDFFF:
        told = "\\ufffd"
    else:
        told = json_string(chr(code))
    return told, found.end()


def string_ends(text: str, behind: int, *, inside: bool, ended: bool) -> bool | None:
    """Whether the quote before `behind` ends its string: models write quotes in strings that they should escape.

    It does where a comma, a colon or a closing bracket follows. Where the string is not `inside` brackets, a quote is
    part of the text if a parenthesis follows and the text goes on behind that, since the call can only end there. None
    while more text is needed to decide, because the text has not `ended`.
    """
    found = _BEHIND_STRING.match(text, behind)
    if found is None:
        return None if len(text) - behind <= MAX_BLANK else True
    if found["char"] == ")" and not inside:
        return not (found["next"] and found["next"] in _GOES_ON) if found["next"] or ended else None
    return found["char"] in ",:)]}"


# The ways in which values are spelled in calls: Python's, and those of the Gemma models.
#
# Only facts.


@dataclass(frozen=True, slots=True)
class ValueDialect:
    """How values are spelled. If one quote begins with another, the longer one comes first in `quotes`."""

    quotes: tuple[str, ...]
    escapes: bool = True
    """Whether strings between its first quotes have escapes; those between a program's quotes always have."""
    bare: bool = False
    """Whether keys, and strings without any of the dialect's own marks, may be written without quotes."""
    loose: bool = False
    """Whether a string may contain its own quotes unescaped (`atoms.string_ends`)."""


PYTHON = ValueDialect(('"""', "'''", '"', "'"))
PYTHON_CALL = ValueDialect(PYTHON.quotes, loose=True)
GEMMA = ValueDialect(('<|"|>', *PYTHON.quotes, "`"), escapes=False, bare=True, loose=True)
FUNCTION_GEMMA = ValueDialect(("<escape>", *PYTHON.quotes, "`"), escapes=False, bare=True, loose=True)


# What models write between the tokens of JSON, and JSON does not allow: comments, escaped line ends, odd blanks.
#
# It means nothing, as whitespace does. Knows nothing of tokens or strings.

MAX_GAP = 512
"""Most characters of a comment that are held until its end comes."""

_PIECE = re.compile(r"[\s\ufeff]++|\\[nrt]|(?://|#)[^\n]*+\n|/\*(?:[^*]|\*(?!/))*\*/")
_UNFINISHED = re.compile(r"\\\Z|/\Z|(?://|#)[^\n]*+\Z|/\*(?:[^*]|\*(?!/))*\Z")


def skip_gap(text: str, at: int, *, ended: bool) -> int | None:
    """Return the place behind what means nothing at `at`; None while more text is needed to tell.

    `ended` says that no more text will come. A comment that is too long, or has no end, is not one.
    """
    limit = at + MAX_GAP
    while found := _PIECE.match(text, at, limit):
        at = found.end()
    return None if not ended and len(text) < limit and _UNFINISHED.match(text, at) else at
