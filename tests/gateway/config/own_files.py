"""A file of the gateway's own settings, and what is said where it is refused."""

from pathlib import Path

import pytest

from gateway.config.load import load_config
from gateway.errors import ConfigError


def own(folder: Path, text: str) -> Path:
    path = folder / "codec-gateway.toml"
    path.write_text(text)
    return path


def refuse(folder: Path, toml: str = "", /, *, environ: dict[str, str] | None = None, **flags: object) -> str:
    own(folder, toml)
    with pytest.raises(ConfigError) as caught:
        load_config(None, {k.replace("__", "."): v for k, v in flags.items()}, environ=environ or {}, cwd=folder)
    return caught.value.message
