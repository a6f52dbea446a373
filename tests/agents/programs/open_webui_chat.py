"""Open WebUI, its model at /v1 and its tools from /mcp: two questions in one chat, asked as its page asks them."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from uuid import uuid4

FORECAST = '''
class Tools:
    def forecast(self, city: str) -> str:
        """The weather forecast of a city."""
        return f"{city}: fine, 20 °C"
'''
# What a page with its switches untouched sends along.
PAGE: Any = {"stream": True, "params": {}, "features": {}, "variables": {}, "session_id": str(uuid4())}
TASKS = {"title_generation": True, "tags_generation": True, "follow_up_generation": True}


def ask(path: str, body: Any = None) -> Any:
    """Send a request, as soon as somebody listens."""
    headers = {"content-type": "application/json", **authorization}
    asked = urllib.request.Request(f"{address}{path}", None if body is None else json.dumps(body).encode(), headers)
    while running.poll() is None:
        try:
            with urllib.request.urlopen(asked) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise SystemExit(f"{path}: {error.code} {error.read().decode()}") from error
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.1)
    raise SystemExit(f"Open WebUI has ended: {Path(log.name).read_text(encoding='utf-8')[-2000:]}")


def question(text: str, chat: str | None, parent: str | None) -> tuple[str, str]:
    """Ask, and wait until the answer is in the chat; give the ids of both, and print it."""
    mine, its = str(uuid4()), str(uuid4())
    message = {"id": mine, "parentId": parent, "childrenIds": [its], "role": "user", "content": text, "models": [model]}
    messages = {"user_message": message, "id": its, "parent_id": parent, **({"chat_id": chat} if chat else {})}
    tools = {"tool_ids": ["forecast", "server:mcp:codec"]}
    sent = {**PAGE, **tools, **messages, "model": model, "background_tasks": TASKS}
    chat = ask("/api/chat/completions", sent)["chat_id"]
    while True:
        answer = ask(f"/api/v1/chats/{chat}")["chat"]["history"]["messages"][its]
        if answer.get("done") or answer.get("error"):
            print(answer.get("error") or answer["content"])
            return chat, its
        time.sleep(0.1)


with socket.create_server(("127.0.0.1", 0)) as probe:
    port = probe.getsockname()[1]
address = f"http://127.0.0.1:{port}"
authorization: dict[str, str] = {}
with tempfile.TemporaryDirectory() as data, Path(data, "log").open("w", encoding="utf-8") as log:
    # Slim, as its smaller image: without the packages for its own embeddings and speech, which nothing here uses. The
    # addresses of the gateway are in the environment already.
    own = {"DATA_DIR": data, "USE_SLIM_DOCKER": "true", "WEBUI_AUTH": "false", "WEBUI_SECRET_KEY": uuid4().hex}
    own |= {"OFFLINE_MODE": "true", "RAG_EMBEDDING_ENGINE": "openai", "ENABLE_OLLAMA_API": "false"}
    command = [str(Path(sys.executable).with_name("open-webui")), "serve", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, cwd=data, env={**os.environ, **own}, stdout=log, stderr=log) as running:
        try:
            authorization["authorization"] = (
                f"Bearer {ask('/api/v1/auths/signin', {'email': '', 'password': ''})['token']}"
            )
            about = {"id": "forecast", "name": "forecast", "meta": {"description": "The weather"}}
            ask("/api/v1/tools/create", {**about, "content": FORECAST})
            model = ask("/api/models")["data"][0]["id"]
            where = question("How is the weather in Zürich, and what time is it there?", None, None)
            question("And tomorrow?", *where)
        finally:
            running.terminate()
