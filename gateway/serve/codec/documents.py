"""Codec's discovery documents: the schema, the version, maps by name and by hash, dictionaries.

Turns what the gateway holds into `GET /codec/*` and `GET /.well-known/codec/*`. Documents named by their hash never
change and may be cached for ever; clients must revalidate the rest. Source: Codec v0.5 (codec.md A.4, B.6).
"""

from hashlib import sha256
from importlib.resources import files
from typing import Any, Final

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.config.wire import WireConfig
from gateway.engine.start.maps import MapSet, map_file
from gateway.errors import GatewayError
from gateway.serve.codec.negotiation import WireOffer, published_path
from gateway.serve.http.errors import error_response

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
