"""Who is measured, and how each is started: a gateway between a client's side and a server's.

A topology names both sides: `http-stdio` is HTTP in front of the gateway and a process on standard input and output
behind it; `none` means no server. Turns a peer, a topology and a server into a command. Starts nothing: `site.py` does;
`bench.toolchain` fetches other people's programs.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from bench.mcp.load import Era
from bench.processes import gateway_environment, write_config
from bench.toolchain import node, node_environment, npm_packages, virtual_environment

TOPOLOGIES: Final = ("http-http", "http-stdio", "stdio-http", "stdio-stdio")
FASTMCP: Final = "4.1.2"
MCP_PROXY: Final = "0.13.0"
NPM_PROXY: Final = "6.7.19"
HUB: Final = "4.2.1"
PLAIN: Final = '[engine]\nkind = "none"\n\n[tokens]\nmap = "none"\n'


@dataclass(frozen=True, slots=True)
class Server:
    """The server behind a peer: as a command or as a URL, depending on the topology."""

    tools: int
    command: tuple[str, ...] = ()
    url: str = ""

    @property
    def configured(self) -> dict[str, Any]:
        """The server as a client's configuration has it."""
        return {"url": self.url} if self.url else {"command": self.command[0], "args": list(self.command[1:])}


@dataclass(frozen=True, slots=True)
class Peer:
    """A program that can stand in between."""

    name: str
    version: str
    topologies: tuple[str, ...] = TOPOLOGIES
    eras: tuple[Era, ...] = ("handshake", "modern")
    settings: str = PLAIN
    """The `codec-gateway.toml`, if it is our own gateway."""
    headers: tuple[str, ...] = ()
    """Further headers that its clients send."""
    leaves: str | None = None
    """A file with ids that the server puts beside its texts."""
    code: Path | None = None
    """Where the packages of our own gateway are, if not in this environment."""
    same_as: str | None = None
    """The peer whose process this one uses, with other clients: two processes of one program differ by a tenth."""


_OURS: Final = version("codec-gateway")
PEERS: Final = (
    Peer("codec-gateway", _OURS),
    Peer("bare relay", "-", eras=("handshake",)),
    Peer("bare ASGI app", version("uvicorn"), topologies=("http-none",), eras=("modern",)),
    Peer("direct", "-", topologies=("http-http", "stdio-stdio"), eras=("handshake",)),
    Peer("fastmcp proxy", FASTMCP),
    Peer("mcp-proxy (PyPI)", MCP_PROXY, topologies=("http-stdio", "stdio-http"), eras=("handshake",)),
    Peer("mcp-proxy (npm)", NPM_PROXY, topologies=("http-stdio",)),
    Peer("mcp-hub", HUB, topologies=("http-http", "http-stdio"), eras=("handshake",)),
)


def http_command(
    peer: Peer, topology: str, server: Server, folder: Path, port: int
) -> tuple[Sequence[str], Mapping[str, str] | None]:
    """Return the command that starts a peer which serves HTTP."""
    env: Mapping[str, str] | None = None
    back = server.url or server.command
    if peer.name == "bare ASGI app":
        return [sys.executable, "-m", "bench.mcp.floor", str(port)], env
    relay = [sys.executable, "-m", "bench.mcp.relay", topology, str(port)]
    if peer.name.startswith("codec-gateway"):
        env = gateway_environment(peer.code)
        config = write_config(folder, {"light": server.configured}, peer.settings)
        serve = ["-m", "gateway", "serve", "--config", str(config), "--port", str(port), "--admin-port", "0"]
        return [sys.executable, *serve], env
    if peer.name == "fastmcp proxy":
        return [*_fastmcp(server, folder), str(port)], env
    if peer.name == "mcp-proxy (PyPI)":
        program = virtual_environment("mcp-proxy", [f"mcp-proxy=={MCP_PROXY}", "mcp<2"]) / "bin" / "mcp-proxy"
        return [str(program), "--port", str(port), "--pass-environment", "--", *server.command], env
    if peer.name == "mcp-proxy (npm)":
        modules = npm_packages("mcp-proxy", [f"mcp-proxy@{NPM_PROXY}"])
        script = modules / "mcp-proxy" / "dist" / "bin" / "mcp-proxy.mjs"
        return [str(node()), str(script), "--port", str(port), "--", *server.command], node_environment()
    if peer.name == "mcp-hub":
        modules = npm_packages("mcp-hub", [f"mcp-hub@{HUB}"])
        config = write_config(folder, {"light": server.configured})
        homes = {name: str(folder) for name in ("XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME")}
        script = modules / "mcp-hub" / "dist" / "cli.js"
        return [str(node()), str(script), "--port", str(port), "--config", str(config)], {**node_environment(), **homes}
    return [*relay, *([back] if isinstance(back, str) else back)], env


def lines_command(peer: Peer, topology: str, server: Server, folder: Path) -> Sequence[str]:
    """Return the command that starts a peer which speaks on standard input and output."""
    back = [server.url] if server.url else server.command
    if peer.name == "direct":
        return server.command
    if peer.name.startswith("codec-gateway"):
        config = write_config(folder, {"light": server.configured}, peer.settings)
        return [sys.executable, "-m", "gateway", "stdio", "--config", str(config)]
    if peer.name == "fastmcp proxy":
        return _fastmcp(server, folder)
    if peer.name == "mcp-proxy (PyPI)":
        program = virtual_environment("mcp-proxy", [f"mcp-proxy=={MCP_PROXY}", "mcp<2"]) / "bin" / "mcp-proxy"
        return [str(program), "--transport", "streamablehttp", *back]
    return [sys.executable, "-m", "bench.mcp.relay", topology, *back]


def _fastmcp(server: Server, folder: Path) -> list[str]:
    python = virtual_environment("fastmcp", [f"fastmcp=={FASTMCP}"]) / "bin" / "python"
    config = folder / "fastmcp.json"
    config.write_text(json.dumps({"mcpServers": {"light": server.configured}}), encoding="utf-8")
    return [str(python), str(Path(__file__).parent / "fastmcp_proxy.py"), str(config)]
