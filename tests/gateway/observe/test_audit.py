"""The audit log, in real files."""

import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigError
from gateway.observe.audit import QUEUE_BOUND, Audit
from gateway.observe.audit_line import AuditLine
from gateway.observe.metrics import Metrics

CALL = AuditLine(
    principal="laptop",
    face="mcp-http",
    method="tools/call",
    outcome="ok",
    server="time",
    tool="time__now",
    map="sha256:abc",
    source="leaf",
    bytes_in=120,
    bytes_out=340,
    ids=17,
    duration_ms=1.23456,
    request_id=7,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def write(path: Path, *lines: AuditLine, **more: Any) -> list[dict[str, Any]]:
    with Audit(path, Metrics().access, **more) as audit:
        for line in lines:
            audit.record(line)
    return read(path)


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]


def dropped(metrics: Metrics) -> float:
    (line,) = [x for x in metrics.render().decode().splitlines() if x.startswith("codec_audit_lines_dropped_total ")]
    return float(line.split()[1])


def test_call_is_one_line_with_everything_about_it(tmp_path: Path) -> None:
    (line,) = write(tmp_path / "audit.jsonl", CALL)

    assert line.pop("time").endswith("Z")
    assert line == {
        "principal": "laptop",
        "face": "mcp-http",
        "method": "tools/call",
        "server": "time",
        "tool": "time__now",
        "map": "sha256:abc",
        "source": "leaf",
        "bytes_in": 120,
        "bytes_out": 340,
        "ids": 17,
        "duration_ms": 1.235,
        "outcome": "ok",
        "request_id": 7,
    }


def test_lines_are_appended_in_order_and_for_the_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, *(AuditLine("a", "v1", "m", "ok", request_id=n) for n in range(500)))
    write(path, *(AuditLine("a", "v1", "m", "ok", request_id=n) for n in range(500, 1000)))

    assert [line["request_id"] for line in read(path)] == list(range(1000))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_arguments_are_left_out_unless_they_were_asked_for(tmp_path: Path) -> None:
    line = AuditLine("a", "v1", "tools/call", "ok", arguments={"city": "Oslo"})

    assert "arguments" not in write(tmp_path / "a", line)[0]
    assert write(tmp_path / "b", line, arguments=True)[0]["arguments"] == {"city": "Oslo"}


def test_secrets_in_arguments_are_masked(tmp_path: Path) -> None:
    arguments = {
        "api_key": "k-1234",
        "password": ["p-1234", {"x": "p-1235"}],
        "pin": {"token": 12345},
        "note": "use Bearer abcdefgh1234 at https://me:pw-123@host",
        "path": "/x/configured-secret/y",
        "configured-secret": 1,
    }
    line = AuditLine("a", "v1", "tools/call", "ok", tool="say configured-secret", arguments=arguments)

    (written,) = write(tmp_path / "a", line, arguments=True, secrets=["configured-secret"])

    text = json.dumps(written)
    for secret in ("k-1234", "p-1234", "p-1235", "12345", "abcdefgh1234", "pw-123", "configured-secret"):
        assert secret not in text
    assert written["arguments"]["note"].startswith("use Bearer ****")


@given(values, st.text() | st.integers(), st.text())
def test_whatever_a_caller_sends_is_one_line_of_plain_json(
    tmp_path_factory: pytest.TempPathFactory, value: Any, request_id: str | int, name: str
) -> None:
    path = tmp_path_factory.mktemp("audit") / "a"
    line = AuditLine("p", "v1", "m", "ok", tool=name, request_id=request_id, arguments={name: value})

    write(path, line, CALL, arguments=True)

    raw = path.read_bytes()
    assert raw.count(b"\n") == 2
    assert all(byte == 10 or 32 <= byte < 127 for byte in raw)
    for each in raw.splitlines():
        json.loads(each, parse_constant=pytest.fail)


def test_number_that_python_does_not_write_is_described(tmp_path: Path) -> None:
    line = AuditLine("a", "v1", "m", "ok", request_id=10**5000, arguments={"n": -(10**5000), "m": 2**64})

    (written,) = write(tmp_path / "a", line, arguments=True)

    assert written["request_id"] == "integer of 16610 bits"
    assert written["arguments"] == {"n": "integer of 16610 bits", "m": 2**64}


def test_long_arguments_are_cut(tmp_path: Path) -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = [deep]
    line = AuditLine("a", "v1", "m", "ok", arguments={"text": "y" * 10_000, "list": [0] * 1000, "deep": deep})

    (written,) = write(tmp_path / "a", line, arguments=True)

    assert len(json.dumps(written)) < 3000


def test_file_that_was_moved_away_is_opened_anew(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    write(path, CALL)
    with Audit(path, Metrics().access) as audit:
        path.rename(tmp_path / "audit.jsonl.1")
        audit.record(CALL)

    assert len(read(path)) == 1
    assert len(read(tmp_path / "audit.jsonl.1")) == 1


def test_path_that_can_not_be_written_ends_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit\.path"), Audit(tmp_path / "none" / "a", Metrics().access):
        pytest.fail("it started")


def test_writer_that_can_not_keep_up_blocks_nobody_and_what_is_lost_is_counted_and_noted(tmp_path: Path) -> None:
    path, metrics = tmp_path / "pipe", Metrics()
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    received: list[bytes] = []

    def drain() -> None:
        os.set_blocking(reader, True)
        while data := os.read(reader, 1 << 16):
            received.append(data)

    # Nobody reads: the pipe takes 64 KiB, the queue its bound, and the rest is too much.
    with Audit(path, metrics.access) as audit:
        for n in range(QUEUE_BOUND * 3):
            audit.record(AuditLine("a", "v1", "m", "ok", request_id=n))
        thread = threading.Thread(target=drain)
        thread.start()
    thread.join()
    os.close(reader)

    notes = [json.loads(line) for line in b"".join(received).splitlines() if b'"dropped"' in line]
    assert {note["reason"] for note in notes} == {"the calls came too fast"}
    assert sum(note["dropped"] for note in notes) == dropped(metrics) > 0
    assert dropped(metrics) <= QUEUE_BOUND * 2


def test_disk_that_is_full_is_counted_and_the_gateway_lives(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with Audit(Path("/dev/full"), metrics.access) as audit:
        audit.record(CALL)

    assert dropped(metrics) == 1
    assert "can't be written" in caplog.text


def test_arguments_that_wait_are_bounded_by_their_bytes(tmp_path: Path) -> None:
    metrics = Metrics()
    big = AuditLine("a", "v1", "m", "ok", bytes_in=40 * 1024 * 1024, arguments={"x": "y"})
    with Audit(tmp_path / "a", metrics.access, arguments=True) as audit:
        for _ in range(3):
            audit.record(big)
    with Audit(tmp_path / "b", metrics.access) as audit:
        for _ in range(3):
            audit.record(big)

    assert dropped(metrics) == 2
    assert len(read(tmp_path / "b")) == 3
