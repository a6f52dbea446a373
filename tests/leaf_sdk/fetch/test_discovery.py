"""Maps are found by an origin and a name; what is published is checked, pinned, and there when the origin is not."""

import json

import pytest

from leaf_sdk.errors import (
    MapDiscoveryInvalid,
    MapHashMismatch,
    MapNotPublished,
    MapUnreachable,
    MapUnsupported,
    NotAMap,
)
from leaf_sdk.fetch import open_published
from leaf_sdk.fetch.discovery import map_path, read_index
from leaf_sdk.testing import tiny_map_bytes
from leaf_sdk.testing.loopback import send, serving
from leaf_sdk.vocab import map_digest
from tests.cases import each_of

DATA = tiny_map_bytes()
DIGEST = map_digest(DATA)
NAME = "codec-test/tiny"


def publishing(files: dict[str, bytes]):
    def answer(handler):
        body = files.get(handler.path)
        send(handler, body or b"", 200 if body is not None else 404)

    return serving(answer)


def pointer(url: object, /, **changed: object) -> bytes:
    return json.dumps({"id": NAME, "url": url, "hash": DIGEST, "published_at": "2026-11-21"} | changed).encode()


def test_a_map_that_stands_under_its_name_is_opened():
    with publishing({map_path(NAME): DATA}) as (origin, _):
        assert open_published(origin, NAME).map_id == DIGEST
        assert open_published(origin + "/", NAME, DIGEST).map_id == DIGEST


def test_a_pointer_is_followed_and_its_hash_holds():
    files = {"/m.json": DATA}
    with publishing(files) as (origin, asked):
        files[map_path(NAME)] = pointer(f"{origin}/m.json")
        assert open_published(origin, NAME).map_id == DIGEST
        assert open_published(origin, NAME).map_id == DIGEST
    assert asked == [map_path(NAME), "/m.json", map_path(NAME)]


def test_a_pointer_that_leads_to_other_bytes_is_refused():
    files = {"/m.json": DATA + b" "}
    with publishing(files) as (origin, _):
        files[map_path(NAME)] = pointer(f"{origin}/m.json")
        with pytest.raises(MapHashMismatch):
            open_published(origin, NAME)


@pytest.mark.parametrize("inline", [True, False])
def test_what_is_published_must_be_what_the_caller_pinned(inline):
    files = {"/m.json": DATA}
    with publishing(files) as (origin, asked):
        files[map_path(NAME)] = DATA if inline else pointer(f"{origin}/m.json")
        with pytest.raises(MapHashMismatch):
            open_published(origin, NAME, "0" * 64)
    assert "/m.json" not in asked


def test_a_pinned_map_that_is_here_asks_nobody():
    with publishing({map_path(NAME): DATA}) as (origin, _):
        open_published(origin, NAME)
    with publishing({}) as (origin, asked):
        with pytest.raises(MapNotPublished):
            open_published(origin, NAME, DIGEST)
        assert asked == [map_path(NAME)]
    files = {"/m.json": DATA}
    with publishing(files) as (origin, asked):
        files[map_path(NAME)] = pointer(f"{origin}/m.json")
        open_published(origin, NAME)
        assert open_published("https://nowhere.invalid", NAME, DIGEST).map_id == DIGEST


def test_an_origin_that_does_not_answer_is_remembered():
    files = {"/m.json": DATA}
    with publishing(files) as (origin, _):
        files[map_path(NAME)] = pointer(f"{origin}/m.json")
        open_published(origin, NAME)
    assert open_published(origin, NAME).map_id == DIGEST
    with pytest.raises(MapUnreachable):
        open_published(origin, "codec-test/other")


def test_a_map_that_was_withdrawn_is_not_remembered():
    files = {map_path(NAME): DATA}
    with publishing(files) as (origin, _):
        open_published(origin, NAME)
        del files[map_path(NAME)]
        with pytest.raises(MapNotPublished):
            open_published(origin, NAME)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        pointer("https://example.org/m.json", id="codec-test/other"),
        pointer("https://example.org/m.json", hash="md5:1"),
        pointer(7),
        pointer("https://example.org/m.json", published_at=7),
    ],
)
def test_what_is_neither_a_map_nor_a_pointer_to_it_is_refused(body):
    with publishing({map_path(NAME): body}) as (origin, _), pytest.raises(MapDiscoveryInvalid):
        open_published(origin, NAME)


def test_a_pointer_to_a_pointer_is_not_followed():
    files: dict[str, bytes] = {}
    with publishing(files) as (origin, asked):
        second = pointer(f"{origin}/m.json")
        files |= {"/second": second, "/m.json": DATA}
        files[map_path(NAME)] = pointer(f"{origin}/second", hash=map_digest(second))
        with pytest.raises(NotAMap):
            open_published(origin, NAME)
    assert "/m.json" not in asked


def test_a_placeholder_is_refused_by_name():
    synthetic = json.dumps(json.loads(DATA) | {"_synthetic": True}).encode()
    with publishing({map_path(NAME): synthetic}) as (origin, _), pytest.raises(MapUnsupported, match="codec-test/tiny"):
        open_published(origin, NAME)


@each_of("name", ["", "Lab/Model", "../x", "a/../b", "/a", "a/", "a//b", "a?b", "a%2e"])
def test_a_name_that_is_no_path_is_refused_before_anything_is_asked(name):
    with publishing({}) as (origin, asked), pytest.raises(MapDiscoveryInvalid):
        open_published(origin, name)
    assert asked == []


def test_an_index_lists_pointers():
    index = {"codec_version": "0.2", "maps": [json.loads(pointer("https://example.org/m.json"))]}
    with publishing({"/.well-known/codec/index.json": json.dumps(index).encode()}) as (origin, _):
        (entry,) = read_index(origin, timeout=10)
    assert (entry.id, entry.url, entry.hash, entry.published_at) == (
        NAME,
        "https://example.org/m.json",
        DIGEST,
        "2026-11-21",
    )
