"""The state of the whole gateway in one report: `/status` shows it, and `codec-gateway status` prints it.

Turns what the packages know about themselves into JSON values. Making a report queries neither a server nor the engine.
A report contains no secrets: causes are masked as in the log, and keys are listed by name. It knows no layout.
`admin_pages.py` serves it; `app/services.py` makes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from time import monotonic
from typing import Any, Final

import anyio.to_thread

from gateway.config.gateway_config import GatewayConfig, UpstreamConfig
from gateway.config.show import secrets_of
from gateway.context.compose.recall import Comparison, Recall
from gateway.engine.pool.engine_choice import MemberStatus
from gateway.engine.pool.pool import EnginePool
from gateway.errors import ConfigError, EngineError
from gateway.escape import escape_text, mask_text
from gateway.observe.logs import TokenNotices
from gateway.proxy.bolt_on import BoltOnStatus
from gateway.proxy.costs import DefinitionCosts
from gateway.proxy.naming import ToolEntry
from gateway.proxy.proxy import Proxy
from gateway.proxy.server_registry import UpstreamStatus
from gateway.proxy.upstream.items.item_reader import MalformedField
from gateway.proxy.upstream.items.tool_pins import changed_tools
from gateway.serve.admin.admin_pages import Readiness
from gateway.serve.admin.advice import advice_on_context
from gateway.serve.auth.api_keys import KeyFile
from gateway.shared import Shared

_CAUSE: Final = 500
_NAME: Final = 128
_MALFORMED: Final = 100
"""Malformed fields of one server that are reported, at most."""


class StatusReport:
    """Makes status reports on one gateway."""

    def __init__(
        self,
        engines: EnginePool,
        proxy: Proxy,
        readiness: Readiness,
        shim: Callable[[], Mapping[str, Any]],
        costs: DefinitionCosts,
        notices: TokenNotices,
        recall: Recall,
        prompt_tokens: Callable[[], Mapping[str, int]],
        shared: Shared | None = None,
    ) -> None:
        """Take now as the time when the gateway was started. `prompt_tokens`: those of all requests."""
        self._engines = engines
        self._proxy = proxy
        self._readiness = readiness
        self._shim = shim
        self._costs = costs
        self._notices = notices
        self._recall = recall
        self._prompt_tokens = prompt_tokens
        self._shared = shared
        self._started = datetime.now(UTC).replace(microsecond=0)
        self._since = monotonic()

    async def make(self) -> dict[str, Any]:
        """One report, as JSON values. Times are seconds."""
        config, secrets = self._proxy.config, secrets_of(self._proxy.config)
        pins, keys = await anyio.to_thread.run_sync(_read_files, config, secrets)
        ready = self._readiness.report()
        servers = [self._server(status, pins["broken"]) for status in self._proxy.statuses()]
        tokens = sum(server["definition_tokens"] for server in servers)
        engine = self._engine(secrets)
        return {
            "version": version("codec-gateway"),
            "started": self._started.isoformat(),
            "uptime": round(monotonic() - self._since, 1),
            "ready": ready["ready"],
            "reasons": [_shown(reason, secrets) for reason in ready["reasons"]],
            "definition_tokens": tokens,
            "definition_advice": advice_on_context(tokens, engine["context"], config.tool_search),
            "tool_search": config.tool_search,
            "servers": servers,
            "pins": pins,
            "engine": engine,
            "engines": [_member(each, config, secrets) for each in self._engines.statuses()] if config.engines else [],
            "maps": {
                "session": None if (held := self._engines.maps.session) is None else held.map_id,
                "accepted": sorted(self._engines.maps.accepted),
            },
            "keys": keys,
            "shared": None if self._shared is None else asdict(self._shared.status),
            "shim": self._shim(),
            "tool_faults": [
                {
                    "engine": name,
                    "server": fault.server,
                    "tool": escape_text(fault.tool, _NAME),
                    "reason": _shown(fault.reason, secrets),
                }
                for name, fault in self._engines.tool_faults()
            ],
            "prompts": [prompt_report(each) for each in self._recall.last()],
            "prompt_tokens": dict(self._prompt_tokens()),
        }

    def engine(self) -> dict[str, Any] | None:
        """The state of the engine, or of all engines as one; None: there is none."""
        config = self._proxy.config
        return self._engine(secrets_of(config)) if config.has_engine else None

    def servers(self) -> list[dict[str, Any]]:
        """The state of each server, without its tools: cheap enough to be asked for as often as wanted."""
        secrets = secrets_of(self._proxy.config)
        return [self._figures(status, secrets) for status in self._proxy.statuses()]

    def _server(self, status: UpstreamStatus, broken: Sequence[dict[str, str]]) -> dict[str, Any]:
        config = next((each for each in self._proxy.config.upstreams if each.name == status.name), None)
        tools = [entry for entry in self._proxy.tools() if entry.server == status.name]
        shown = [self._tool(entry, config, broken) for entry in tools]
        return {
            **self._figures(status, secrets_of(self._proxy.config)),
            "definition_tokens": sum(tool["tokens"] for tool in shown),
            "definition_tokens_estimated": any(tool["estimated"] for tool in shown),
            "tools": shown,
        }

    def _figures(self, status: UpstreamStatus, secrets: frozenset[str]) -> dict[str, Any]:
        config = next((each for each in self._proxy.config.upstreams if each.name == status.name), None)
        return {
            "name": status.name,
            "transport": status.transport,
            "state": status.state,
            "protocol": status.protocol,
            "sessions": status.sessions,
            "in_flight": status.in_flight,
            "queued": status.queued,
            "breaker": status.breaker,
            "restarts": status.restarts,
            "pin": None if config is None else config.pin,
            "last_error": None if status.last_error is None else _shown(status.last_error, secrets),
            "prompts": status.prompts,
            "resources": status.resources,
            "invalid_tools": [
                {"tool": escape_text(name, _NAME), "reason": escape_text(why, _CAUSE)}
                for name, why in sorted(status.invalid_tools.items())
            ],
            "malformed": [_malformed(each) for each in status.malformed[:_MALFORMED]],
            "bolt_ons": [_bolt_on(each) for each in status.bolt_ons],
        }

    def _tool(
        self, entry: ToolEntry, config: UpstreamConfig | None, broken: Sequence[dict[str, str]]
    ) -> dict[str, Any]:
        cost = self._costs.of(entry)
        named = {"server": entry.server, "tool": escape_text(entry.tool, _NAME)}
        is_broken = config is not None and config.pin != "off" and any(named.items() <= each.items() for each in broken)
        return {
            "name": escape_text(entry.name, _NAME),
            "tokens": cost.tokens,
            "estimated": cost.estimated,
            "ids": self._notices.last(entry.name),
            "pin_broken": is_broken,
        }

    def _engine(self, secrets: frozenset[str]) -> dict[str, Any]:
        config = self._proxy.config
        kind = "pool" if config.engines else config.engine.kind
        unknown = dict.fromkeys(("model", "context", "slots", "rewind", "tool_format"))
        if kind == "none":
            return {"kind": kind, "up": False, "state": "none", "reason": None, **unknown}
        state, reason = self._engines.state()
        try:
            ready = self._engines.ready()
        except EngineError:
            return {"kind": kind, "up": False, "state": state, "reason": _shown(reason, secrets), **unknown}
        facts = ready.facts
        return {
            "kind": kind,
            "up": True,
            "state": state,
            "reason": None,
            "model": escape_text(facts.model, _NAME),
            "context": facts.context,
            "slots": facts.slots,
            "rewind": facts.can.rewind,
            "tool_format": ready.tool_format.format.name,
        }


def _member(status: MemberStatus, config: GatewayConfig, secrets: frozenset[str]) -> dict[str, Any]:
    facts = None if status.ready is None else status.ready.facts
    return {
        "name": status.name,
        "kind": config.engines[status.name].kind,
        "up": facts is not None,
        "state": status.state,
        "reason": None if status.reason is None else _shown(status.reason, secrets),
        "model": None if facts is None else escape_text(facts.model, _NAME),
        "context": None if facts is None else facts.context,
        "slots": None if facts is None else facts.slots,
        "answers": status.running,
        "breaker": status.breaker,
    }


def _malformed(field: MalformedField) -> dict[str, str | bool]:
    return {
        "list": field.kind,
        "item": escape_text(field.item, _NAME),
        "field": field.field,
        "reason": escape_text(field.reason, _CAUSE),
        "left_out": field.left_out,
    }


def _bolt_on(bolt_on: BoltOnStatus) -> dict[str, str | None]:
    """A bolt-on's status, with the texts from its manifest escaped."""
    said: dict[str, str | None] = asdict(bolt_on)
    return {key: None if value is None else escape_text(value, _CAUSE) for key, value in said.items()}


def _read_files(config: GatewayConfig, secrets: frozenset[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The contents of the pin file and the key file. A file that can't be used is reported as a problem."""
    pins: dict[str, Any] = {"broken": [], "problem": None}
    keys: dict[str, Any] = {"names": [], "problem": None}
    try:
        pins["broken"] = [
            {"server": each.server, "tool": escape_text(each.tool, _NAME)} for each in changed_tools(config)
        ]
    except ConfigError as error:
        pins["problem"] = _shown(error.message, secrets)
    if config.serve.keys is not None:
        try:
            keys["names"] = sorted(KeyFile(config.serve.keys).read())
        except ConfigError as error:
            keys["problem"] = _shown(error.message, secrets)
    return pins, keys


def _shown(text: str, secrets: frozenset[str]) -> str:
    return escape_text(mask_text(text, secrets), _CAUSE)


def prompt_report(compared: Comparison) -> dict[str, Any]:
    """One request that continued a conversation, without its text."""
    figures, miss = compared.figures, compared.figures.recall_miss
    return {
        "when": compared.when.isoformat(timespec="seconds"),
        "caller": escape_text(compared.principal, _NAME),
        "conversation": compared.conversation,
        "answer": compared.answer_id,
        **figures.counts,
        "reason": figures.reason,
        "message": None if miss is None else miss.message,
        "at": None if miss is None else miss.at,
    }
