"""How streams of frames are sent, and to which versions of Codec: the settings as written, and in their internal form.

Turns checked values into a `WireConfig`; opens no dictionary. Times are seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from gateway.config.section import Section
from gateway.errors import ConfigError


@dataclass(frozen=True, slots=True)
class WireConfig:
    """Streams of frames."""

    max_delay: float = 0.040
    dictionary_msgpack: Path | None = None
    dictionary_protobuf: Path | None = None
    minimum_version: str | None = None
    maps_origin: str | None = None


_WIRE = WireConfig()


class WireSection(Section):
    """`[wire]`."""

    max_delay: Annotated[float, Field(ge=0, le=10)] = Field(
        default=_WIRE.max_delay,
        description="Seconds for which an id in an interactive stream of frames may be held back to be sent "
        "together with others.",
    )
    dictionary_msgpack: str | None = Field(
        default=None, description="File with the zstd dictionary for msgpack frames; unset: they are not sent as zstd."
    )
    dictionary_protobuf: str | None = Field(
        default=None, description="File with the zstd dictionary for protobuf frames; unset: they are not sent as zstd."
    )
    minimum_version: str | None = Field(
        default=None,
        pattern=r"^[0-9]{1,3}\.[0-9]{1,3}$",
        description="Oldest version of Codec that is served: a client that asks for frames and speaks an older "
        "one gets 426; unset: all are served.",
    )
    maps_origin: str | None = Field(
        default=None,
        pattern=r"^(https://[!-~]+|http://(localhost|127\.0\.0\.1)([:/][!-~]*)?)$",
        description="URL under which you publish your maps (`codec-leaf map publish`). In streams, "
        "`Codec-Tokenizer-Map` is then the URL of the map there and `Codec-Tokenizer-Map-Hash` its "
        "hash; unset: streams name their map by its hash alone.",
    )


def build_wire(values: Mapping[str, Any]) -> WireConfig:
    """Build the settings from checked values. Raises `ConfigError`: a dictionary is not a file."""
    paths = {key: Path(values[key]) for key in ("dictionary_msgpack", "dictionary_protobuf") if values.get(key)}
    for key, path in paths.items():
        if not path.is_file():
            raise ConfigError(
                f"wire.{key}: expected a zstd dictionary, but {str(path)!r} is not a file: correct the path"
            )
    return replace(WireConfig(), **{**values, **paths})
