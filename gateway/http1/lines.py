"""The headers of a request as lines. A value from outside can't begin a second line."""

from collections.abc import Mapping

from gateway.http1.faults import NoAnswer


def header_lines(headers: Mapping[str, str]) -> bytes:
    """Headers as they stand in a request.

    Raises:
        NoAnswer: a name or a value can't stand in a header, so nothing was sent.
    """
    text = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if text.count("\r") != len(headers) or text.count("\n") != len(headers) or "\0" in text:
        bad = next((name for name, value in headers.items() if any(c in name + value for c in "\r\n\0")), "")
        raise NoAnswer(f"header {bad[:100]!r} contains a line break or a NUL, so nothing was sent: correct its value")
    # An environment variable may hold bytes that are not text; they are sent as they are.
    return text.encode("utf-8", "surrogateescape")
