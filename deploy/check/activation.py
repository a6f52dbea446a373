"""Socket activation as systemd does it: the socket exists before the gateway, and the first connection starts it.

`systemd-socket-activate` is systemd's own code for that, and needs no running systemd. This shows that the gateway
answers a request that came before it ran, on the socket that was passed to it.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from bench.processes import free_port
from deploy.check.outcome import Failed, need


def check_activation() -> str:
    """Send one request to a socket behind which nothing runs yet; returns what answered."""
    activate = need("systemd-socket-activate", "systemd")
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "servers.json"
        config.write_text(json.dumps({"mcpServers": {}}), encoding="utf-8")
        # The address in the settings is a different one: only the socket that was passed on can answer at `port`.
        serve = [sys.executable, "-m", "gateway", "serve", "--config", str(config), "--port", "0", "--admin-port", "0"]
        command = [activate, f"--listen=127.0.0.1:{port}", "--fdname=faces", *serve]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CODEC_")}
        process = subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stderr is not None
            next(line for line in process.stderr if "Listening on" in line)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=60) as response:
                return f"a request that came before the gateway was answered with {response.status}"
        except urllib.error.HTTPError as error:
            # No engine is configured: the gateway itself says so.
            return f"a request that came before the gateway was answered with {error.code}"
        except (OSError, StopIteration) as error:
            raise Failed(f"nobody answered on the socket that was passed on: {error!r}") from None
        finally:
            process.terminate()
            process.wait(30)
