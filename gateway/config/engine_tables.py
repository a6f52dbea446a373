"""`[engine]` and `[engines.NAME]`: the settings of one engine, or of each of several, checked and built.

Turns checked layers into `EngineConfig`s by name. It starts no engine, and asks none what it is.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.config.address import is_http_url, is_loopback
from gateway.config.gateway_config import CHATML, EngineConfig, GatewayConfig, ServeConfig
from gateway.errors import ConfigError
from gateway.escape import mask_text

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MOST: Final = 256
"""Engines of one pool."""
_API: Final = re.compile(r"(?:/v1(?:/(?:chat/)?completions|/models)?)?/*$")
"""What people write behind a server's address because a client of OpenAI's API wants it there."""

Values = Mapping[str, Any]


def build_engines(one: Values, several: Mapping[str, Values]) -> tuple[EngineConfig, Mapping[str, EngineConfig]]:
    """Return the engine of `[engine]`, and those of `[engines.NAME]`. If there are any of these, the first is `none`.
    Raises `ConfigError`: both are set, a name is not valid, or a setting is wrong."""
    if not several:
        return build_engine(one, "engine"), MappingProxyType({})
    if one:
        raise ConfigError(
            "'engine' and 'engines' are both set: move the settings of [engine] to one more [engines.NAME], or remove "
            "one of the two (a flag or a variable for the engine counts as [engine])"
        )
    if len(several) > _MOST:
        raise ConfigError(
            f"engines: there are {len(several)}, but at most {_MOST} are allowed: put some behind a router"
        )
    for name in several:
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"engines.{name}: an engine's name must have 1 to 64 letters, digits, '_' and '-': rename it"
            )
    built = {name: build_engine(values, f"engines.{name}") for name, values in several.items()}
    for name, engine in built.items():
        if engine.kind == "none":
            raise ConfigError(
                f"engines.{name}: expected a url, or kind = 'embedded': set one of them, or remove the section"
            )
        if engine.kind == "url" and (twin := _twin(name, engine, built)) is not None:
            raise ConfigError(
                f"engines.{name} and engines.{twin} have the same url, {mask_text(engine.url or '')!r}, and the same "
                "model: remove one of them, or set another served_model"
            )
    return EngineConfig(), MappingProxyType(built)


def copies(config: GatewayConfig, count: int) -> GatewayConfig:
    """Return the configuration with `count` engines like its own embedded one. Raises `ConfigError`: it names engines
    that the gateway does not start itself, or several."""
    if config.engines or config.engine.kind == "url":
        raise ConfigError(
            "--engines starts embedded engines, but the configuration names other engines: remove one of the two"
        )
    one = replace(config.engine, kind="embedded")
    several = {f"engine-{number}": one for number in range(1, count + 1)}
    if one.slot_files not in {"auto", "off"}:
        several = {name: replace(one, slot_files=str(Path(one.slot_files) / name)) for name in several}
    return replace(config, engine=EngineConfig(), engines=MappingProxyType(several))


def _twin(name: str, engine: EngineConfig, engines: Mapping[str, EngineConfig]) -> str | None:
    here = engine.url, engine.served_model
    return next(
        (other for other, each in engines.items() if other != name and (each.url, each.served_model) == here), None
    )


def build_engine(values: Values, key: str) -> EngineConfig:
    """Return the engine of one section, which messages call `key`. Raises `ConfigError`."""
    defaults = EngineConfig()
    volatile = tuple(values.get("volatile", defaults.volatile))
    built = {
        "model": Path(values["model"]) if values.get("model") else None,
        "volatile": volatile,
        "aliases": tuple(values.get("aliases", ())),
    }
    # A model is named to be loaded; with a URL, or with kind = "none", it only says where the token map is.
    kind = {"kind": "embedded"} if built["model"] and "kind" not in values else {}
    engine = replace(defaults, **{**values, **built, **kind})
    for number, pattern in enumerate(volatile):
        try:
            re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"{key}.volatile[{number}] {pattern!r} is not a regular expression: {error}") from error
    _check(engine, key)
    return replace(engine, url=_API.sub("", engine.url)) if engine.url else engine


def refuse_own_ports(engines: Mapping[str, EngineConfig], serve: ServeConfig) -> None:
    """Raise `ConfigError` for an engine whose URL is one of the gateway's own addresses."""
    for name, engine in engines.items():
        parts = urlsplit(engine.url or "")
        if parts.port in (serve.port, serve.admin_port) and is_loopback(parts.hostname or ""):
            raise ConfigError(
                f"{name!r} has the url {mask_text(engine.url or '')!r}, which is this gateway's own port: set "
                "engine.url (--engine) to the address of the llama.cpp or vLLM server, or choose another --port"
            )


def _check(engine: EngineConfig, key: str) -> None:
    if (engine.kind == "url") != (engine.url is not None):
        raise ConfigError(
            f"{key}.kind is {engine.kind!r}, but {key}.url is {'' if engine.url else 'not '}set: change one of them"
        )
    if engine.url is not None and not is_http_url(engine.url):
        raise ConfigError(f"{key}: expected 'embedded', 'none' or http://HOST:PORT, got {mask_text(engine.url)!r}")
    if engine.isolate and engine.kind == "url" and engine.api != "vllm":
        raise ConfigError(
            f"{key}.isolate can't be guaranteed for a llama.cpp server at {key}.url: the gateway can't see who else "
            "uses that server, or whether it keeps prompts in a cache of its own; use the embedded engine, set "
            f'{key}.api = "vllm" if it is a vLLM server, or set isolate to false'
        )
    if engine.own_slots is not None and (engine.kind != "url" or engine.exclusive):
        raise ConfigError(
            f"{key}.own_slots is for a server at {key}.url that several gateways share, but "
            + (f"{key}.exclusive says that only one does" if engine.exclusive else f"{key}.kind is {engine.kind!r}")
            + ": remove one of the two"
        )
    if engine.served_model is not None and engine.kind != "url":
        raise ConfigError(f"{key}.served_model is for a server at {key}.url: remove it, or set the url of one")
    if engine.slot_range is not None and not engine.slot_range:
        raise ConfigError(
            f"{key}.own_slots: {engine.own_slots!r} ends before it begins: write FIRST-LAST, counted from 0"
        )
    if engine.isolate and engine.cache_mib:
        raise ConfigError(
            f"{key}.isolate needs the host cache off, but {key}.cache_mib is {engine.cache_mib}: remove it"
        )
    if engine.slot_files not in {"auto", "off"} and not (
        engine.kind == "embedded" or (engine.kind == "url" and engine.exclusive)
    ):
        raise ConfigError(
            f"{key}.slot_files {engine.slot_files!r} needs an engine that is this gateway's alone, but {key}.kind is "
            f"{engine.kind!r} and {key}.exclusive is not set: set exclusive if nobody else generates with that server "
            "and it was started with --slot-save-path of the same path, or remove slot_files"
        )
    _check_template(engine, key)
    if engine.model is not None and not engine.model.is_file():
        raise ConfigError(
            f"{key}.model: expected a GGUF file, but {str(engine.model)!r} is not a file: correct the path"
        )


def _check_template(engine: EngineConfig, key: str) -> None:
    if engine.chat_template is None:
        return
    if engine.kind == "url":
        raise ConfigError(
            f"{key}.chat_template (--chat-template-file) is for the embedded engine, but {key}.url names a server: "
            "give the template to that server (llama-server --chat-template-file), or remove it"
        )
    if engine.chat_template != CHATML and not Path(engine.chat_template).is_file():
        raise ConfigError(
            f"{key}.chat_template (--chat-template-file): expected a file or {CHATML!r}, but "
            f"{engine.chat_template!r} is not a file: correct the path"
        )
