"""What exists once a machine and the parent does not have yet: engines that a gateway starts, or has to itself.

Several workers are refused where the settings name such.
"""

from gateway.config.model import EngineConfig, GatewayConfig
from gateway.errors import ConfigError

_ALONE = "or set serve.workers to 1"


def refuse_what_needs_a_host(config: GatewayConfig) -> None:
    """Raise `ConfigError` where a setting means something that there would be once for each worker."""
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
