"""Two servers with long lists: one lists a malformed item of each kind that public reports describe, the other none.

Each malformed item stands behind one that is fine; a client must be shown everything that is fine, of both servers.
"""

import json
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from types import EllipsisType
from typing import Any, Final

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig

_SCRIPT: Final = Path(__file__).parents[1] / "gateway" / "proxy" / "servers" / "lists.py"
METHODS: Final = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "resourceTemplates": "resources/templates/list",
}
"""By the name of a list, the request for it."""
_OBJECT: Final = {"type": "object"}
_RESOURCES: Final[dict[str, dict[str, Any]]] = {
    "no name": {"name": ...},
    "name null": {"name": None},
    "mimeType null": {"mimeType": None},
    "size a text": {"size": "3"},
    "annotations []": {"annotations": []},
}
MALFORMED: Final[dict[str, dict[str, dict[str, Any | EllipsisType]]]] = {
    "tools": {
        "no inputSchema": {"inputSchema": ...},
        "inputSchema null": {"inputSchema": None},
        "inputSchema []": {"inputSchema": []},
        "inputSchema {}": {"inputSchema": {}},
        "inputSchema of another type": {"inputSchema": {"type": "string"}},
        "inputSchema with a list of types": {"inputSchema": {"type": ["object", "null"]}},
        "inputSchema with anyOf": {"inputSchema": {"anyOf": [_OBJECT]}},
        "properties []": {"inputSchema": {**_OBJECT, "properties": []}},
        "required null": {"inputSchema": {**_OBJECT, "required": None}},
        "a property that is true": {"inputSchema": {**_OBJECT, "properties": {"v": True}}},
        "a type that is none": {"inputSchema": {**_OBJECT, "properties": {"v": {"type": "int"}}}},
        "description null": {"description": None},
        "title null": {"title": None},
        "annotations null": {"annotations": None},
        "annotations []": {"annotations": []},
        "outputSchema null": {"outputSchema": None},
        "outputSchema of another type": {"outputSchema": {"type": "string"}},
        "icons null": {"icons": None},
        "icons [{}]": {"icons": [{}]},
        "_meta null": {"_meta": None},
        "_meta []": {"_meta": []},
        "name null": {"name": None},
    },
    "prompts": {
        "arguments null": {"arguments": None},
        "arguments {}": {"arguments": {}},
        "an argument without a name": {"arguments": [{}]},
        "description null": {"description": None},
    },
    "resources": {**_RESOURCES, "uri null": {"uri": None}},
    "resourceTemplates": {**_RESOURCES, "uriTemplate null": {"uriTemplate": None}},
}
"""By list and variation, the fields that are not as they should be; `...`: not there."""


def config() -> GatewayConfig:
    """The configuration with both servers."""
    return GatewayConfig(upstreams=(_server("bad", MALFORMED), _server("good", {})), prefix="always")


def what_lacks(listed: Mapping[str, Collection[str]]) -> list[str]:
    """What is fine and was not listed. `listed`: by list, the names of its items."""
    wanted = {kind: [each["name"] for each in _items("", kind, {})] for kind in MALFORMED}
    return [
        f"{kind} {name} of {server}"
        for kind, names in wanted.items()
        for server in ("bad", "good")
        for name in names
        if not any(each.endswith(name) and each.startswith((server, name)) for each in listed.get(kind, ()))
    ]


def _server(name: str, malformed: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> UpstreamConfig:
    pages = {method: [{kind: _items(name, kind, malformed.get(kind, {}))}] for kind, method in METHODS.items()}
    return UpstreamConfig(
        name=name, command=sys.executable, args=(str(_SCRIPT), json.dumps(pages)), env={"NOTES": os.devnull}
    )


def _items(server: str, kind: str, malformed: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    items = list[dict[str, Any]]()
    for number, variation in enumerate(MALFORMED[kind]):
        for name in (f"fine-{number}", f"odd-{number}"):
            changes = malformed.get(variation) if name.startswith("odd") else {}
            if changes is not None:
                made = {**_item(server, kind, name), **changes}
                items.append({key: value for key, value in made.items() if value is not ...})
    return items


def _item(server: str, kind: str, name: str) -> dict[str, Any]:
    match kind:
        case "tools":
            return {"name": name, "inputSchema": _OBJECT}
        case "resources":
            return {"name": name, "uri": f"{server}:///{name}"}
        case "resourceTemplates":
            return {"name": name, "uriTemplate": f"{server}:///{name}/{{id}}"}
        case _:
            return {"name": name}
