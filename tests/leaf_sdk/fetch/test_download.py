"""Maps come from files and addresses that we chose, whole, within a size and a time, and are what their hash says."""

import threading

import pytest

from leaf_sdk import open_map
from leaf_sdk.errors import MapError, MapHashMalformed, MapHashMismatch, MapUnreachable, NotAMap
from leaf_sdk.fetch import read_source
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.testing.loopback import send as send_any
from leaf_sdk.testing.loopback import serving
from leaf_sdk.vocab import build_map, map_digest
from tests.cases import each_of

DATA = tiny_map_bytes()
DIGEST = map_digest(DATA)


def send(handler, data=DATA, status=200, **headers):
    send_any(handler, data, status, **headers)


def test_a_file_is_opened_by_path_or_text(tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(DATA)
    assert open_map(path).map_id == open_map(str(path), DIGEST).map_id == DIGEST


def test_a_model_file_is_opened_without_reading_it_whole(smollm_path):
    token_map = open_map(smollm_path)
    assert token_map.id == "huggingfacetb/smollm2"
    assert open_map(smollm_path, token_map.map_id).map_id == token_map.map_id


def test_a_tokenizer_json_is_opened_as_the_map_that_is_built_from_it(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(
        '{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": []}, "added_tokens": [],'
        ' "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}}'
    )
    assert open_map(path).map_id == map_digest(build_map(path.read_bytes()))


def test_a_file_with_another_hash_is_refused(tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(DATA + b" ")
    with pytest.raises(MapHashMismatch):
        open_map(path, DIGEST)
    with pytest.raises(MapHashMismatch):
        read_source(path, expected_hash=DIGEST)


def test_a_missing_file_a_folder_and_a_device_are_named(tmp_path):
    for source in (tmp_path / "none.json", tmp_path, "/dev/null", "a\0b"):
        with pytest.raises(MapUnreachable) as raised:
            open_map(source)
        assert raised.value.source == str(source)


def test_an_empty_file_is_no_map(tmp_path):
    path = tmp_path / "map.json"
    path.touch()
    with pytest.raises(NotAMap):
        open_map(path)


def test_a_file_larger_than_the_cap_is_refused(tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(DATA)
    assert read_source(path, max_bytes=len(DATA)) == DATA
    with pytest.raises(MapUnreachable, match="larger than"):
        read_source(path, max_bytes=len(DATA) - 1)


def test_a_map_is_fetched_from_an_address_on_this_machine():
    with serving(send) as (url, asked):
        assert open_map(f"{url}/map.json", DIGEST).map_id == tiny_map().map_id
    assert asked == ["/map.json"]


def test_a_malformed_hash_stops_before_anything_is_asked_for():
    with serving(send) as (url, asked):
        with pytest.raises(MapHashMalformed):
            open_map(url, "sha256:short")
        with pytest.raises(MapHashMalformed):
            read_source(url, expected_hash="md5:x")
    assert asked == []


def test_an_answer_with_another_hash_is_refused():
    with serving(lambda handler: send(handler, DATA + b"\n")) as (url, _), pytest.raises(MapHashMismatch):
        open_map(url, DIGEST)


def test_an_answer_larger_than_the_cap_is_refused_without_being_read_whole():
    with serving(send) as (url, _), pytest.raises(MapUnreachable, match="larger than 100 bytes"):
        read_source(url, max_bytes=100)


def test_an_answer_that_never_ends_stops_at_the_time_limit():
    done = threading.Event()

    def drip(handler):
        handler.send_response(200)
        handler.end_headers()
        while not done.wait(0.01):
            handler.wfile.write(b" ")

    with serving(drip) as (url, _):
        try:
            with pytest.raises(MapUnreachable, match="too slowly"):
                read_source(url, timeout=0.2)
        finally:
            done.set()


def test_an_answer_that_never_begins_stops_at_the_time_limit():
    done = threading.Event()
    with serving(lambda _handler: done.wait(60)) as (url, _):
        try:
            with pytest.raises(MapUnreachable, match="too slowly"):
                read_source(url, timeout=0.2)
        finally:
            done.set()


@pytest.mark.parametrize("status", [404, 500])
def test_an_error_status_is_named(status):
    with (
        serving(lambda handler: send(handler, b"no", status)) as (url, _),
        pytest.raises(MapUnreachable, match=str(status)),
    ):
        open_map(url)


def test_a_redirect_within_the_origin_is_followed():
    def answer(handler):
        send(handler) if handler.path == "/there" else send(handler, b"", 302, Location="/there")

    with serving(answer) as (url, asked):
        assert read_source(f"{url}/here") == DATA
    assert asked == ["/here", "/there"]


def test_a_redirect_to_another_origin_is_refused_and_not_asked():
    with (
        serving(send) as (other, asked),
        serving(lambda handler: send(handler, b"", 302, Location=other)) as (url, _),
        pytest.raises(MapUnreachable, match="redirects"),
    ):
        read_source(url)
    assert asked == []


def test_a_redirect_to_a_file_is_refused():
    with (
        serving(lambda handler: send(handler, b"", 302, Location="file:///etc/hosts")) as (url, _),
        pytest.raises(MapUnreachable),
    ):
        read_source(url)


@each_of(
    "url",
    [
        "http://example.org/map.json",
        "http://127.0.0.1.example.org/map.json",
        "http://localhost@example.org/map.json",
        "http://169.254.169.254/latest",
        "http://[::2]/map.json",
        "file:///etc/hosts",
        "ftp://127.0.0.1/map.json",
        "data://text/plain,x",
        "https://",
        "http://127.0.0.1:99999/",
        "http://[broken/",
    ],
)
def test_an_address_that_we_do_not_fetch_is_refused_by_name(url):
    with pytest.raises(MapUnreachable) as raised:
        open_map(url)
    assert repr(url) in raised.value.message


def test_a_closed_port_is_a_map_error():
    with serving(send) as (url, _):
        pass
    with pytest.raises(MapError, match="can't be fetched"):
        open_map(url)


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(monkeypatch):
    with serving(send) as (url, _), serving(lambda handler: send(handler, b"proxied")) as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy)
        assert read_source(url) == DATA
    assert asked == []
