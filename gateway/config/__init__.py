"""Settings: from mcpServers JSON, TOML, environment and flags to one frozen `GatewayConfig`.

Readers (`server_files.py`, `server_entries.py`, `settings.py`, `layers.py`) turn what people write into the model
(`gateway_config.py`); `load.py` joins them. Nothing above this floor reads a file or the environment for a setting.
"""

from gateway.config.gateway_config import (
    EngineConfig,
    GatewayConfig,
    LimitsConfig,
    ServeConfig,
    TokensConfig,
    UpstreamConfig,
)

__all__ = ["EngineConfig", "GatewayConfig", "LimitsConfig", "ServeConfig", "TokensConfig", "UpstreamConfig"]
