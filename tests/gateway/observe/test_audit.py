"""The audit log, in real files."""

import errno
import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import ConfigError
from gateway.observe.audit import Audit, AuditLine
from gateway.observe.line_log import QUEUE_BOUND
from gateway.observe.metrics import Metrics

CALL = AuditLine(
    principal="laptop",
    endpoint="mcp-http",
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
    assert written["arguments"]["text"] == "y" * 1000 + "… (9000 more characters)"
    assert written["arguments"]["list"] == [0] * 100
    assert json.dumps(written["arguments"]["deep"], ensure_ascii=False).count("[") == 7


def test_what_an_endpoint_does_not_say_is_nothing(tmp_path: Path) -> None:
    (written,) = write(tmp_path / "a", AuditLine("a", "v1", "m", "ok"))

    counted = {name: written[name] for name in ("bytes_in", "bytes_out", "ids", "duration_ms", "source")}
    assert counted == {"bytes_in": 0, "bytes_out": 0, "ids": 0, "duration_ms": 0.0, "source": "none"}
    assert [written[name] for name in ("server", "tool", "map", "request_id")] == [None] * 4


def test_values_of_arguments_keep_their_kind(tmp_path: Path) -> None:
    plain = {"yes": True, "half": 0.5, "none": None, "token": None, "most": 2**256 - 1}
    line = AuditLine(
        "a", "v1", "m", "ok", arguments={**plain, "too many": 2**256, "inf": float("inf"), "pin": [1, (2,)]}
    )

    (written,) = write(tmp_path / "a", line, arguments=True)

    assert written["arguments"] == {
        **plain,
        "too many": "integer of 257 bits",
        "inf": "inf",
        "pin": [1, [2]],
    }


def test_log_of_arguments_takes_calls_that_have_none(tmp_path: Path) -> None:
    (written,) = write(tmp_path / "a", CALL, arguments=True)

    assert "arguments" not in written


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
    assert {note["reason"] for note in notes} == {"calls came in faster than they could be written"}
    assert sum(note["dropped"] for note in notes) == dropped(metrics) > 0
    assert dropped(metrics) <= QUEUE_BOUND * 2


def test_disk_that_is_full_is_counted_and_the_gateway_lives(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    with Audit(Path("/dev/full"), metrics.access) as audit:
        audit.record(CALL)

    assert dropped(metrics) == 1
    assert caplog.text.count("can't be written") == 1


class Disk:
    """What stands under one file: it takes so many bytes, and then none until there is room again."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room = 0
        self.full = threading.Event()
        self.tries = 0
        self._path = path
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, file: int, data: bytes) -> int:
        if not self._path.exists() or os.fstat(file).st_ino != self._path.stat().st_ino:
            return self._write(file, data)
        fits = data[: self.room]
        self.room -= len(fits)
        if fits:
            return self._write(file, fits)
        self.tries += 1
        self.full.set()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def numbered(start: int, stop: int) -> list[AuditLine]:
    return [AuditLine("a", "v1", "m", "ok", request_id=n) for n in range(start, stop)]


@pytest.mark.parametrize("room", [0, 1, 100, 1000, 2500])
def test_gap_of_a_full_disk_is_noted_in_its_place_and_counted_exactly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    path, metrics = tmp_path / "audit.jsonl", Metrics()
    disk = Disk(path, monkeypatch)
    disk.room = room
    with Audit(path, metrics.access) as audit:
        for line in numbered(0, 20):
            audit.record(line)
        assert disk.full.wait(30)
        disk.room = 1_000_000
        for line in numbered(20, 30):
            audit.record(line)

    written = read(path)
    (place,) = [place for place, line in enumerate(written) if "dropped" in line]
    note = written.pop(place)
    ids = [line["request_id"] for line in written]
    assert note["reason"] == "the file could not be written: No space left on device"
    assert note["dropped"] == dropped(metrics) == 30 - len(ids) > 0
    assert ids == [*range(place), *range(place + note["dropped"], 30)]


def test_gaps_add_up_until_there_is_room_for_the_note_which_needs_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gateway.observe.line_log._RETRY_SECONDS", 0.01)
    path, metrics = tmp_path / "audit.jsonl", Metrics()
    disk = Disk(path, monkeypatch)
    noted = threading.Event()
    with Audit(path, metrics.access) as audit:
        for n in range(3):
            disk.full.clear()
            audit.record(numbered(n, n + 1)[0])
            # Behind the try that found it full there was another one, so all that was recorded before is lost.
            assert disk.full.wait(30)
            disk.full.clear()
            assert disk.full.wait(30)
        disk.room = 1_000_000
        while not path.read_bytes():
            noted.wait(0.01)

    (note,) = read(path)
    assert note["dropped"] == dropped(metrics) == 3
    assert [record.msg["event"] for record in caplog.records].count("the audit log can't be written") == 1


def test_file_over_the_limit_of_the_system_holds_whole_lines_and_the_note(tmp_path: Path) -> None:
    script = """
import resource, sys, time
from pathlib import Path
from gateway.observe.audit import Audit
from gateway.observe.audit import AuditLine
from gateway.observe.metrics import Metrics

def lost():
    (line,) = [x for x in metrics.render().decode().splitlines() if x.startswith("codec_audit_lines_dropped_total ")]
    return int(float(line.split()[1]))

metrics, hard = Metrics(), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
with Audit(Path(sys.argv[1]), metrics.access) as audit:
    for n in range(50):
        audit.record(AuditLine("a", "v1", "m", "ok", request_id=n))
    while not lost():
        time.sleep(0.01)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    audit.record(AuditLine("a", "v1", "m", "ok", request_id=50))
print(lost())
"""
    path = tmp_path / "audit.jsonl"
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, check=True, timeout=120)

    lines = read(path)
    (note,) = [line for line in lines if "dropped" in line]
    assert note["dropped"] == int(ran.stdout) == 51 - (len(lines) - 1)
    assert "File too large" in note["reason"]
    assert lines[-1]["request_id"] == 50


def test_arguments_that_wait_are_bounded_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.observe.line_log.BATCH_SECONDS", 60)
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
