"""How one stream leaves, and the documents in which clients find what they may ask for."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.config.wire import WireConfig
from gateway.engine.start.maps import MapSet, map_file
from gateway.errors import ConfigError, GatewayError
from gateway.serve.generation.request_fields import FlushName
from gateway.serve.http.error_answers import error_response
from leaf_sdk.wire import (
    AT_ONCE,
    BATCH,
    INTERACTIVE,
    MEDIA_TYPES,
    Choice,
    Dictionary,
    FlushPolicy,
    Format,
    available_codings,
    choose,
)
from leaf_sdk.wire.dictionary import HEADER as DICTIONARY_HEADER

# Source: Codec v0.5 (codec.md A.5, A.6), RFC 9110 12.5.

MAP_HEADER: Final = "Codec-Tokenizer-Map"
MAP_HASH_HEADER: Final = "Codec-Tokenizer-Map-Hash"
"""Sent beside a map's URL (the form of Codec's overhead proposal)."""
VARY: Final = "Accept-Encoding, Codec-Client-Version"
_POLICIES: Final[dict[FlushName, FlushPolicy]] = {"interactive": INTERACTIVE, "batch": BATCH, "at_once": AT_ONCE}


@dataclass(frozen=True, slots=True)
class WireOffer:
    """What the gateway can write."""

    dictionaries: Mapping[Format, Dictionary] = field(default_factory=dict[Format, Dictionary])
    max_delay: float = INTERACTIVE.max_delay
    """Seconds that an id may wait for others in an interactive stream."""
    maps_origin: str | None = None
    """Origin under which the maps are published, each by its hash; None: they are not."""

    @classmethod
    def of(cls, config: WireConfig) -> "WireOffer":
        """The offer that the settings allow. Raises `ConfigError` if a dictionary can't be read."""
        dictionaries: dict[Format, Dictionary] = {}
        try:
            if config.dictionary_msgpack is not None:
                dictionaries["msgpack"] = Dictionary(config.dictionary_msgpack.read_bytes())
            if config.dictionary_protobuf is not None:
                dictionaries["protobuf"] = Dictionary(config.dictionary_protobuf.read_bytes())
        except OSError as error:
            raise ConfigError(f"wire: a zstd dictionary can't be read ({error}); correct its path") from error
        return cls(dictionaries, config.max_delay, config.maps_origin)

    def policy(self, name: FlushName) -> FlushPolicy:
        """The flush policy of this name."""
        policy = _POLICIES[name]
        return replace(policy, max_delay=self.max_delay) if policy is INTERACTIVE else policy

    def wire(
        self, form: Format, flush: FlushName, map_id: str, *, accept_encoding: str | None, expected_ids: int | None
    ) -> "Wire":
        """Decide how one stream leaves. `expected_ids`: the most ids that it may have; None if unknown."""
        policy = self.policy(flush)
        dictionary = self.dictionaries.get(form)
        choice = choose(
            accept_encoding,
            policy,
            available=_AVAILABLE,
            has_dictionary=dictionary is not None,
            expected_ids=expected_ids,
        )
        origin = self.maps_origin
        return Wire(
            form,
            policy,
            choice,
            map_id,
            dictionary if choice.coding == "zstd" else None,
            None if origin is None else origin.rstrip("/") + published_path(map_id),
        )


_AVAILABLE: Final = available_codings()


@dataclass(frozen=True, slots=True)
class Wire:
    """How one stream leaves."""

    format: Format
    policy: FlushPolicy
    choice: Choice
    map_id: str
    dictionary: Dictionary | None = None
    map_url: str | None = None
    """Where the map is published; None: nowhere."""

    def headers(self, visible: "Visible") -> list[tuple[bytes, bytes]]:
        """The response's headers. `visible` picks the Codec headers that the client's version knows."""
        headers = [
            (b"content-type", MEDIA_TYPES[self.format].encode()),
            (b"cache-control", b"no-cache, no-transform"),
            (b"x-accel-buffering", b"no"),
            (b"vary", VARY.encode()),
        ]
        if self.choice.coding != "identity":
            headers.append((b"content-encoding", self.choice.coding.encode()))
        named = {MAP_HEADER: self.map_id}
        if self.map_url is not None:
            named = {MAP_HEADER: self.map_url, MAP_HASH_HEADER: self.map_id}
        if self.dictionary is not None:
            named[DICTIONARY_HEADER] = self.dictionary.hash
        return headers + [(name.lower().encode(), named[name].encode()) for name in visible(named)]


def published_path(map_id: str) -> str:
    """A map's path, by its hash, under the origin that publishes it (docs/protocol.md, "Documents")."""
    return f"/.well-known/codec/maps/sha256/{map_id.removeprefix('sha256:')}.json"


class Visible:
    """Picks the headers that a client of some version may see."""

    def __init__(self, version: tuple[int, int]) -> None:
        self._version = version

    def __call__(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that the client's version knows; all versions know a name that is not in `HEADER_FLOORS`."""
        return [name for name in names if HEADER_FLOORS.get(name.lower(), (0, 0)) <= self._version]


HEADER_FLOORS: Final[dict[str, tuple[int, int]]] = {
    "codec-tokenizer-map": (0, 2),
    "codec-tokenizer-map-hash": (0, 2),
    "codec-zstd-dict": (0, 2),
    "codec-latent-map": (0, 3),
    "codec-map": (0, 3),
    "codec-safety-policy": (0, 4),
    "codec-safety-policy-hash": (0, 4),
}
"""The version of Codec that introduced a header: older clients are not sent it (codec.md A.5)."""
DEFAULT_VERSION: Final = (0, 2)
"""The version of a client that does not state one."""


def read_version(value: str | None) -> tuple[int, int]:
    """Read `Codec-Client-Version` as major and minor version.

    A leading v and a patch version are ignored. Anything else that is not a version counts as none.
    """
    major, _, rest = (value or "").strip().lstrip("vV").strip().partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal() and len(major) + len(minor) < 9):
        return DEFAULT_VERSION
    return int(major), int(minor)


# Documents named by their hash never change and may be cached for ever; clients must revalidate the rest. Source: Codec
# v0.5 (codec.md A.4, B.6).

CODEC_VERSION: Final = "0.5"
_FOR_EVER: Final = "public, max-age=31536000, immutable"
_A_WHILE: Final = "public, max-age=300, stale-while-revalidate=86400"
_WELL_KNOWN: Final = "/.well-known/codec"


class Documents:
    """The routes of the documents."""

    def __init__(self, maps: MapSet, offer: WireOffer, wire: WireConfig, *, runs_bolt_ons: bool) -> None:
        self._maps = maps
        self._wire = wire
        self._runs_bolt_ons = runs_bolt_ons
        self._dictionaries = {each.hash.removeprefix("sha256:"): each.data for each in offer.dictionaries.values()}
        self._formats = {each.hash: form for form, each in offer.dictionaries.items()}
        self._schema = (files("leaf_sdk.wire") / "codec.proto").read_bytes()

    def routes(self) -> list[Route]:
        """The routes, for `app/process.py` to mount."""
        return [
            Route("/codec/schema", self._show_schema),
            Route("/codec/version", self._show_version),
            Route(f"{_WELL_KNOWN}/index.json", self._show_index),
            Route(f"{_WELL_KNOWN}/version-policy.json", self._show_policy),
            Route(f"{_WELL_KNOWN}/maps/sha256/{{name}}.json", self._show_map),
            Route(f"{_WELL_KNOWN}/maps/{{name:path}}.json", self._show_pointer),
            Route(f"{_WELL_KNOWN}/dicts/{{name}}.zstd", self._show_dictionary),
        ]

    async def _show_schema(self, request: Request) -> Response:
        return _document(request, self._schema, "text/plain; charset=utf-8", _A_WHILE)

    async def _show_version(self, request: Request) -> Response:
        formats = ["json", "msgpack", "protobuf"]
        return _json(
            request,
            {
                "version": CODEC_VERSION,
                "stream_formats": formats,
                "delta_varint": False,
                "bolt_on_dispatch": self._runs_bolt_ons,
            },
        )

    async def _show_index(self, request: Request) -> Response:
        maps = [_pointer(request, each.id, map_id) for map_id, each in self._maps.accepted.items()]
        dictionaries = [{"hash": name, "format": form} for name, form in self._formats.items()]
        return _json(request, {"codec_version": CODEC_VERSION, "maps": maps, "zstd_dictionaries": dictionaries})

    async def _show_policy(self, request: Request) -> Response:
        if self._wire.minimum_version is None:
            return _missing("this gateway requires no minimum version")
        return _json(request, {"minimum_version": self._wire.minimum_version, "required_features": []})

    async def _show_pointer(self, request: Request) -> Response:
        name = request.path_params["name"]
        for map_id, each in self._maps.accepted.items():
            if each.id == name:
                return _json(request, _pointer(request, name, map_id))
        return _missing(f"no map {name!r:.100} is served here; {_WELL_KNOWN}/index.json lists those that are")

    async def _show_map(self, request: Request) -> Response:
        name = request.path_params["name"]
        map_id = f"sha256:{name}"
        if map_id not in self._maps.accepted:
            return _missing(f"no map {map_id!r:.100} is served here; {_WELL_KNOWN}/index.json lists those that are")
        if (cached := _unchanged(request, name, _FOR_EVER)) is not None:
            return cached
        try:
            data = await anyio.to_thread.run_sync(map_file, self._maps, map_id)
        except GatewayError as error:
            return _missing(error.message)
        return _document(request, data, "application/json", _FOR_EVER)

    async def _show_dictionary(self, request: Request) -> Response:
        data = self._dictionaries.get(request.path_params["name"])
        if data is None:
            return _missing(f"no such dictionary is served here; {_WELL_KNOWN}/index.json lists those that are")
        return _document(request, data, "application/octet-stream", _FOR_EVER)


def _pointer(request: Request, name: str, map_id: str) -> dict[str, str]:
    return {"id": name, "url": str(request.base_url).rstrip("/") + published_path(map_id), "hash": map_id}


def _json(request: Request, document: dict[str, Any]) -> Response:
    return _document(request, JSONResponse(document).body, "application/json", _A_WHILE)


def _document(request: Request, data: bytes | memoryview, media_type: str, keep: str) -> Response:
    tag = sha256(data).hexdigest()
    unchanged = _unchanged(request, tag, keep)
    return unchanged or Response(bytes(data), media_type=media_type, headers=_headers(tag, keep))


def _unchanged(request: Request, tag: str, keep: str) -> Response | None:
    known = {each.strip().removeprefix("W/") for each in request.headers.get("if-none-match", "").split(",")}
    return Response(status_code=304, headers=_headers(tag, keep)) if not known.isdisjoint((f'"{tag}"', "*")) else None


def _headers(tag: str, keep: str) -> dict[str, str]:
    return {"etag": f'"{tag}"', "cache-control": keep, "access-control-allow-origin": "*"}


def _missing(message: str) -> Response:
    headers = {"access-control-allow-origin": "*", "cache-control": "no-store"}
    return error_response(404, message, code="not_found", headers=headers)
