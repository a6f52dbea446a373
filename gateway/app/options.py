"""The options of a `serve` command, and the settings that they result in.

Turns flags and the files that they name into a `GatewayConfig`, at the start and whenever the files change. Turns the
options into JSON and back, so that another process can read the same settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.config.engine_tables import copies
from gateway.config.gateway_config import GatewayConfig
from gateway.config.load import load_config
from gateway.engine.start.maps import has_no_model
from gateway.serve.auth.gateway_token import ensure_token


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of one `serve` command."""

    config: Path | None
    flags: Mapping[str, object]
    """Settings by dotted key; None: not given."""
    engines: int | None
    log_level: str

    def read(self) -> GatewayConfig:
        """Read the settings as they are now. Raises `ConfigError`."""
        settings = load_config(self.config, self.flags)
        if self.engines is not None:
            settings = copies(settings, self.engines)
        settings = replace(settings, serve=replace(settings.serve, token=ensure_token(settings)))
        if not self.names_map and has_no_model(settings):
            settings = replace(settings, tokens=replace(settings.tokens, map=None))
        return settings

    @property
    def names_map(self) -> bool:
        """Whether a token map was asked for by name."""
        return self.flags.get("tokens.map") is not None

    def as_json(self) -> dict[str, Any]:
        """The options as JSON values. Relative paths stay relative to the current folder."""
        flags = {key: str(value) if isinstance(value, Path) else value for key, value in self.flags.items()}
        config = None if self.config is None else str(self.config)
        return {"config": config, "flags": flags, "engines": self.engines, "log_level": self.log_level}

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> "ServeOptions":
        """Read what `as_json` returned."""
        config = None if values["config"] is None else Path(values["config"])
        return ServeOptions(config, values["flags"], values["engines"], values["log_level"])
