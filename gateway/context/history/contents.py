"""The content of a message as one text: a string, or a list of parts in the shapes of the APIs that are served.

Nobody can take back what stands in a result or in an answer, and clients repeat their histories: there, a part without
text never fails a request. In a result it has a stand-in; in an answer, and where its type is unknown, it is left out.
A picture or a file in a question is refused, since the question is about it. Contents are read in every form that
clients send: one part without its list, texts among the parts, parts without a type. Pure.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final, cast

from gateway.errors import RequestInvalid
from gateway.escape import cut_text, escape_text
from gateway.proxy.results import KINDS, stand_in, text_of

_SHOWN: Final = 100
_NAMED: Final = 32
_OF_TEXTS: Final = frozenset({"type", "text", "cache_control"})
"""The fields of text parts that are read; marks of what is to be cached have no effect on a text."""


def unread_fields(fields: Mapping[str, Any], read: Container[str]) -> Iterator[str]:
    """Yield the names of the fields that are not read, but for those that ask for nothing: empty or false ones."""
    return (escape_text(name, _SHOWN) for name, value in fields.items() if value and name not in read)


class LeftOut:
    """The types of parts, and their fields, that the model does not read, as `codec.ignored` names them; at most 32."""

    def __init__(self, place: str = "") -> None:
        """`place`: what their names begin with."""
        self._place = place
        self._names: dict[str, None] = {}

    def add(self, kind: object) -> None:
        """Add a type."""
        if len(self._names) < _NAMED:
            self._names[f"{self._place}{escape_text(str(kind), _SHOWN)}"] = None

    def add_fields(self, kind: object, fields: Mapping[str, Any], read: AbstractSet[str]) -> None:
        """Add the fields of a part that are not read."""
        if not fields.keys() <= read:
            for name in unread_fields(fields, read):
                self.add(f"{kind}.{name}")

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(self._names)


def text_of_content(role: str, content: object, where: str, left_out: LeftOut) -> str:
    """The text of a content. Raises `RequestInvalid`, which names the place."""
    if isinstance(content, str):
        return content
    if role == "tool" or (role == "assistant" and isinstance(content, int | float)):
        return text_of_result(content, left_out)
    # Joined as llama.cpp does.
    return "\n".join(texts_of_parts(role, parts_of(content, where), where, left_out))


def parts_of(content: object, where: str) -> Sequence[object]:
    """The parts of a content. Raises `RequestInvalid`."""
    if isinstance(content, list):
        return cast("list[object]", content)
    if content is not None and not isinstance(content, str | Mapping):
        raise RequestInvalid(f"{where} must be a string or a list of text parts", param=where)
    return () if content is None else (cast("object", content),)


def text_of_result(content: object, left_out: LeftOut) -> str:
    """The text of a result's content, which may be any JSON value."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return json.dumps(content, ensure_ascii=False)
    return "\n".join(text_of_result_part(part, left_out) for part in cast("list[object]", content))


def text_of_result_part(part: object, left_out: LeftOut) -> str:
    """The text of one part of a result."""
    if not isinstance(part, Mapping):
        return part if isinstance(part, str) else json.dumps(part, ensure_ascii=False)
    fields = cast("Mapping[str, Any]", part)
    text = text_of(fields)
    if text is not None:
        _name_unread(fields, left_out)
        return text
    if not isinstance(fields.get("type"), str):
        # No part of any API, but a value that the tool gave.
        return json.dumps(fields, ensure_ascii=False)
    left_out.add(fields["type"])
    return stand_in(fields)


def found_tools(content: object) -> tuple[str, ...]:
    """The names of the tools that a content's parts refer to: what a search of tools has found."""
    if not isinstance(content, list):
        return ()
    fields = (cast("Mapping[str, Any]", part) for part in cast("list[object]", content) if isinstance(part, Mapping))
    names = (each.get("tool_name") for each in fields if each.get("type") == "tool_reference")
    return tuple(name for name in names if isinstance(name, str))


def texts_of_parts(role: str, parts: Sequence[object], where: str, left_out: LeftOut) -> Iterator[str]:
    """The texts of the parts of a question, an answer or a system message. Raises `RequestInvalid`."""
    for part in parts:
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}
        kind: object = fields.get("type")
        text = part if isinstance(part, str) else plain_text(fields)
        if text is not None:
            _name_unread(fields, left_out)
            yield text
        elif role != "assistant" and (not isinstance(kind, str) or kind in KINDS or _has_no_text(fields)):
            raise RequestInvalid(f"{where} {unread(fields)}", param=where)
        else:
            left_out.add(kind)


def _name_unread(part: Mapping[str, Any], left_out: LeftOut) -> None:
    if "text" in part:
        left_out.add_fields(part.get("type", "text"), part, _OF_TEXTS)


def plain_text(part: Mapping[str, Any]) -> str | None:
    """The text of a part, which may lack its type, or have null as its text; None for one that holds no text."""
    text = text_of(part)
    if text is not None or not part:
        return text
    given: object = part.get("text")
    if part.get("type") is None:
        return given if isinstance(given, str) else None
    return "" if "text" in part and given is None else None


def unread(part: Mapping[str, Any]) -> str:
    """Why a part of a question can't be read, and what to do."""
    kind: object = part.get("type")
    if isinstance(kind, str) and kind in KINDS:
        what = KINDS[kind]
        return (
            f"holds a part of type {cut_text(repr(kind), _SHOWN)}: this model reads only text: send the {what} as text "
            "(a description, what stands in it), or let a tool read it"
        )
    if _has_no_text(part):
        return "holds a text part whose 'text' is not a string"
    return f"holds a part of type {cut_text(repr(kind), _SHOWN)}: expected a text part"


def _has_no_text(part: Mapping[str, Any]) -> bool:
    return not isinstance(part.get("text", None if part.get("type") == "text" else ""), str)
