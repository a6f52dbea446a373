"""What exists once a machine, and so belongs to the parent: servers over stdio and the engines that it starts.

The parent has nothing of this yet, so several workers are refused where the settings name it.
"""

from gateway.config.model import EngineConfig, GatewayConfig
from gateway.errors import ConfigError

_ALONE = "or set serve.workers to 1"


def refuse_what_needs_a_host(config: GatewayConfig) -> None:
    """Raise `ConfigError` where a setting means something that there would be once for each worker."""
    for upstream in config.upstreams:
        if upstream.transport == "stdio":
            raise ConfigError(
                f"server {upstream.name!r} is started over stdio, and with several workers each of them would start "
                f"one of its own: run it as an HTTP server and name its url, {_ALONE}"
            )
    for name, engine in config.members.items():
        _check(name, engine)


def _check(name: str, engine: EngineConfig) -> None:
    if engine.kind == "embedded":
        raise ConfigError(
            f"{name!r} is an embedded engine, and with several workers each of them would start one of its own: run it "
            f"by itself (codec-gateway engine) and name its url, {_ALONE}"
        )
    if engine.exclusive:
        raise ConfigError(
            f"{name!r} is set to be exclusive, but with several workers several generate with it, each with its own "
            f"idea of what its slots hold: remove 'exclusive', {_ALONE}"
        )
