"""Gemini CLI, its server at /mcp. Its model speaks an API of Google's own: a script stands in for it.

It lists the tools, calls the one that the script names, and shows the script what came back.
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "mcpServers": {"codec": {"httpUrl": "http://127.0.0.1:8600/mcp", "trust": True}},
    "privacy": {"usageStatisticsEnabled": False},
}


def said(request: dict[str, Any]) -> dict[str, Any]:
    """Say what the model does: call the clock, then end."""
    if "9 o'clock" in json.dumps(request["contents"]):
        return {"text": "Nine, then."}
    names = [each["name"] for group in request["tools"] for each in group["functionDeclarations"]]
    (name,) = (name for name in names if name.endswith("clock"))
    return {"functionCall": {"name": name, "args": {"city": "Zürich"}}}


class Model(BaseHTTPRequestHandler):
    """Google's API, as far as it is needed."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        parts = [said(request)] if "tools" in request else [{"text": "{}"}]
        candidate = {"content": {"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"data: {json.dumps({'candidates': [candidate]})}\n\n".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


settings = Path.home() / ".gemini" / "settings.json"
settings.parent.mkdir()
settings.write_text(json.dumps(SETTINGS), encoding="utf-8")
node, package = sys.argv[1:]
with ThreadingHTTPServer(("127.0.0.1", 0), Model) as model:
    threading.Thread(target=model.serve_forever, daemon=True).start()
    env = {"GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.server_port}", "GEMINI_API_KEY": "none"}
    command = [node, f"{package}/bundle/gemini.js", "-m", "gemini-2.5-pro", "-p", "What time is it in Zürich?"]
    done = subprocess.run(command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, check=False)
    model.shutdown()
sys.exit(done.returncode)
