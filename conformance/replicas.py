"""Three replicas of the gateway in front of one server, behind HAProxy, which sends each request to the next of them.

Without stickiness, what lives in one replica must be reachable through each. HAProxy is Debian's (`make
replicas-install`).
"""

import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.processes import free_port, running, serving_gateway, wait_for_port

_COUNT: Final = 3
_BALANCER: Final = """
defaults
  mode http
  timeout connect 5s
  timeout client 120s
  timeout server 120s
frontend clients
  bind 127.0.0.1:{port}
  default_backend gateways
backend gateways
  balance roundrobin
{servers}
"""


@contextmanager
def balanced(folder: Path, server: Mapping[str, Any], settings: str) -> Generator[str]:
    """Run them; yields the balancer's address. Raises SystemExit if HAProxy is not installed."""
    program = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if program is None:
        raise SystemExit("haproxy is not installed: make replicas-install")
    key = folder / "key"
    key.write_text("0123456789abcdef" * 4, encoding="utf-8")
    with ExitStack() as stack:
        addresses: list[str] = []
        for number in range(_COUNT):
            place = f'\n[replicas]\naddress = "127.0.0.1"\nport = {free_port()}\nkey_file = "{key}"\n'
            gateway = serving_gateway(folder / str(number), {"reference": server}, settings=settings + place)
            addresses.append(stack.enter_context(gateway).url.removeprefix("http://"))
        port = free_port()
        servers = "\n".join(f"  server gateway{number} {address}" for number, address in enumerate(addresses))
        config = folder / "haproxy.cfg"
        config.write_text(_BALANCER.format(port=port, servers=servers), encoding="utf-8")
        wait_for_port(stack.enter_context(running("haproxy", [program, "-f", str(config)])), port)
        yield f"http://127.0.0.1:{port}"
