"""A running llama.cpp server as a tokenizer: what `codec-leaf map verify --engine` compares a map with.

Asks `/tokenize` and nothing else, over one connection. The address is the user's own, from the command line, so any
host is allowed. Knows nothing of maps.
"""

import http.client
import json
from types import TracebackType
from typing import cast
from urllib.parse import urlsplit

from leaf_sdk.errors import MapUnreachable
from leaf_sdk.vocab.fields import as_list, as_object

_MAX_ANSWER = 2**24


class EngineTokenizer:
    """The tokenizer of the engine at an address; a context manager that closes the connection."""

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MapUnreachable(f"engine {url!r} is not an address, expected http://host:port", source=url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=timeout)
        self._path = parts.path.rstrip("/") + "/tokenize"
        self._url = url

    def __enter__(self) -> "EngineTokenizer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def ordinary(self, text: str) -> list[int]:
        """Return the ids of ordinary text, without BOS."""
        return self._ask(text, parse_special=False)

    def specials(self, text: str) -> list[int]:
        """Return the ids of a text in which special tokens are parsed."""
        return self._ask(text, parse_special=True)

    def _ask(self, text: str, *, parse_special: bool) -> list[int]:
        body = json.dumps({"content": text, "add_special": False, "parse_special": parse_special}).encode()
        try:
            try:
                answer = self._post(body)
            except ConnectionError:
                # llama.cpp closes a connection that was idle for some seconds. Asking again does no harm.
                self._connection.close()
                answer = self._post(body)
            data = answer.read(_MAX_ANSWER)
            held = as_object(json.loads(data)) if answer.status == 200 else {}
            ids = as_list(held["tokens"]) if "tokens" in held else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise MapUnreachable(f"engine {self._url!r} can't be asked: {error}", source=self._url) from error
        if ids is None or set(map(type, ids)) - {int}:
            why = f"answered {answer.status} to {self._path}, expected ids; is it a llama.cpp server?"
            raise MapUnreachable(f"engine {self._url!r} {why}", source=self._url)
        return cast("list[int]", ids)

    def _post(self, body: bytes) -> http.client.HTTPResponse:
        self._connection.request("POST", self._path, body, {"Content-Type": "application/json"})
        return self._connection.getresponse()
