"""A server on standard input and output that goes wrong as each call of its tool `do` orders (`orders.py`).

More acts: `flood` (so many notifications, then an answer), `garbage` (lines that are no messages, then an answer),
`partial` (so many bytes of a line without its end), `rest` (the end of that line, then an answer), `deaf` (reads no
more). USR1 answers all that waits, as `release` does. `stays` as an argument: it does not leave when its input ends,
nor when it is asked to. `slow`: it says nothing before USR1.
"""

import json
import os
import signal
import sys
from typing import Any

from orders import TOOL, carry_out, greeting, say, text

OUT = sys.stdout.buffer
WAITING: list[object] = []
STAYS = "stays" in sys.argv


def send(message: dict[str, Any]) -> None:
    OUT.write(json.dumps(message).encode() + b"\n")
    OUT.flush()


def answer(number: object, result: dict[str, Any]) -> None:
    send({"jsonrpc": "2.0", "id": number, "result": result})


def push(method: str, **params: Any) -> None:
    send({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params})


def flood(params: dict[str, Any], count: int) -> None:
    token = params.get("_meta", {}).get("progressToken")
    for number in range(count):
        push("progress", progressToken=token, progress=number, message="x" * 100)
        push("message", level="info", data="y" * 100)


def write(data: bytes) -> None:
    OUT.write(data)
    OUT.flush()


def release(*_: object) -> None:
    while WAITING:
        answer(WAITING.pop(), text("released"))


def do(number: object, params: dict[str, Any]) -> None:
    order = params["arguments"]
    act = order.get("act")
    if act == "flood":
        flood(params, order["count"])
        answer(number, text("flooded"))
    elif act == "garbage":
        write(b"\x00\xff\x1b]0;title\x07\n[1, 2]\n{}\nnull\n" + b'{"jsonrpc": "2.0", "id": 99999, "result": 7}\n' * 3)
        answer(number, text("sorry"))
    elif act == "partial":
        write(b"x" * order["bytes"])
        say("called partial")
    elif act == "rest":
        write(b"\n")
        answer(number, text("rest"))
    elif act == "deaf":
        say("called deaf")
        signal.pause()
    elif act == "wait":
        WAITING.append(number)
        say("called wait")
    elif act == "release":
        release()
        answer(number, text("release"))
    elif (result := carry_out(order)) is not None:
        answer(number, result)


def take(message: dict[str, Any]) -> None:
    method, number = message.get("method"), message.get("id")
    if number is None:
        if method == "notifications/cancelled":
            say("cancelled")
    elif method == "initialize":
        answer(number, greeting(message["params"]))
    elif method == "tools/list":
        answer(number, {"tools": [TOOL]})
    elif method == "tools/call":
        do(number, message["params"])
    elif method == "ping":
        answer(number, {})
    else:
        send({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": "no such method"}})


signal.signal(signal.SIGUSR1, release)
if STAYS:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
say(f"pid {os.getpid()}")
if "slow" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    say("waiting for a signal")
    signal.sigwait([signal.SIGUSR1])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
for line in sys.stdin:
    # The answers that the signal brings must not come into the middle of another message.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    take(json.loads(line))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
while STAYS:
    signal.pause()
