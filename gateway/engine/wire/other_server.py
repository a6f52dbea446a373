"""What answers at an engine's URL if it is no engine: a sentence with the way out.

Turns the answers to `/` and `/v1/models` into one sentence. Services are recognised by marks; nothing that one sends is
quoted, since it may be a page of HTML, or made to deceive who reads it. Pure.
"""

import json
from typing import Any, Final

_START: Final = 4096
_PAGES: Final = (b"<!doctype", b"<html", b"<?xml", b"<head")
_NEEDS_KEY: Final = (401, 403)
_SETTING: Final = "engine.url (--engine)"
_NEEDED: Final = "the gateway needs llama.cpp's llama-server or vLLM, since only these take token ids"

Answer = tuple[int, bytes]
"""Status and body."""


def is_page(body: bytes) -> bool:
    """Whether a body is a page for a browser."""
    return body[:_START].lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_PAGES)


def other_server(url: str, root: Answer, models: Answer) -> str:
    """What answers at `url`. `root`, `models`: its answers to `/` and `/v1/models`."""
    start = root[1][:_START].lower()
    if b"ollama is running" in start:
        return f"Ollama answers at {url!r}: {_NEEDED}; run llama-server with the model's GGUF file"
    if b"codec-gateway" in start:
        return f"a codec-gateway answers at {url!r}: set {_SETTING} to the engine behind it"
    if b"jupyter" in start:
        return f"a Jupyter server answers at {url!r}: correct the port of {_SETTING}"
    if models[0] in _NEEDS_KEY:
        return (
            f"the server at {url!r} answers {models[0]} to /v1/models: set engine.api_key to the key that it asks for, "
            f"or correct {_SETTING}"
        )
    if _lists_models(models):
        return (
            f"the server at {url!r} has OpenAI's API, but is neither llama.cpp (it has no /props) nor vLLM (it has no "
            f"/version): {_NEEDED}; correct {_SETTING}, or set the kind of server (engine.api)"
        )
    what = "a web application or a proxy" if is_page(root[1]) or is_page(models[1]) else "another service"
    return (
        f"{what} answers at {url!r}, which is neither llama.cpp (it has no /props) nor vLLM (it has no /version): "
        f"correct {_SETTING}"
    )


def json_of(body: bytes) -> Any:
    """The JSON value of a body; None if it is no JSON."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _lists_models(models: Answer) -> bool:
    match json_of(models[1]):
        case {"data": list()}:
            return True
        case _:
            return False
