"""`codec-gateway status`: shows the state of a running gateway, by one question to its admin port.

Prints the report: a table of servers, what is wrong with them, and what tools cost. It decides nothing:
`gateway.serve.admin.status_report` makes the report. `app.py` turns errors into a line and an exit code.
"""

import json
import json as jsonlib
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, Final, NamedTuple, cast

import typer
from rich.console import Console

from gateway.cli.exit_codes import FAILED, OK
from gateway.cli.probe import url_of
from gateway.cli.terminal import Cell, Column, plain_console, print_bolt_ons, print_table, say
from gateway.config.address import is_http_url
from gateway.config.load import load_config
from gateway.errors import ConfigError, UpstreamUnavailable

# Another service may listen at the admin port's address: its answer is bounded in bytes and in time.

_TIMEOUT: Final = 10.0
"""Seconds for the whole answer."""
_MOST: Final = 64 << 20
"""Bytes of an answer: a report with 10,000 tools has 4 MB."""
_REASON: Final = 400
"""Characters of a refusal that are shown."""


class AdminAnswer(NamedTuple):
    """What answered."""

    status: int
    body: bytes


def ask_admin(admin: str, path: str) -> AdminAnswer:
    """GET a path. Raises `UpstreamUnavailable` where nothing answers, or without end."""
    # An HTTP client takes 0.2 s to import, and few commands need it.
    import httpx2

    body, ends = bytearray(), monotonic() + _TIMEOUT
    url = f"{admin.rstrip('/')}{path}"
    try:
        with httpx2.Client(timeout=_TIMEOUT, trust_env=False) as client, client.stream("GET", url) as answer:
            for part in answer.iter_bytes():
                body += part
                if len(body) > _MOST or monotonic() > ends:
                    raise UpstreamUnavailable(
                        f"the answer of {admin!r} is too large or too slow for the admin port of a gateway: name that "
                        "with --admin",
                        server="",
                    )
            return AdminAnswer(answer.status_code, bytes(body))
    except httpx2.HTTPError as error:
        raise UpstreamUnavailable(
            f"no gateway answers at {admin!r} ({error}): start it with codec-gateway serve, or name its admin port "
            "with --admin",
            server="",
        ) from None


def not_a_gateway(admin: str, status: int) -> UpstreamUnavailable:
    """The error for an answer that no admin port gives. What another service says is not shown: it may be markup."""
    return UpstreamUnavailable(
        f"what answers at {admin!r} (HTTP status {status}) is not the admin port of a gateway: name that with --admin; "
        "it is 8601 unless serve.admin_port says otherwise",
        server="",
    )


def refusal_of(status: int, body: bytes) -> str | None:
    """The gateway's own words, if the admin port refuses; None for a report, a page, or a path that is not there."""
    try:
        words: object = None if status == 404 else json.loads(body)["error"]["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return words[:_REASON] if isinstance(words, str) else None


_STYLES: Final = {"up": "green", "idle": "dim", "starting": "yellow", "restarting": "red"}
_SERVERS: Final = (
    Column("server"),
    Column("state"),
    Column("protocol", 4),
    Column("tools", 9, "right"),
    Column("tokens", 8, "right"),
    Column("running", 7, "right"),
    Column("waiting", 6, "right"),
    Column("sessions", 5, "right"),
    Column("restarts", 3, "right"),
    Column("breaker", 2),
)
_TOOLS: Final = (Column("tool"), Column("tokens", 3, "right"), Column("ids", 2), Column("pin", 1))
_IDS: Final = {"leaf": "leaf", "shim": "shim", "rejected": "refused", None: "-"}


AdminPort = Annotated[str | None, typer.Option(help="Address of the admin port.", show_default="http://127.0.0.1:8601")]
ConfigOfServe = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        help="The configuration of `serve`, to find the admin port (default: codec-gateway.toml here).",
    ),
]


def status(
    admin: AdminPort = None,
    config: ConfigOfServe = None,
    tools: Annotated[bool, typer.Option("--tools", help="List every tool with the cost of its definition.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Show the state of a running gateway: its servers, their tools and what they cost, engine, map, keys and pins.

    Exit code 0: it is ready; 1: it is not; 4: it can't be reached.

    Example: codec-gateway status --tools
    """
    report = fetch_report(admin or admin_address(config))
    if json:
        typer.echo(jsonlib.dumps(report, indent=2))
    else:
        print_report(plain_console(), report, tools=tools)
    raise typer.Exit(OK if report["ready"] else FAILED)


def fetch_report(admin: str) -> dict[str, Any]:
    """Fetch the report of the gateway with this admin port. Raises `UpstreamUnavailable`, `ConfigError`."""
    if not is_http_url(admin):
        raise ConfigError(f"--admin {admin!r}: expected the admin port's address, such as http://127.0.0.1:8601")
    answer = ask_admin(admin, "/status")
    if reason := refusal_of(*answer):
        raise UpstreamUnavailable(f"{admin!r} gives no report: {reason}", server="")
    try:
        report: object = jsonlib.loads(answer.body)
    except (ValueError, RecursionError):
        report = None
    if answer.status != 200 or not isinstance(report, dict) or "servers" not in report:
        raise not_a_gateway(admin, answer.status)
    return cast("dict[str, Any]", report)


def print_report(console: Console, report: dict[str, Any], *, tools: bool) -> None:
    """Print the report for a person."""
    ready = "ready" if report["ready"] else "not ready"
    head = f"codec-gateway {report['version']}, {ready}, up for {_span(report['uptime'])}"
    say(console, head, "bold green" if report["ready"] else "bold red")
    for reason in report["reasons"]:
        # The line of the engine says it as well.
        if report["engine"].get("reason") is None or not reason.endswith(report["engine"]["reason"]):
            say(console, f"! {reason}", "red")
    if "workers" in report:
        say(console, f"workers {_workers(report['workers'])}")
    for name, words in (("engine", _engine(report["engine"])), ("map", _maps(report["maps"])), ("keys", _keys(report))):
        say(console, f"{name:<7}{words}")
    if shared := report.get("shared"):
        say(console, f"shared {_shared(shared)}", "" if shared["up"] else "red")
    for each in report.get("engines", ()):
        say(console, f"  {each['name']}: {_member(each)}", "" if each["up"] else "red")
    console.print()
    _print_servers(console, report["servers"])
    for line in _problems(report):
        say(console, f"! {line}", "yellow")
    console.print()
    # An older gateway does not report it.
    if "prompt_tokens" in report:
        say(console, "prompt tokens: {cached_tokens:,} of {prompt_tokens:,} cached".format(**report["prompt_tokens"]))
    say(console, _totals(report), "dim")
    if tools:
        console.print()
        print_table(console, _TOOLS, [_tool_row(tool) for server in report["servers"] for tool in server["tools"]])


def _print_servers(console: Console, servers: list[dict[str, Any]]) -> None:
    if not servers:
        say(console, "no servers", "yellow")
        return
    complete = print_table(console, _SERVERS, list(map(_server_row, servers)))
    bolt_ons = [each for server in servers for each in server.get("bolt_ons", ())]
    if not (print_bolt_ons(console, bolt_ons) and complete):
        say(console, "(a wider terminal or --json shows more)", "dim")


def admin_address(config: Path | None) -> str:
    """The address of the admin port of a gateway with this configuration."""
    serve = load_config(config).serve
    return url_of(serve.admin_host, serve.admin_port)


def _workers(workers: list[dict[str, Any]]) -> str:
    restarts = sum(each["restarts"] for each in workers)
    return f"{sum(each['ready'] for each in workers)} of {len(workers)} ready, {restarts} restarts"


def _shared(shared: dict[str, Any]) -> str:
    return f"up, {shared['replicas']} replicas" if shared["up"] else f"down: {shared['reason']}"


def _member(engine: dict[str, Any]) -> str:
    if not engine["up"]:
        return f"{_state(engine)}: {engine['reason']}"
    breaker = "" if engine["breaker"] == "closed" else f", breaker {engine['breaker']}"
    return (
        f"{engine['model']}, {engine['answers']} answers, "
        f"{engine['slots']} slots of {engine['context']} tokens{breaker}"
    )


def _server_row(server: dict[str, Any]) -> list[Cell | str]:
    return [
        server["name"],
        Cell(server["state"], _STYLES.get(server["state"], "")),
        server["protocol"] or "-",
        str(len(server["tools"])),
        _tokens(server["definition_tokens"], estimated=server["definition_tokens_estimated"]),
        str(server["in_flight"]),
        str(server["queued"]),
        str(server["sessions"]),
        str(server["restarts"]),
        Cell(server["breaker"], "" if server["breaker"] == "closed" else "red"),
    ]


def _tool_row(tool: dict[str, Any]) -> list[Cell | str]:
    pin = Cell("changed", "red") if tool["pin_broken"] else "-"
    return [tool["name"], _tokens(tool["tokens"], estimated=tool["estimated"]), _IDS.get(tool["ids"], "-"), pin]


def _problems(report: dict[str, Any]) -> list[str]:
    servers = [
        f"{server['name']}: {server['last_error']}"
        for server in report["servers"]
        if server["last_error"] and server["state"] not in ("up", "idle")
    ]
    pins = [
        f"{each['server']}: the definition of {each['tool']!r} is not the pinned one: see codec-gateway pins show"
        for each in report["pins"]["broken"]
    ]
    invalid = [
        f"{server['name']}: {each['tool']!r} is not offered: {each['reason']}"
        for server in report["servers"]
        for each in server["invalid_tools"]
    ]
    # An older gateway does not report them.
    malformed = [
        f"{server['name']}: {len(found)} malformed fields in its lists (see codec-gateway doctor {server['name']}), "
        f"the first: {found[0]['item']!r}: {found[0]['field']}: {found[0]['reason']}"
        for server in report["servers"]
        if (found := server.get("malformed"))
    ]
    faults = [
        f"{each['server'] or 'a request'}: {each['tool']!r}: {each['reason']}" for each in report.get("tool_faults", ())
    ]
    problems = [report[part]["problem"] for part in ("pins", "keys") if report[part]["problem"]]
    # An older gateway does not report it.
    advice = [report["definition_advice"]] if report.get("definition_advice") else []
    return servers + pins + invalid + malformed + faults + problems + advice


def _engine(engine: dict[str, Any]) -> str:
    if engine["kind"] == "none":
        return "none"
    if not engine["up"]:
        return f"{engine['kind']}, {_state(engine)}: {engine['reason']}"
    what = f"{engine['kind']}, {engine['model']}, {engine['slots']} slots of {engine['context']} tokens"
    # An older gateway does not report it.
    return f"{what}, calls in the format {engine['tool_format']}" if engine.get("tool_format") else what


def _state(engine: dict[str, Any]) -> str:
    # An older gateway does not report it.
    return str(engine.get("state", "down"))


def _maps(maps: dict[str, Any]) -> str:
    if maps["session"] is None:
        return "none: text only"
    more = len(maps["accepted"]) - 1
    return f"{maps['session'][:19]}…{f' and {more} more' if more > 0 else ''}"


def _keys(report: dict[str, Any]) -> str:
    return " ".join(report["keys"]["names"]) or "none"


def _totals(report: dict[str, Any]) -> str:
    shim = report["shim"]
    estimated = any(server["definition_tokens_estimated"] for server in report["servers"])
    cost = _tokens(report["definition_tokens"], estimated=estimated)
    how = ", read on demand (tool_search)" if report["tool_search"] is True else ""
    ids = f"{shim['leaf_bypasses']} results came with ids, {shim['tokenize_calls']} were tokenized by the gateway"
    return f"tool definitions: {cost} tokens{how}; {ids}"


def _tokens(count: int, *, estimated: bool) -> str:
    return f"~{count}" if estimated else str(count)


def _span(seconds: float) -> str:
    whole = int(seconds)
    days, hours, minutes = whole // 86_400, whole // 3600 % 24, whole // 60 % 60
    parts = [(days, "d"), (hours, "h"), (minutes, "min")]
    return " ".join(f"{n} {unit}" for n, unit in parts if n) or f"{whole} s"
