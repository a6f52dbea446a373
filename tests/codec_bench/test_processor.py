"""Processes by their port: those that listen there, what they have spent, and nothing where nobody is."""

import os
import socket
import subprocess
import sys

from codec_bench.processor import cpu_seconds, listeners, spent


def test_process_that_listens_is_found_by_its_port_and_others_are_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            assert listeners(port) == [os.getpid()]
        other.close()
    assert listeners(port) == []


def test_processor_time_grows_with_work_and_is_unknown_once_a_process_has_ended() -> None:
    before = cpu_seconds(os.getpid())
    sum(range(300_000))
    assert (spent([os.getpid(), os.getpid()]) or 0.0) > 2 * before

    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert spent([os.getpid(), ended.pid]) is None
    assert spent([]) is None
