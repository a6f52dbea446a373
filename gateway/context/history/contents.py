"""The content of a message as one text: a string, or a list of parts in the shapes of the APIs that are served.

Nobody can take back what stands in a result or in an answer, and clients repeat their histories: there, a part without
text never fails a request. In a result it has a stand-in; in an answer, and where its type is unknown, it is left out.
A picture or a file in a question is refused, since the question is about it. Pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from gateway.errors import RequestInvalid
from gateway.observe.escape import cut_text, escape_text
from gateway.proxy.stand_in import KINDS, stand_in, text_of

_SHOWN: Final = 100
_NAMED: Final = 32


class LeftOut:
    """The types of parts that the model does not read, as `codec.ignored` names them; at most 32."""

    def __init__(self, place: str = "") -> None:
        """`place`: what their names begin with."""
        self._place = place
        self._names: dict[str, None] = {}

    def add(self, kind: object) -> None:
        """Add a type."""
        if len(self._names) < _NAMED:
            self._names[f"{self._place}{escape_text(str(kind), _SHOWN)}"] = None

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(self._names)


def text_of_content(role: str, content: object, where: str, left_out: LeftOut) -> str:
    """The text of a content. Raises `RequestInvalid`, which names the place."""
    if role == "tool":
        return text_of_result(content, left_out)
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise RequestInvalid(f"{where} must be a string or a list of text parts", param=where)
    parts = cast("list[object]", content)
    # Joined as llama.cpp does.
    return "\n".join(texts_of_parts(role, parts, where, left_out))


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
        return text
    if not isinstance(fields.get("type"), str):
        # No part of any API, but a value that the tool gave.
        return json.dumps(fields, ensure_ascii=False)
    left_out.add(fields["type"])
    return stand_in(fields)


def texts_of_parts(role: str, parts: Sequence[object], where: str, left_out: LeftOut) -> Iterator[str]:
    """The texts of the parts of a question, an answer or a system message. Raises `RequestInvalid`."""
    for part in parts:
        fields: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}
        kind: object = fields.get("type")
        text = text_of(fields)
        if text is not None:
            yield text
        elif not isinstance(kind, str) or kind == "text" or (kind in KINDS and role != "assistant"):
            words = "holds a text part whose 'text' is not a string"
            if kind != "text":
                words = f"holds a part of type {cut_text(repr(kind), _SHOWN)}; this model reads text only"
            raise RequestInvalid(f"{where} {words}", param=where)
        else:
            left_out.add(kind)
