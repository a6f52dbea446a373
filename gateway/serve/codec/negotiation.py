"""How one stream leaves: its format, coding, dictionary and flush policy, decided from the request and the settings.

Turns request headers and fields into a `Wire` and its response headers. It opens no streams. Source: Codec v0.5
(codec.md A.5, A.6), RFC 9110 12.5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gateway.config.wire import WireConfig
from gateway.errors import ConfigError
from gateway.serve.generation.fields import FlushName
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
