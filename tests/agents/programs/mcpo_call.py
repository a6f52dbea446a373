"""mcpo, its server at /mcp: the tool is called over the API that it makes of it."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def ask(url: str, body: Any = None) -> str:
    """Send a request, as soon as somebody listens."""
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    while running.poll() is None:
        try:
            with urllib.request.urlopen(asked) as answer:
                return answer.read().decode()
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.1)
    raise SystemExit("mcpo has ended")


with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
mcpo = [str(Path(sys.executable).with_name("mcpo")), "--host", "127.0.0.1", "--port", str(port)]
server = ["--server-type", "streamable-http", "--", "http://127.0.0.1:8600/mcp"]
with subprocess.Popen([*mcpo, *server], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
    try:
        print(list(json.loads(ask(f"http://127.0.0.1:{port}/openapi.json"))["paths"]))
        print(ask(f"http://127.0.0.1:{port}/clock", {"city": "Zürich"}))
    finally:
        running.terminate()
