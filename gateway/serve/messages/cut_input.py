"""The input of a call that a limit cut, as an object: its members that are whole.

Takes the beginning of a JSON object's text and returns the text of an object. A member that the cut goes through is
left out with its value: half a path or half a command is not what the model meant. Pure.
"""

import json
import re
from typing import Final

_TOKENS: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[{}\[\],]', re.DOTALL)


def whole_members(begun: str) -> str:
    """The object with the members that are whole, as they were written; `{}` where there are none."""
    depth, end = 0, 0
    for token in _TOKENS.finditer(begun):
        match token.group():
            case "{" | "[":
                depth += 1
            case "}" | "]":
                depth -= 1
                if not depth:
                    return _valid(begun[: token.end()])
            case "," if depth == 1:
                end = token.start()
            case _:
                pass
    return _valid(f"{begun[:end]}}}")


def _valid(text: str) -> str:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return "{}"
    return text if isinstance(found, dict) else "{}"
