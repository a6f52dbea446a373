"""Whether an answer of `/v1/chat/completions` is right for a task, by the same rules for every server.

An answer with calls is right if they are the wanted ones, in any order, with arguments that fit the tools' schemas. An
answer in words is right if it makes no call, says what was asked, and is neither JSON nor the text of a call: a call
that a server did not recognize is not an answer, even where no call was wanted. It knows nothing of servers.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import jsonschema

from bench.real_models.tasks import TOOLS, Task, Wanted

_CALL: Final = re.compile(
    rf"""["'](?:name|tool_name|function)["']\s*:\s*["'](?:{"|".join(TOOLS)})["']|</?(?:tool_call|tools|function)\b"""
)
"""What the text of a call has in it, whatever is around it."""
_FENCED: Final = re.compile(r"```\w*\s*(?P<inside>.*?)\s*(?:```)?", re.DOTALL)


def is_right(task: Task, answer: Mapping[str, Any]) -> bool:
    """Whether the calls of an answer, or its words, are those that the task wants."""
    message = answer["choices"][0]["message"]
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    if task.says is not None:
        said: str = (message.get("content") or "").strip()
        return not calls and are_words(said) and task.says(said)
    if len(calls) != len(task.calls) or not all(map(is_valid, calls)):
        return False
    left = [(call["function"]["name"], _parsed(call)) for call in calls]
    for name, wanted in task.calls:
        fitting = [each for each in left if each[0] == name and _fits(each[1], wanted)]
        if not fitting:
            return False
        left.remove(fitting[0])
    return True


def are_words(said: str) -> bool:
    """Whether a text is an answer in words: not empty, not JSON as a whole, bare or fenced, and no call's text."""
    whole = _FENCED.fullmatch(said)
    return bool(said) and not _CALL.search(said) and not _is_container(whole["inside"] if whole else said)


def is_valid(call: Mapping[str, Any]) -> bool:
    """Whether a call names a tool, and its arguments fit the tool's schema."""
    tool = TOOLS.get(call["function"]["name"])
    if tool is None:
        return False
    validator: Any = jsonschema.Draft202012Validator(tool["function"]["parameters"])
    return bool(validator.is_valid(_parsed(call)))


def _parsed(call: Mapping[str, Any]) -> Any:
    return _loaded(call["function"]["arguments"])


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _is_container(text: str) -> bool:
    """Whether a text is a JSON object or list, or the beginning of an object that a limit cut off."""
    return isinstance(_loaded(text), dict | list) or text.startswith(("{", "[{"))


def _fits(arguments: Any, wanted: Wanted) -> bool:
    return isinstance(arguments, dict) and all(
        name in arguments and fits(arguments[name]) for name, fits in wanted.items()
    )
