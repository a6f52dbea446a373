"""The checks of the whole stack: answers, ids, metrics, and how it ends.

Each function is a step. The stack is started by the first step that needs it and kept for the others; `close` removes
it.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

from deploy.check.outcome import Failed, need, note, run
from deploy.check.queries import ask_all, ask_value
from deploy.check.stack import PORTS, TOKEN, Stack, running_stack
from deploy.check.traffic import Client, ids_of

_TRAFFIC: Final = 45.0
_SPARED: Final = "codec:wire_bytes_saved:rate5m"
_cleanup = ExitStack()
_started: list[Stack] = []


def close() -> None:
    """Remove the stack, if it was started."""
    _started.clear()
    _cleanup.close()


def steps() -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield the steps that need the stack, in order; the last one ends the gateway."""
    yield "stack: start", start
    yield "stack: documented commands", run_documented
    yield "stack: tool call by /mcp", call_tool
    yield "stack: chat by /v1", chat
    yield "stack: expressions", ask_expressions
    yield "stack: metrics page", lint_metrics
    yield "stack: TERM drains", end


def _stack() -> Stack:
    if not _started:
        raise Failed("the stack is not running")
    return _started[0]


def _client() -> Client:
    return Client(f"http://127.0.0.1:{PORTS['PORT']}", TOKEN)


def start() -> str:
    """Start the `cpu` profile, with every container healthy by its own check."""
    _started.append(_cleanup.enter_context(running_stack()))
    stack = _stack()
    for service in ("engine-cpu", "time-leaf", "gateway"):
        seconds, megabytes = stack.ready_after[service], stack.memory(service)
        note("services", service, {"seconds": round(seconds, 1), "megabytes": round(megabytes)})
    times = ", ".join(f"{service} {seconds:.1f} s" for service, seconds in stack.ready_after.items())
    return f"healthy after: {times}; not here: grafana (its image is in no registry that this machine reaches)"


def run_documented() -> str:
    """Run what docs/deploy.md shows with `docker compose exec gateway`."""
    stack = _stack()
    printed = stack.command("exec", stack.name("gateway"), "codec-gateway", "token").strip()
    if printed != TOKEN:
        raise Failed(f"codec-gateway token printed {printed!r}, expected the token of the stack")
    ready = stack.command("exec", stack.name("gateway"), "python", "-m", "gateway.cli.probe").strip()
    shown = stack.command("exec", stack.name("gateway"), "codec-gateway", "status")
    if missing := [name for name in ("time", "plain") if name not in shown]:
        raise Failed(f"codec-gateway status does not show {missing}:\n{shown}")
    return f"token, probe ({ready}) and status"


def call_tool() -> str:
    """Call a leaf tool and a plain one through /mcp, with the ids of the engine's map."""
    _stack()
    client = _client()
    token_map = client.map_id()
    zone = {"timezone": "Europe/Paris"}
    counts = [len(ids_of(client.tool(f"{server}__get_current_time", zone, token_map))) for server in ("time", "plain")]
    if "_meta" in client.tool("plain__get_current_time", zone)["content"][0]:
        raise Failed("a client that names no map got ids")
    return f"{counts[0]} ids of the tool, {counts[1]} of the gateway"


def chat() -> str:
    """Chat, with a tool call that the gateway runs: the tool's own ids are spliced, and the engine's cache holds."""
    _stack()
    choice = {"type": "function", "function": {"name": "time__get_current_time"}}
    answer = _client().chat("What time is it in Paris?", tool_choice=choice, max_tokens=60)
    first, second = answer["codec"]["turns"][:2]
    if not second["reinjected"]["leaf"] or second["reuse"] != 1.0:
        raise Failed(f"the result was not spliced by the tool's ids: {json.dumps(answer['codec'])}")
    known = first["prompt_n"] + first["generated"]
    return f"{second['reinjected']['leaf']} ids spliced, {second['cache_n']} of {known} ids found in the cache"


def ask_expressions() -> str:
    """Check that every expression of dashboard, rules and alerts has data in the Prometheus of this traffic."""
    _stack()
    client, zone = _client(), {"timezone": "Europe/Paris"}
    token_map = client.map_id()
    until = time.monotonic() + _TRAFFIC
    while time.monotonic() < until:
        for server in ("time", "plain"):
            client.tool(f"{server}__get_current_time", zone, token_map)
        client.call("time__get_current_time", {"timezone": "Nowhere/Atlantis"})
        client.chat("Say hello.", max_tokens=4)
        client.frames("One, two, three,", max_tokens=32)
        time.sleep(2)
    prometheus = f"http://127.0.0.1:{PORTS['PROMETHEUS_PORT']}"
    count = ask_all(prometheus)
    if (spared := ask_value(prometheus, _SPARED)) <= 0:
        raise Failed(f"{_SPARED} is {spared:g}: frames should weigh less than the JSON in their place")
    return f"{count} expressions have data; frames spare {spared:.0f} bytes a second"


def lint_metrics() -> str:
    """Check the page of metrics, after all that traffic, by promtool's rules."""
    stack = _stack()
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8601/metrics').read().decode(), end='')"
    page = stack.command("exec", stack.name("gateway"), "python", "-c", read)
    run([need("promtool", "prometheus"), "check", "metrics"], reads=page)
    return f"{len(page.splitlines())} lines without a complaint"


def end() -> str:
    """Check that TERM ends each of our services with exit code 0, the gateway first."""
    stack = _stack()
    ended = {service: stack.stop(service) for service in ("gateway", "time-leaf", "engine-cpu")}
    if wrong := {service: code for service, (code, _) in ended.items() if code}:
        raise Failed(f"ended with {wrong}")
    if '"stopped"' not in stack.log("gateway"):
        raise Failed("the gateway did not say that it drained")
    return ", ".join(f"{service} {seconds:.1f} s" for service, (_, seconds) in ended.items())
