"""A stdio server that plays a recording: `python -m tests.exchanges.replay RECORDING [REPORT]`.

Speaks the handshake era, knows nothing but what it was given: the greeting, what to say or ask of its own accord once a
client is there, and for each step its pushes, its questions and its answer. A client that answers a question otherwise
than in the recording gets an error instead of the result. Writes every message that it gets to the report, for tests
that ask what reached the server.
"""

import json
import sys
from pathlib import Path
from typing import Any, TextIO

from tests.exchanges.steps import STEP_KEY

Message = dict[str, Any]
_OWN: dict[str, Message] = {"result": {"result": {}}, "error": {"error": {"code": -32602, "message": "refused"}}}


class Replay:
    """One connection, from its first line to its last. One line after the other, nothing at the same time."""

    def __init__(self, recording: Message, report: TextIO | None) -> None:
        self._greeting = recording["greeting"]
        self._aside = recording["aside"]
        self._by_step = {exchange["step"]: exchange for exchange in recording["exchanges"]}
        self._by_method = {exchange["method"]: exchange for exchange in reversed(recording["exchanges"])}
        self._report = report
        self._asked = 0
        self._answers: dict[str, Message] = {}

    def run(self) -> None:
        """Serve until the input ends."""
        while (message := self._read()) is not None:
            self._take(message)

    def _read(self) -> Message | None:
        line = sys.stdin.readline()
        if not line:
            return None
        if self._report is not None:
            self._report.write(line)
            self._report.flush()
        return json.loads(line)

    def _take(self, message: Message) -> None:
        if "method" not in message:
            self._answers[message["id"]] = message
        elif "id" in message:
            self._answer(message)
        elif message["method"] == "notifications/initialized":
            for pushed in self._aside:
                self._push(pushed, None)

    def _answer(self, request: Message) -> None:
        if request["method"] == "initialize":
            self._send({"id": request["id"], "result": self._greeting})
            return
        exchange = self._exchange(request)
        if exchange is None:
            error = {"code": -32601, "message": f"not in the recording: {request['method']!r}"}
            self._send({"id": request["id"], "error": error})
            return
        token = request.get("params", {}).get("_meta", {}).get("progressToken")
        wrong = [pushed for pushed in exchange["heard"] if not self._push(pushed, token)]
        if wrong:
            error = {"code": -32603, "message": f"answered otherwise than in the recording: {wrong!r}"}
            self._send({"id": request["id"], "error": error})
        elif "cancelled" not in exchange:
            ended = {part: exchange[part] for part in ("result", "error") if part in exchange}
            self._send({"id": request["id"], **(ended or _OWN[exchange["own"]])})

    def _exchange(self, request: Message) -> Message | None:
        """By the step's name; what the gateway asks for itself has none."""
        step = request.get("params", {}).get("_meta", {}).get(STEP_KEY)
        return self._by_step.get(step) if step else self._by_method.get(request["method"])

    def _push(self, pushed: Message, token: Any) -> bool:
        """Say or ask; whether the answer was that of the recording."""
        if "asked" not in pushed:
            params = (
                {**pushed["params"], "progressToken": token}
                if "progressToken" in pushed["params"]
                else pushed["params"]
            )
            self._send({"method": pushed["method"], "params": params})
            return True
        self._asked += 1
        number = f"question {self._asked}"
        self._send({"id": number, **pushed["asked"]})
        while number not in self._answers:
            message = self._read()
            if message is None:
                return False
            self._take(message)
        return self._answers.pop(number).get("result") == pushed["answered"]

    def _send(self, message: Message) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def main() -> None:
    """Play the recording that is named first."""
    recording = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if len(sys.argv) < 3:
        Replay(recording, None).run()
        return
    with Path(sys.argv[2]).open("a", encoding="utf-8") as report:
        Replay(recording, report).run()


if __name__ == "__main__":
    main()
