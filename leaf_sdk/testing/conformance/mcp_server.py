"""A running MCP server to verdicts: its tools are listed, an unknown one is called, and the others where it is safe.

A tool is called if it requires no arguments and does not declare itself destructive, or if the author gave the
arguments; never with invented ones. Built on mcp 2's client (extra `mcp`), which also checks that an answer is valid
MCP; `results` judges the raw results.
"""

from collections.abc import Callable, Mapping, Sequence
from tempfile import TemporaryFile
from time import perf_counter
from typing import Any, Final, cast

import anyio
import httpx2
import mcp.types as t
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server import MCPServer, Server
from pydantic import RootModel, ValidationError

from leaf_sdk.vocab import TokenMap

from .results import carries_ids, judge_result, marker_of
from .verdict import Kind, Outcome, Report, Verdict

MAX_PAGES: Final = 100
MAX_STDERR: Final = 4096


class _Raw(RootModel[dict[str, Any]]):
    """A result as it was received: judged before anything is left out of it."""


async def check_url(
    url: str,
    maps: Sequence[TokenMap],
    calls: Mapping[str, Mapping[str, Any]],
    *,
    token: str | None = None,
    timeout: float = 30.0,
) -> Report:
    """Check the server at a Streamable HTTP address; `token` is its bearer token, for the rest see `check_server`."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    limits = httpx2.Timeout(timeout)
    async with httpx2.AsyncClient(headers=headers, timeout=limits) as http:
        transport = streamable_http_client(url, http_client=http)
        return await check_server(transport, maps, calls, timeout=timeout)


async def check_command(
    command: Sequence[str],
    maps: Sequence[TokenMap],
    calls: Mapping[str, Mapping[str, Any]],
    *,
    environ: Mapping[str, str],
    timeout: float = 30.0,
) -> Report:
    """Start a command that speaks MCP on stdio, check it and stop it; if it fails, its last line on stderr is shown."""
    parameters = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(environ))
    with TemporaryFile("w+", errors="replace") as stderr:
        report = await check_server(stdio_client(parameters, errlog=stderr), maps, calls, timeout=timeout)
        stderr.seek(0)
        lines = [line for line in stderr.read()[-MAX_STDERR:].splitlines() if line.strip()]
    if report.kind != "unreachable" or not lines:
        return report
    return Report(report.kind, (*report.verdicts, Verdict("standard error", "note", f"{lines[-1].strip()!r:.200}")))


async def check_server(
    server: Transport | Server[Any] | MCPServer,
    maps: Sequence[TokenMap],
    calls: Mapping[str, Mapping[str, Any]],
    *,
    timeout: float = 30.0,
) -> Report:
    """Check one server.

    Args:
        server: one of mcp's transports, or a server in this process.
        maps: the maps that ids can be judged under.
        calls: arguments by tool name.
        timeout: seconds for each answer.
    """
    checks = _Checks(maps, calls)
    try:
        with anyio.fail_after(timeout * 10):
            started = perf_counter()
            async with Client(server, cache=None, read_timeout_seconds=timeout) as client:
                checks.note("answers", f"{_named(client)}, in {_ms(started)}", "pass")
                await checks.run(client)
    except Exception as error:  # noqa: BLE001 - whatever a broken server makes its client raise is the verdict
        checks.note("answers", f"the server can't be checked: {_reason(error)}", "fail")
    return Report(checks.kind, tuple(checks.verdicts))


class _Checks:
    """What one server was asked, and the verdicts so far: they outlive the connection."""

    def __init__(self, maps: Sequence[TokenMap], calls: Mapping[str, Mapping[str, Any]]) -> None:
        self._maps = maps
        self._calls = calls
        self.verdicts: list[Verdict] = []
        self.kind: Kind = "unreachable"

    def note(self, check: str, detail: str, outcome: Outcome, tool: str = "") -> None:
        self.verdicts.append(Verdict(check, outcome, detail, tool))

    async def run(self, client: Client) -> None:
        self.kind = "uncalled"
        tools = await self._listed(client)
        await self._unknown(client)
        for tool in tools:
            await self._tool(client, tool)
        names = {tool.get("name") for tool in tools}
        for name in self._calls:
            if name not in names:
                self.note("is called", f"no such tool, expected one of {sorted(map(str, names))!r:.120}", "fail", name)

    async def _listed(self, client: Client) -> list[Mapping[str, Any]]:
        tools: list[Mapping[str, Any]] = []
        cursor: str | None = None
        started = perf_counter()
        for _ in range(MAX_PAGES):
            params = t.PaginatedRequestParams(cursor=cursor)
            page = await self._asked(client, "tools are listed", t.ListToolsRequest(params=params))
            if page is None:
                return tools
            tools += cast("list[Mapping[str, Any]]", page.get("tools", []))
            cursor = page.get("nextCursor")
            if not cursor:
                break
        else:
            self.note("tools are listed", f"the list has more than {MAX_PAGES} pages", "fail")
            return tools
        names = [str(tool.get("name")) for tool in tools]
        doubled = [name for name in names if names.count(name) > 1]
        detail = f"two tools are named {doubled[0]!r:.60}" if doubled else f"{len(tools)}, in {_ms(started)}"
        self.note("tools are listed", detail, "fail" if doubled else "pass")
        return tools

    async def _unknown(self, client: Client) -> None:
        """Call a tool that does not exist: the one call that no server may carry out."""
        name = f"codec-leaf-check {marker_of(self._maps)}"
        rule = "errors are well-formed"
        result = await self._asked(
            client, rule, _call(name, {}), good=lambda error: f"code {error.code}: {error.message!r:.60}"
        )
        if result is None:
            return
        if result.get("isError") is True:
            self.note(rule, "a call of an unknown tool is an error result", "pass")
            self._judge("(unknown tool)", result)
        else:
            self.note(rule, f"tool {name!r} does not exist, but calling it succeeded", "fail")

    async def _tool(self, client: Client, tool: Mapping[str, Any]) -> None:
        name = str(tool.get("name"))
        arguments = self._calls.get(name)
        if arguments is None and (why := _not_safe(tool)):
            self.note("is called", f"{why}; give --call TOOL='{{...}}'", "skip", name)
            return
        started = perf_counter()
        result = await self._asked(client, "is called", _call(name, dict(arguments or {})), tool=name)
        if result is None:
            return
        if "inputRequests" in result:
            self.note("is called", f"{_ms(started)}, asks for more input before it answers", "note", name)
            return
        failed = result.get("isError") is True
        detail = f"{_ms(started)}, {'an error result' if failed else 'a result'}"
        self.note("is called", detail, "note" if failed else "pass", name)
        if self.kind == "uncalled":
            self.kind = "plain"
        self._judge(name, result)

    def _judge(self, name: str, result: Mapping[str, Any]) -> None:
        if carries_ids(result):
            self.kind = "leaf"
        self.verdicts += judge_result(name, result, self._maps)

    async def _asked(
        self,
        client: Client,
        rule: str,
        request: t.ClientRequest,
        *,
        tool: str = "",
        good: Callable[[MCPError], str] | None = None,
    ) -> dict[str, Any] | None:
        """Send a request; an error fails the rule, unless `good` says that one was wanted."""
        try:
            return (await client.session.send_request(request, _Raw)).root
        except MCPError as error:
            if good is not None:
                self.note(rule, good(error), "pass", tool)
            else:
                self.note(rule, f"error {error.code}: {error.message!r:.90}", "fail", tool)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"]))
            self.note(rule, f"the answer is not valid MCP: {place!r:.60}: {fault['msg']:.80}", "fail", tool)
        return None


def _call(name: str, arguments: dict[str, Any]) -> t.CallToolRequest:
    return t.CallToolRequest(params=t.CallToolRequestParams(name=name, arguments=arguments))


def _not_safe(tool: Mapping[str, Any]) -> str:
    """Say why a tool is not called without arguments; empty if it may be."""
    schema: Mapping[str, Any] = tool.get("inputSchema") or {}
    hints: Mapping[str, Any] = tool.get("annotations") or {}
    required = cast("Sequence[object]", schema.get("required") or [])
    if required:
        return f"it requires {', '.join(map(str, required))!r:.60}"
    return "it declares itself destructive" if hints.get("destructiveHint") is True else ""


def _named(client: Client) -> str:
    info = client.session.server_info
    version = f" {info.version!r:.20}" if info and info.version else ""
    name = f"{info.name!r:.40}{version}" if info else "a server without a name"
    return f"{name}, MCP {client.session.protocol_version}"


def _ms(started: float) -> str:
    return f"{(perf_counter() - started) * 1000:.1f} ms"


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename!r:.80}: {error.strerror}"
    if isinstance(error, MCPError) and "closed" in str(error):
        return (
            "it exited, or wrote something other than MCP to standard output; run it by hand to see what it prints, "
            "and send its own messages to standard error"
        )
    return f"{type(error).__name__}: {str(error)!r:.120}"
