"""Takes a call and never answers it; notes whether it is told to stop."""

from typing import Any

from transport import note, serve


def on_call(_: dict[str, Any]) -> None:
    note("called")


def on_notification(message: dict[str, Any]) -> None:
    note(message["method"])


serve(on_call, on_notification=on_notification)
