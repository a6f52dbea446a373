"""The odd server on standard input and output. Its one argument is its behaviour, as JSON."""

import json
import os
import sys
from typing import Any

from odd import Odd

SAYS: dict[str, Any] = json.loads(sys.argv[1])
PIPE: dict[str, Any] = SAYS.get("stdio", {})
ODD = Odd(SAYS)


def write(data: bytes) -> None:
    """Write, in pieces if the behaviour wants that."""
    size = PIPE.get("pieces", len(data) or 1)
    for begin in range(0, len(data), size):
        os.write(1, data[begin : begin + size])


def line(text: str) -> bytes:
    """One message as it is written."""
    end = PIPE.get("end", "\n")
    whole = f"{PIPE.get('prefix', '')}{text}{PIPE.get('suffix', '')}{end}"
    if PIPE.get("framed"):
        whole = f"Content-Length: {len(text.encode())}\r\n\r\n{text}"
    return whole.encode(PIPE.get("encoding", "utf-8"), "surrogatepass")


def raw(text: str) -> bytes:
    """A line of the behaviour; bytes that are not UTF-8 are written as Latin-1 after a `\\x00`."""
    return text[1:].encode("latin-1") if text.startswith("\0") else text.encode()


os.write(2, PIPE.get("stderr", "").encode())
write(raw(PIPE.get("opening", "")))
for received in sys.stdin.buffer:
    if PIPE.get("echoes"):
        write(received)
    message = json.loads(received)
    method = message.get("method")
    if method in PIPE.get("dies_of", ()):
        sys.exit(3)
    texts = ODD.texts(message)
    if not texts:
        continue
    between = PIPE.get("between", "")
    if PIPE.get("joined"):
        write("".join(texts).encode() + b"\n")
    elif PIPE.get("batch"):
        write(line(f"[{','.join(texts)}]"))
    else:
        for text in texts:
            write(raw(between) + line(text)[: -1 if method == PIPE.get("cut_after") else None])
    if method == PIPE.get("leaves_after"):
        sys.exit(0)
