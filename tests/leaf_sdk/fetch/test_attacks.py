"""What a hostile or broken server does to whoever fetches a map: nothing beyond an error, within a size and a time."""

import gzip
import json
import threading
import tracemalloc

import pytest

from leaf_sdk import open_map
from leaf_sdk.errors import MapHashMismatch, MapUnreachable
from leaf_sdk.fetch import open_published, read_source
from leaf_sdk.testing import tiny_map_bytes
from leaf_sdk.testing.loopback import send, serving
from leaf_sdk.vocab import map_digest
from tests.cases import each_of

DATA = tiny_map_bytes()
DIGEST = map_digest(DATA)
PRIVATE = ["10.0.0.1", "192.168.1.1", "172.16.0.1", "169.254.169.254", "127.0.0.1", "[::1]", "[fd00::1]", "0.0.0.0"]
LEADING_THERE = [
    "[64:ff9b::10.0.0.1]",
    "[2002:7f00:1::]",
    "[2001:4860::5efe:7f00:1]",
    "[::127.0.0.1]",
    "[fec0::1]",
    "224.0.0.1",
]
"""What a translation or a tunnel takes into a private network, and what is no machine of the internet."""


@each_of("host", PRIVATE)
@each_of("scheme", ["http", "https"])
def test_a_redirect_to_a_private_address_is_not_followed(scheme, host):
    target = f"{scheme}://{host}:9/map.json"
    with (
        serving(lambda handler: send(handler, b"", 302, Location=target)) as (url, asked),
        pytest.raises(MapUnreachable, match="redirects"),
    ):
        open_map(url, DIGEST)
    assert asked == ["/"] or asked == [""]


@each_of("host", [*PRIVATE, *LEADING_THERE])
def test_a_pointer_to_a_private_address_is_not_followed(host):
    pointer = {"id": "lab/model", "url": f"https://{host}:9/map.json", "hash": DIGEST}
    with (
        serving(lambda handler: send(handler, json.dumps(pointer).encode())) as (url, _),
        pytest.raises(MapUnreachable, match="not a public address"),
    ):
        open_published(url, "lab/model")


def test_a_pointer_to_another_origin_is_followed_once_that_origin_is_allowed():
    with serving(lambda handler: send(handler, DATA)) as (maps, asked):
        pointer = {"id": "lab/model", "url": f"{maps}/m.json", "hash": DIGEST}
        with serving(lambda handler: send(handler, json.dumps(pointer).encode())) as (url, _):
            with pytest.raises(MapUnreachable, match="not a public address"):
                open_published(url, "lab/model")
            assert asked == []
            assert open_published(url, "lab/model", allow=[maps]).map_id == DIGEST
    assert asked == ["/m.json"]


def test_a_body_of_ten_gigabytes_is_left_at_the_cap():
    sent = 0

    def pour(handler):
        nonlocal sent
        handler.send_response(200)
        handler.send_header("Content-Length", str(10 * 2**30))
        handler.end_headers()
        try:
            while sent < 2**30:
                sent += handler.wfile.write(bytes(2**20))
        except OSError:
            handler.close_connection = True

    with serving(pour) as (url, _), pytest.raises(MapUnreachable, match="larger than 1048576 bytes"):
        read_source(url, max_bytes=2**20)
    assert sent < 64 * 2**20


@pytest.mark.parametrize("part", ["status", "headers", "body", "body of known length"])
def test_a_server_that_drips_is_left_at_the_time_limit(part):
    done = threading.Event()
    beginnings = {
        "status": b"HTTP/1.1 2",
        "headers": b"HTTP/1.1 200 OK\r\nX-Slow: ",
        "body": b"HTTP/1.1 200 OK\r\n\r\n",
        "body of known length": b"HTTP/1.1 200 OK\r\nContent-Length: 5407\r\n\r\n",
    }

    def drip(handler):
        try:
            handler.wfile.write(beginnings[part])
            while not done.wait(0.02):
                handler.wfile.write(b"0")
        except OSError:
            handler.close_connection = True

    with serving(drip) as (url, _):
        try:
            with pytest.raises(MapUnreachable, match="too slowly"):
                read_source(url, timeout=0.3)
        finally:
            done.set()


def test_an_answer_that_unpacks_to_a_hundred_times_its_size_is_left_at_the_cap():
    bomb = gzip.compress(bytes(64 * 2**20), compresslevel=9)
    with serving(lambda handler: send(handler, bomb, Content_Encoding="gzip")) as (url, _):
        tracemalloc.start()
        try:
            with pytest.raises(MapUnreachable, match="larger than"):
                read_source(url, max_bytes=2**20)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(bomb) < 2**20
    assert most < 8 * 2**20


def test_a_compressed_map_is_the_map():
    packed = gzip.compress(DATA)
    with serving(lambda handler: send(handler, packed, Content_Encoding="gzip")) as (url, _):
        assert open_map(url, DIGEST).map_id == DIGEST


@pytest.mark.parametrize(
    ("body", "encoding", "words"),
    [
        (gzip.compress(DATA)[:-20], "gzip", "breaks off"),
        (DATA, "gzip", "not the gzip stream"),
        (DATA, "br", "compressed with 'br'"),
    ],
)
def test_an_answer_that_is_not_packed_as_it_says_is_refused(body, encoding, words):
    with (
        serving(lambda handler: send(handler, body, Content_Encoding=encoding)) as (url, _),
        pytest.raises(MapUnreachable, match=words),
    ):
        read_source(url)


def test_a_body_that_breaks_off_is_no_map():
    with (
        serving(lambda handler: send(handler, DATA[:-10], Content_Length=str(len(DATA)), Connection="close")) as (
            url,
            _,
        ),
        pytest.raises((MapUnreachable, MapHashMismatch)),
    ):
        open_map(url, DIGEST)


def test_bytes_of_another_hash_are_neither_used_nor_kept():
    answers = [DATA + b"\n", DATA]
    with serving(lambda handler: send(handler, answers.pop(0))) as (url, asked):
        with pytest.raises(MapHashMismatch):
            open_map(url, DIGEST)
        assert open_map(url, DIGEST).map_id == DIGEST
    assert len(asked) == 2
