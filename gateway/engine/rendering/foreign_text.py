"""Text that somebody else wrote: marked or guarded in a conversation to be rendered, and its marks in the rendering.

Contents become marks, which are found in the rendering again, with what the template did to each (stripped it, escaped
it for JSON), and are tokenized separately. What a template reads or rewrites (names, keys, descriptions, enum values,
ids and arguments of calls) stays as it is, with separators wherever it spells a marker, or could begin, continue or end
one together with the template's own characters (`<` + `|im_start|` + `>`): `TokenMap.encode` reads no special token
across a separator. Words that a template compares with (JSON Schema's own) come from a closed list and stay bare. Marks
and separators are random characters of a private-use plane, which are removed from what others wrote. Only fields that
llama.cpp reads go to the engine. No IO.
"""

import json
import re
import secrets
import string
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from gateway.engine.interface import Message
from gateway.toolcalls.schema.keywords import BY_NAME, DATA, escaped, steps, unquoted

_PAD = "\n" * 7
"""The outer padding of a mark: a template that strips line ends strips it. Its length sets it apart from the
template's own line ends."""
_INNER_PAD = "\t"
"""The inner padding of a mark: a template that strips all blanks strips it too."""
_QUOTE = '"'
"""Part of a mark: shows whether the template escapes the content for JSON or XML."""

_PRIVATE = range(0xF0000, 0xFFFFE)
_PLAIN_NUMBER = re.compile(r"-?[1-9][0-9]{0,14}|0")
_STAND_IN = re.compile("9[0-9]{14}")
"""What stands in for a number: fifteen digits, exact in every number type, so that it is printed as it stands."""

_DIGITS = string.digits + string.ascii_lowercase
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_KEYWORDS = frozenset(
    {
        *("type", "description", "title", "required", "items", "prefixItems", "additionalProperties"),
        *("propertyNames", "anyOf", "oneOf", "allOf", "not", "format", "pattern", "nullable", "minimum", "maximum"),
        *("exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "minItems", "maxItems"),
        *("uniqueItems", "minProperties", "maxProperties", "$ref", "$schema", "$id", "deprecated", "readOnly"),
        *("writeOnly"),
        *BY_NAME,
        *DATA,
    }
)
_BLANKS: Final = " \t\n\r\v\f"
_ESCAPES: Final[dict[str, Callable[[str], str]]] = {
    _QUOTE: lambda text: text,
    json.dumps(_QUOTE)[1:-1]: lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "&quot;": lambda text: text.replace("&", "&amp;").replace(_QUOTE, "&quot;"),
}
"""What a template may have done to a text, by what it turned a quote into."""


_REMEMBERED: Final = 4096
"""Short strings whose places are kept, since every request repeats the definitions of tools."""
_SHORT: Final = 200
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


class MarkerGuard:
    """The markers of one map. Case is ignored, since templates change it (`type | upper`)."""

    def __init__(self, markers: Iterable[str]) -> None:
        """`markers`: spellings of special tokens. One of a single character can't be cut, and is left to `encode`."""
        known = sorted({_lower(marker) for marker in markers if len(marker) > 1}, key=len, reverse=True)
        self._longest = len(known[0]) if known else 0
        # The lookahead also finds overlapping markers.
        self._whole = re.compile(f"(?={'|'.join(map(re.escape, known))})") if known else None
        self._heads = frozenset(marker[:n] for marker in known for n in range(1, len(marker)))
        self._tails = frozenset(marker[n:] for marker in known for n in range(1, len(marker)))
        self._all = "\n".join(known)
        self._cores = frozenset(re.sub(r"^\W+|\W+$", "", marker) for marker in known)
        self._remembered = lru_cache(_REMEMBERED)(self._places)

    def guarded(self, text: str, separator: str) -> str:
        """Return `text` with the separator at every place where it could become part of a marker."""
        places = self._remembered(text) if len(text) <= _SHORT else self._places(text)
        if not places:
            return text
        ends = (*places, len(text))
        return text[: ends[0]] + "".join(separator + text[at:end] for at, end in zip(places, ends[1:], strict=True))

    def spells(self, word: str) -> bool:
        """Whether a marker consists of this word and signs around it: `title` and `<title>`."""
        return _lower(word) in self._cores

    def _places(self, text: str) -> tuple[int, ...]:
        if self._whole is None:
            return ()
        lower = _lower(text)
        places = {match.start() + 1 for match in self._whole.finditer(lower)}
        start = 0
        # Templates indent and join lines, so each line has ends of its own.
        for line in lower.split("\n"):
            end = start + len(line)
            if self._may_end(line):
                places.add(start)
            if self._may_begin(line):
                places.add(end)
            start = end + 1
        return tuple(sorted(places))

    def _may_end(self, line: str) -> bool:
        """Whether a marker that began before `line` could end inside it."""
        return any(line[:n] in self._tails for n in range(1, min(self._longest, len(line) + 1)))

    def _may_begin(self, line: str) -> bool:
        """Whether a marker that began inside `line` or before it could continue after it."""
        ends = any(line[-n:] in self._heads for n in range(1, min(self._longest, len(line) + 1)))
        return ends or (bool(line) and line in self._all)


def _lower(text: str) -> str:
    """The text with only ASCII letters lowered, so that every character stays one character."""
    return text.translate(_LOWER)


class Signs:
    """The signs that replace or guard the words of others in one engine's renderings; no text of others has them."""

    def __init__(self, guard: MarkerGuard) -> None:
        self.guard = guard
        self.separator, self.mark, self.anchor = map(chr, secrets.SystemRandom().sample(_PRIVATE, 3))
        self.private = frozenset((self.separator, self.mark, self.anchor))
        self.ids = "".join(secrets.choice(string.ascii_lowercase) for _ in range(7))

    def removed(self, text: str) -> str:
        """Return a text without the signs: the engine quotes what it was given."""
        return "".join(sign for sign in text if sign not in self.private)


class ForeignText:
    """The replacements for the words of others in one rendering."""

    def __init__(self, signs: Signs) -> None:
        self._signs = signs
        self.separator, self.mark, self.anchor = signs.separator, signs.mark, signs.anchor
        self.contents: list[str] = []
        """The text of each mark, by its number."""
        self.optional: set[int] = set()
        """Marks of texts that a template need not show (reasoning, words beside calls, late system messages)."""
        self.owners: list[int] = []
        """The number of each mark's message."""
        self._message_number = -1
        self.results: set[int] = set()
        """Marks of tool results."""
        self._ids = signs.ids
        self.numbers: dict[str, str] = {}
        """Numbers as they were written, by their stand-ins."""

    def call_id(self, number: int) -> str:
        """Return a stand-in for the id of a call, in the form that every template accepts: nine letters and digits."""
        return f"{self._ids}{_DIGITS[number // 36 % 36]}{_DIGITS[number % 36]}"

    def has_call_id(self, text: str) -> bool:
        """Whether such a stand-in occurs in a text."""
        return self._ids in text

    def text(self, text: str) -> str:
        """Return a text that the template may read, with separators where it could become part of a marker."""
        if not text.isascii():
            text = self._signs.removed(text)
        return self._signs.guard.guarded(text, self.separator)

    def content(self, text: str, *, optional: bool = False) -> str:
        """Return the mark for a text; "" for an empty text, which templates treat differently."""
        if not text:
            return ""
        if optional:
            self.optional.add(len(self.contents))
        self.contents.append(text)
        self.owners.append(self._message_number)
        number = len(self.contents) - 1
        return f"{_PAD}{_INNER_PAD}{self.mark}{_QUOTE}{number}{self.mark}{_INNER_PAD}{_PAD}"

    def messages(
        self, messages: Sequence[Message], *, marked: bool, as_text: Set[int] = frozenset()
    ) -> list[dict[str, Any]]:
        """Return the messages of a conversation, with their contents as marks or as guarded texts.

        `as_text`: numbers of messages whose contents are never marks.
        """
        shown: list[dict[str, Any]] = []
        for self._message_number, message in enumerate(messages):
            shown.append(self._message(message, marked=marked and self._message_number not in as_text))
        return shown

    def tools(self, tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return definitions of tools in OpenAI's format."""
        return [{"type": "function", "function": self._function(tool.get("function") or {})} for tool in tools]

    def _message(self, message: Message, *, marked: bool) -> dict[str, Any]:
        content = str(message.get("content") or "")
        # Some templates show only the first system message; some show no words beside calls.
        late = message["role"] == "system" and self._message_number > 0
        extra = late or bool(message.get("tool_calls"))
        if marked and content and message["role"] == "tool":
            self.results.add(len(self.contents))
        shown: dict[str, Any] = {
            "role": message["role"],
            "content": self.content(content, optional=extra) if marked else self.text(content),
        }
        if reasoning := message.get("reasoning_content"):
            said = str(reasoning)
            shown["reasoning_content"] = self.content(said, optional=True) if marked else self.text(said)
        for key in ("name", "tool_call_id"):
            if isinstance(value := message.get(key), str):
                shown[key] = self.text(value)
        calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
        if calls:
            shown["tool_calls"] = [self._call(call) for call in calls]
        return shown

    def _call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        function = call["function"]
        shown = {"name": self.text(str(function["name"])), "arguments": self._arguments(function.get("arguments"))}
        call_id = {"id": self.text(call["id"])} if isinstance(call.get("id"), str) else {}
        return {"type": "function", **call_id, "function": shown}

    def _arguments(self, arguments: object) -> str:
        """Arguments as JSON text in which no string spells a marker, escaped or not, and no number can change.

        The engine parses the text and prints the object again: an escape such as `\\u003c` would become `<`, `2.0`
        would become `2`, and a long number another one. A text without any of these stays as it was written.
        """
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        text = text.strip() or "{}"
        known = len(self.numbers)
        value: Any = json.loads(text, parse_float=self._number, parse_int=self._integer)
        if not isinstance(value, dict):
            # Templates ask for the members of an object, and refuse all else.
            value = {} if value is None else {"input": value}
            text = json.dumps(value)
        guarded = self._data(value)
        if guarded == value and len(self.numbers) == known:
            return text
        # A lone surrogate can't be sent.
        return json.dumps(guarded, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")

    def _integer(self, text: str) -> int:
        return int(text) if _PLAIN_NUMBER.fullmatch(text) else self._number(text)

    def _number(self, text: str) -> int:
        stand_in = 9 * 10**14 + secrets.randbelow(10**14)
        self.numbers[str(stand_in)] = text
        return stand_in

    def _function(self, function: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: self._schema(value) if key == "parameters" else self._data(value) for key, value in function.items()
        }

    def _schema(self, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [self._schema(each) for each in cast("Sequence[Any]", value)]
        if not isinstance(value, Mapping):
            return self._data(value)
        return dict(self._keyword(str(key), each) for key, each in cast("Mapping[Any, Any]", value).items())

    def _keyword(self, key: str, value: Any) -> tuple[str, Any]:
        shown = self._word(key, _KEYWORDS)
        if key in BY_NAME and isinstance(value, Mapping):
            named = cast("Mapping[Any, Any]", value)
            return shown, {self.text(str(name)): self._schema(schema) for name, schema in named.items()}
        if key == "type":
            types = cast("list[Any]", value) if isinstance(value, list) else [value]
            words = [self._word(each, _TYPES) if isinstance(each, str) else self._data(each) for each in types]
            return shown, words if isinstance(value, list) else words[0]
        if key == "$ref" and isinstance(value, str):
            return shown, self._reference(value)
        return shown, self._schema(value) if key in _KEYWORDS - DATA else self._data(value)

    def _reference(self, reference: str) -> str:
        """A pointer into the same schema, with the names in it as they are shown where they stand.

        Templates that follow references look for the same text.
        """
        if not reference.startswith("#/"):
            return self.text(reference)
        plain, by_name = unquoted(reference), False
        # An encoded slash is one.
        written = (reference if reference.count("/") == plain.count("/") else plain)[2:].split("/")
        for place, (step, name) in enumerate(zip(written, steps(plain), strict=True)):
            shown = self.text(name) if by_name else self._word(name, _KEYWORDS)
            written[place] = self.text(step) if shown == name else escaped(shown)
            by_name = not by_name and name in BY_NAME
        return "#/" + "/".join(written)

    def _word(self, word: str, closed: frozenset[str]) -> str:
        """A word of a closed list, bare unless a marker consists of it and signs around it; any other word, guarded."""
        return word if word in closed and not self._signs.guard.spells(word) else self.text(word)

    def _data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(k)): self._data(v) for k, v in cast("Mapping[Any, Any]", value).items()}
        if isinstance(value, list | tuple):
            return [self._data(each) for each in cast("Sequence[Any]", value)]
        return value


@dataclass(frozen=True, slots=True)
class Fit:
    """What a template does to a content at one place."""

    left: str = ""
    """Characters that it strips from the beginning."""
    right: str = ""
    quote: str = _QUOTE
    """What it turns a quote into: see `_ESCAPES`."""

    @property
    def known(self) -> bool:
        """Whether we can do the same to another text."""
        return self.quote in _ESCAPES

    def apply(self, text: str) -> str:
        """Return a content as the template shows it."""
        return _ESCAPES[self.quote](text.lstrip(self.left).rstrip(self.right))


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark in a rendering: the text at `start:end` stands for content `number`."""

    number: int
    start: int
    end: int
    fit: Fit


@lru_cache(maxsize=16)
def _mark_pattern(mark: str) -> re.Pattern[str]:
    outer = f"(?:{_PAD}|{re.escape(json.dumps(_PAD)[1:-1])})"
    return re.compile(
        rf"(?P<left>(?P<left_lines>{outer})?(?:\t|\\t))?{mark}(?P<quote>[^\d{mark}]{{1,12}}?)(?P<number>\d+){mark}"
        rf"(?P<right>(?:\t|\\t)(?P<right_lines>{outer})?)?"
    )


def find_marks(text: str, mark: str) -> list[Mark]:
    """Return the marks of a rendering, in order."""
    marks: list[Mark] = []
    for match in _mark_pattern(mark).finditer(text):
        left = _stripped(match["left"], match["left_lines"])
        right = _stripped(match["right"], match["right_lines"])
        marks.append(Mark(int(match["number"]), match.start(), match.end(), Fit(left, right, match["quote"])))
    return marks


def shown_once(text: str, foreign: ForeignText) -> list[Mark] | None:
    """Return the marks of a rendering (`restored`); None if the template dropped, doubled or broke one."""
    marks = find_marks(text, foreign.mark)
    wanted = [n for n in range(len(foreign.contents)) if n not in foreign.optional]
    numbers = [mark.number for mark in marks]
    if (
        len(numbers) != len(set(numbers))
        or not set(wanted) <= set(numbers)
        or not all(mark.fit.known for mark in marks)
    ):
        return None
    return marks if 2 * len(marks) == text.count(foreign.mark) else None


def pieces_between(text: str, marks: Sequence[Mark]) -> list[str]:
    """Return the template's own text before, between and after the marks."""
    starts = [0, *(mark.end for mark in marks)]
    ends = [*(mark.start for mark in marks), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def restored(text: str, foreign: ForeignText) -> str:
    """Return a rendering with separators unescaped if the template escaped them, and numbers as they were written."""
    for sign in (foreign.separator, foreign.anchor):
        if "\\u" in text:
            text = re.sub(re.escape(json.dumps(sign)[1:-1]), sign, text, flags=re.IGNORECASE)
    if not foreign.numbers:
        return text
    # One look for each: an expression of all of them would be tried, one after the other, at each of them.
    return _STAND_IN.sub(lambda found: foreign.numbers.get(found.group(), found.group()), text)


def _stripped(kept: str | None, kept_lines: str | None) -> str:
    """The characters that a template strips, judged by what is left of the padding on one side."""
    if kept is None:
        return _BLANKS
    return "" if kept_lines is not None else "\n"
