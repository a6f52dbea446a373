"""What pages that other packages bring to the admin port may read: the parts of one running gateway."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.agent import Agent
    from gateway.config.model import GatewayConfig
    from gateway.engine.pool.pool import EnginePool
    from gateway.observe.audit import Audit
    from gateway.observe.metrics import Metrics
    from gateway.observe.notices import TokenNotices
    from gateway.proxy import Proxy, ResultTokens
    from gateway.proxy.costs import DefinitionCosts
    from gateway.serve.admin.status import StatusReport


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """The parts of the gateway that pages read."""

    proxy: "Proxy"
    tokens: "ResultTokens"
    notices: "TokenNotices"
    costs: "DefinitionCosts"
    engines: "EnginePool"
    agent: "Agent"
    status: "StatusReport"
    metrics: "Metrics"
    audit: "Audit | None"

    @property
    def config(self) -> "GatewayConfig":
        """The current settings."""
        return self.proxy.config
