"""Whether a visit may see the text of conversations, and where that was decided.

Turns the setting `console.texts`, how the visit reaches the console, and the visitor's own choice into an answer and
its reason. With `auto`, text is shown by default only where all callers can be taken for the operator: the admin port
is on loopback, the browser reaches it without a proxy, and no caller has credentials of its own.
"""

from dataclasses import dataclass

from gateway.config.address import is_loopback
from gateway.config.gateway_config import GatewayConfig


@dataclass(frozen=True, slots=True)
class Words:
    """Whether text is shown in one visit."""

    shown: bool
    can_switch: bool
    """Whether the visitor may switch; False: the configuration decides."""


def words_of(config: GatewayConfig, *, chosen: bool | None, direct: bool) -> Words:
    """Decide for one visit.

    Args:
        config: the current settings.
        chosen: what the visitor chose; None: nothing.
        direct: whether no proxy stands between the browser and the gateway.
    """
    if config.console.texts != "auto":
        return Words(config.console.texts == "on", can_switch=False)
    return Words(direct and _has_one_user(config) if chosen is None else chosen, can_switch=True)


def _has_one_user(config: GatewayConfig) -> bool:
    serve = config.serve
    # The key file is looked for each time: keys can be added while the gateway runs. A file without keys counts too,
    # as it does for callers, who then need a key that does not exist.
    has_keys = serve.keys is not None and serve.keys.exists()
    return is_loopback(serve.admin_host) and not has_keys and serve.oauth is None
