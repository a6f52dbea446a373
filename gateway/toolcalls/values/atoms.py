"""The small parts of values as programs spell them, to JSON: numbers, words, and the escapes inside strings.

Whoever scans text (`literal`) says where a part begins; what is given is whole or nothing. Sources: RFC 8259; Python's
reference, 2.4.1 and 2.4.5.
"""

import json
import re
from collections.abc import Callable

_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_INTEGER = re.compile(r"[-+]?[0-9](?:_?[0-9])*")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:[eE][-+]?[0-9]+)?")
_ESCAPE = re.compile(
    r"""\\(?:(?P<json>["\\/bfnrt]|u[0-9a-fA-F]{4})|x(?P<hex>[0-9a-fA-F]{2})|U(?P<long>[0-9a-fA-F]{8})"""
    r"""|(?P<octal>[0-7]{1,3})|(?P<char>(?s:.)))"""
)
_ESCAPE_START = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|[0-7]{1,2})?\Z")
_NAMED = {"'": "'", "\n": "", "a": "\\u0007", "v": "\\u000b"}
WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_MAX_CODE_POINT = 0x10FFFF

MAX_BLANK = 64
"""Characters of whitespace behind a quote that are held until it is clear whether it ends a string."""

_BEHIND_STRING = re.compile(r"[ \t\r\n]{0,64}+(?P<char>[^ \t\r\n])(?P<next>.?)", re.DOTALL)
"""What stands behind a quote: it ends the string where a value or a key may end."""


def json_string(text: str) -> str:
    """Give a text as it stands inside a JSON string, without the quotation marks."""
    return json.encoder.encode_basestring(text)[1:-1]


def number(atom: str) -> str | None:
    """Give a number as JSON spells it; None for what is not a number, or none that JSON has."""
    if _JSON_NUMBER.fullmatch(atom):
        return atom
    if _INTEGER.fullmatch(atom):
        return str(int(atom))
    if _FLOAT.fullmatch(atom):
        value = repr(float(atom))
        return value if _JSON_NUMBER.fullmatch(value) else None
    return None


def escape(text: str, at: int, plain: Callable[[str], str]) -> tuple[str, int]:
    """Give the JSON of the escape that begins at `at`, and where it ends; nothing and `at` while it is not whole.

    `plain` spells out what stands for a marker in `text`.
    """
    found = _ESCAPE.match(text, at)
    if found is None or _ESCAPE_START.match(text, at):
        return "", at
    code = int(found["hex"] or found["long"] or "0", 16) or int(found["octal"] or "0", 8)
    if found["json"]:
        told = found.group()
    elif found["char"]:
        # Python keeps the backslash of an escape that it does not know.
        told = _NAMED.get(found["char"], "\\\\" + json_string(plain(found["char"])))
    elif code > _MAX_CODE_POINT or 0xD800 <= code <= 0xDFFF:
        told = "\\ufffd"
    else:
        told = json_string(chr(code))
    return told, found.end()


def string_ends(text: str, behind: int, *, inside: bool, ended: bool) -> bool | None:
    """Whether the quote before `behind` ends its string: models write quotes inside that they should escape.

    It does where a comma, a colon or a bracket follows. Not `inside` of brackets, one that two of them follow is the
    text's: only one call ends there. None while that can't be told, because the text has not `ended`.
    """
    found = _BEHIND_STRING.match(text, behind)
    if found is None:
        return None if len(text) - behind <= MAX_BLANK else True
    if found["char"] == ")" and not inside:
        return found["next"] != ")" if found["next"] or ended else None
    return found["char"] in ",:)]}"
