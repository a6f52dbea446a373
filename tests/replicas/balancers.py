"""HAProxy and nginx from Debian, in front of the replicas: in turns, or by the session that a request names."""

import socket
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.replicas.network import Host, wait_for

_HAPROXY = """
global
  maxconn 8000
  stats socket {folder}/haproxy.sock mode 600
defaults
  mode http
  timeout connect 2s
  timeout client 120s
  timeout server 120s
  timeout check 10s
  option redispatch 1
frontend clients
  bind {address}:8600
  http-after-response set-header x-replica %s
  default_backend gateways
backend gateways
  {balance}
  option httpchk GET /healthz/ready
  default-server check port 8601 inter 200ms fall 1 rise 1
{servers}
"""


_NGINX = """
daemon off; user root; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  map $upstream_addr $replica {{ {names} }}
  upstream gateways {{
    {balance}
    {servers}
    keepalive 64;
  }}
  server {{
    listen {address}:8600;
    location / {{
      proxy_pass http://gateways;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_read_timeout 120s;
      proxy_next_upstream error;
      add_header x-replica $replica always;
    }}
  }}
}}
"""
IN_TURNS = "balance roundrobin"


@dataclass(frozen=True)
class Balancer:
    """One that runs."""

    url: str
    names: frozenset[str]
    control: Path | None = None
    """HAProxy's socket; nginx tells nobody whom it asks."""

    def up(self) -> frozenset[str]:
        """The replicas that it asks."""
        if self.control is None:
            return self.names
        with socket.socket(socket.AF_UNIX) as way:
            way.connect(str(self.control))
            way.sendall(b"show stat\n")
            said = b"".join(iter(lambda: way.recv(65536), b"")).decode()
        rows = [line.split(",") for line in said.splitlines() if line.startswith("gateways,")]
        return frozenset(row[1] for row in rows if row[17].startswith("UP") and row[1] in self.names)


@contextmanager
def haproxy(folder: Path, at: Host, gateways: Mapping[str, str], balance: str = IN_TURNS) -> Generator[Balancer]:
    """HAProxy on a host; `gateways`: name to address; `balance`: how it chooses."""
    servers = "\n".join(f"  server {name} {address}:8600" for name, address in gateways.items())
    config = folder / "haproxy.cfg"
    config.write_text(_HAPROXY.format(folder=folder, address=at.address, balance=balance, servers=servers))
    with _running(folder, at, ["haproxy", "-f", str(config)]):
        yield Balancer(f"http://{at.address}:8600", frozenset(gateways), folder / "haproxy.sock")


@contextmanager
def nginx(folder: Path, at: Host, gateways: Mapping[str, str], balance: str = "") -> Generator[Balancer]:
    """nginx on a host; `balance`: how it chooses, in turns if it does not say."""
    config = folder / "nginx.conf"
    told = {
        "names": " ".join(f'"{address}:8600" {name};' for name, address in gateways.items()),
        "servers": " ".join(f"server {address}:8600;" for address in gateways.values()),
    }
    config.write_text(_NGINX.format(folder=folder, address=at.address, balance=balance, **told))
    with _running(folder, at, ["nginx", "-p", str(folder), "-c", str(config), "-e", "stderr"]):
        yield Balancer(f"http://{at.address}:8600", frozenset(gateways))


@contextmanager
def _running(folder: Path, at: Host, command: list[str]) -> Generator[None]:
    with (folder / f"{command[0]}.log").open("wb") as log:
        process = subprocess.Popen(at.command(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_for(f"{command[0]} listens", lambda: _listens(at.address))
        yield
    finally:
        process.kill()
        process.wait()


def _listens(address: str) -> bool:
    try:
        with socket.create_connection((address, 8600), timeout=1):
            return True
    except OSError:
        return False
