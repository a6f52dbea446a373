"""One view of a tool result: a plain dict, a model such as mcp's `CallToolResult`, or an object with such attributes.

The base install has no mcp, so nothing is imported and nothing is checked by class: a dict has keys, a model has
attributes and `model_copy`. What is taken apart here is put together again as the same kind; originals are never
modified. Knows nothing of ids and maps.
"""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard, TypeVar, cast, runtime_checkable

from leaf_sdk.errors import LeafResultInvalid

ResultT = TypeVar("ResultT")


@runtime_checkable
class Model(Protocol):
    """A pydantic model, as far as we need it."""

    def model_copy(self, *, update: Mapping[str, Any] | None = None) -> "Model":
        """Return a copy with some fields replaced."""
        ...


def blocks_of(result: object) -> list[object]:
    """Return the content blocks of a result. Raises `LeafResultInvalid`: there is no list under `content`."""
    content = field(result, "content")
    if not isinstance(content, list | tuple):
        raise LeafResultInvalid(
            f"a {type(result).__name__} with content of type {type(content).__name__} is not a tool result, "
            "expected `content` to be a list of blocks"
        )
    return list(cast("Sequence[object]", content))


def with_blocks(result: ResultT, blocks: list[object]) -> ResultT:
    """Return a copy of the result, of the same kind, with other content blocks."""
    return replace(result, "content", blocks)


def text_of(block: object) -> str | None:
    """Return the text of a text block, or None for any other block."""
    text = field(block, "text")
    return text if field(block, "type") == "text" and isinstance(text, str) else None


def meta_of(block: object) -> Mapping[str, Any]:
    """Return a block's `_meta`, empty where it has none."""
    meta = field(block, _meta_name(block))
    return meta if is_mapping(meta) else {}


def with_meta(block: ResultT, meta: Mapping[str, Any]) -> ResultT:
    """Return a copy of the block with another `_meta`; an empty one is left out."""
    if not meta and isinstance(block, Mapping):
        rest = {key: value for key, value in cast("Mapping[str, Any]", block).items() if key != "_meta"}
        return cast("ResultT", rest)
    return replace(cast("ResultT", block), _meta_name(cast("object", block)), dict(meta) or None)


def _meta_name(block: object) -> str:
    return "_meta" if is_mapping(block) else "meta"


def is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    """Return whether a value is a mapping. A dict, the usual case, is found without the slow check of the protocol."""
    return type(value) is dict or isinstance(value, Mapping)


def field(thing: object, name: str) -> object:
    """Return one field of a dict or a model, or None."""
    if is_mapping(thing):
        return thing.get(name)
    return cast("object", getattr(thing, name, None))


def replace(thing: ResultT, name: str, value: object) -> ResultT:
    """Return a copy of a dict, a model or an object with attributes, with one field replaced.

    Raises:
        LeafResultInvalid: it is none of these, or has no such attribute.
    """
    if isinstance(thing, Mapping):
        return cast("ResultT", {**cast("Mapping[str, object]", thing), name: value})
    if isinstance(thing, Model):
        return cast("ResultT", thing.model_copy(update={name: value}))
    if name in getattr(cast("object", thing), "__dict__", {}):
        changed = copy.copy(thing)  # neither of them, such as fastmcp 2's ToolResult
        vars(changed)[name] = value
        return changed
    raise LeafResultInvalid(
        f"a {type(thing).__name__} can't be copied with other content, "
        "expected a dict, mcp's CallToolResult or fastmcp's ToolResult"
    )
