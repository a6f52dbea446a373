"""A compose file as the services that one profile starts, in order: what `docker compose` would do with it.

Reads the part of the specification that our own file uses: variables with defaults, anchors, profiles, dependencies.
Starts nothing.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import yaml

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


def read_compose(path: Path, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the file with its variables filled in. Raises KeyError for a variable with neither value nor default."""

    def value(found: re.Match[str]) -> str:
        given = environ.get(found["name"]) or found["default"]
        if given is None:
            raise KeyError(found["name"])
        return given

    return _filled(yaml.safe_load(path.read_text(encoding="utf-8")), value)


def _filled(node: Any, value: Callable[[re.Match[str]], str]) -> Any:
    if isinstance(node, str):
        return _VARIABLE.sub(value, node)
    if isinstance(node, dict):
        return {key: _filled(each, value) for key, each in cast("dict[str, Any]", node).items()}
    if isinstance(node, list):
        return [_filled(each, value) for each in cast("list[Any]", node)]
    return node


def started_by(compose: Mapping[str, Any], profile: str) -> dict[str, dict[str, Any]]:
    """Return the services of this profile, each after those that it depends on."""
    chosen = {
        name: service
        for name, service in compose["services"].items()
        if not service.get("profiles") or profile in service["profiles"]
    }
    ordered: dict[str, dict[str, Any]] = {}

    def add(name: str) -> None:
        if name in chosen and name not in ordered:
            for other in chosen[name].get("depends_on", {}):
                add(other)
            ordered[name] = chosen[name]

    for name in chosen:
        add(name)
    return ordered


def networks_of(service: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield the service's networks, each with the names that it has there besides its own."""
    networks: dict[str, Any] | list[str] = service.get("networks", ["default"])
    if isinstance(networks, list):
        yield from ((name, []) for name in networks)
    else:
        yield from (
            (name, list(cast("dict[str, Any]", more or {}).get("aliases", []))) for name, more in networks.items()
        )
