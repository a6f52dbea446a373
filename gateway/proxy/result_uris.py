"""The URIs in a tool's definition or in a server's answer, each replaced by what a function makes of it.

Knows where MCP and its Apps extension put URIs of resources: links and embedded resources in contents, the contents of
a resource, and the page of a tool in `_meta`. URIs in texts and in structured content stay as they are. Nothing is
changed in place; what holds no such URI is returned as it came. Pure.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

Rename = Callable[[str], str]
_PAGES: Final = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of `_meta` that name a tool's page: the older one of MCP Apps, and that of the OpenAI Apps SDK."""


def rename_in_tool(tool: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Return a tool's definition with the URI of its page renamed."""
    return _with(tool, {"_meta": _meta(tool.get("_meta"), rename)})


def rename_in_result(result: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Return an answer to a request for a tool, a prompt, a resource or a task's result with its URIs renamed."""
    inner: object = result.get("result")
    fields = {
        "_meta": _meta(result.get("_meta"), rename),
        "content": _each(result.get("content"), lambda block: _block(block, rename)),
        "contents": _each(result.get("contents"), lambda resource: _uri(resource, rename)),
        "messages": _each(result.get("messages"), lambda message: _message(message, rename)),
        "result": rename_in_result(cast("dict[str, Any]", inner), rename) if isinstance(inner, dict) else inner,
    }
    return _with(result, fields)


def _meta(meta: object, rename: Rename) -> object:
    if not isinstance(meta, dict):
        return meta
    found = cast("dict[str, Any]", meta)
    named: dict[str, object] = {key: rename(found[key]) for key in _PAGES if isinstance(found.get(key), str)}
    ui: object = found.get("ui")
    if isinstance(ui, dict):
        fields = cast("dict[str, Any]", ui)
        uri: object = fields.get("resourceUri")
        named["ui"] = _with(fields, {"resourceUri": rename(uri) if isinstance(uri, str) else uri})
    return _with(found, named)


def _message(message: dict[str, Any], rename: Rename) -> dict[str, Any]:
    content: object = message.get("content")
    if isinstance(content, dict):
        return _with(message, {"content": _block(cast("dict[str, Any]", content), rename)})
    return _with(message, {"content": _each(content, lambda block: _block(block, rename))})


def _block(block: dict[str, Any], rename: Rename) -> dict[str, Any]:
    if block.get("type") == "resource_link":
        return _uri(block, rename)
    resource: object = block.get("resource")
    if block.get("type") != "resource" or not isinstance(resource, dict):
        return block
    return _with(block, {"resource": _uri(cast("dict[str, Any]", resource), rename)})


def _uri(holder: dict[str, Any], rename: Rename) -> dict[str, Any]:
    uri: object = holder.get("uri")
    return _with(holder, {"uri": rename(uri)}) if isinstance(uri, str) else holder


def _each(value: object, change: Callable[[dict[str, Any]], dict[str, Any]]) -> object:
    if not isinstance(value, list):
        return value
    items = cast("list[object]", value)
    changed = [change(cast("dict[str, Any]", each)) if isinstance(each, dict) else each for each in items]
    return changed if any(now is not was for now, was in zip(changed, items, strict=True)) else items


def _with(fields: dict[str, Any], changes: Mapping[str, object]) -> dict[str, Any]:
    """The fields with those changes that are some; the same object if none is."""
    some = {key: value for key, value in changes.items() if key in fields and value is not fields[key]}
    return {**fields, **some} if some else fields
