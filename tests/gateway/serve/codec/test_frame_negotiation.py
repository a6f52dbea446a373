"""What the gateway offers for streams of frames, and the documents in which clients find it."""

from collections.abc import AsyncGenerator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette

from gateway.config.wire import WireConfig
from gateway.engine.start.maps import MapSet
from gateway.errors import ConfigError
from gateway.serve.codec.frame_negotiation import Documents, Visible, WireOffer, read_version
from gateway.serve.codec.frames import too_old
from leaf_sdk.vocab import load_map
from leaf_sdk.wire import BATCH, INTERACTIVE, Dictionary
from tests.cases import each_of

pytestmark = pytest.mark.anyio
FILE = Path(__file__).parents[3] / "leaf_sdk" / "vectors" / "tiny_byte_level_map.json"
MAP = load_map(FILE.read_bytes())
DIGEST = MAP.map_id.removeprefix("sha256:")
HOST = "http://gateway.example"
KNOWN = "/.well-known/codec"
POINTER = {"id": MAP.id, "url": f"{HOST}{KNOWN}/maps/sha256/{DIGEST}.json", "hash": MAP.map_id}
DICTIONARY = Dictionary(b"a dictionary")
FOR_EVER = "public, max-age=31536000, immutable"
A_WHILE = "public, max-age=300, stale-while-revalidate=86400"


def client_of(wire: WireConfig | None = None, *, runs_bolt_ons: bool = False, file: Path = FILE) -> httpx2.AsyncClient:
    maps = MapSet()
    maps.add(MAP)
    maps.files[MAP.map_id] = file
    offer = WireOffer({"msgpack": DICTIONARY})
    documents = Documents(maps, offer, wire or WireConfig(), runs_bolt_ons=runs_bolt_ons)
    transport = httpx2.ASGITransport(Starlette(routes=documents.routes()))
    return httpx2.AsyncClient(transport=transport, base_url=HOST)


@pytest.fixture
async def client() -> AsyncGenerator[httpx2.AsyncClient]:
    async with client_of() as client:
        yield client


@pytest.mark.parametrize("runs", [True, False])
async def test_version_says_what_is_spoken_here(runs: bool) -> None:
    async with client_of(runs_bolt_ons=runs) as client:
        answer = await client.get("/codec/version")

    assert answer.json() == {
        "version": "0.5",
        "stream_formats": ["json", "msgpack", "protobuf"],
        "delta_varint": False,
        "bolt_on_dispatch": runs,
    }
    assert answer.headers["cache-control"] == A_WHILE
    assert answer.headers["access-control-allow-origin"] == "*"


async def test_schema_is_text(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/codec/schema")

    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "message" in answer.text


async def test_index_names_maps_and_dictionaries(client: httpx2.AsyncClient) -> None:
    assert (await client.get(f"{KNOWN}/index.json")).json() == {
        "codec_version": "0.5",
        "maps": [POINTER],
        "zstd_dictionaries": [{"hash": DICTIONARY.hash, "format": "msgpack"}],
    }


async def test_map_is_found_by_its_name_and_its_bytes_by_their_hash_for_ever(client: httpx2.AsyncClient) -> None:
    pointer = await client.get(f"{KNOWN}/maps/{MAP.id}.json")
    answer = await client.get(f"{KNOWN}/maps/sha256/{DIGEST}.json")

    assert (pointer.json(), pointer.headers["cache-control"]) == (POINTER, A_WHILE)
    assert answer.content == FILE.read_bytes()
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", FOR_EVER)


async def test_dictionary_is_found_by_its_hash(client: httpx2.AsyncClient) -> None:
    answer = await client.get(f"{KNOWN}/dicts/{sha256(DICTIONARY.data).hexdigest()}.zstd")

    assert answer.content == b"a dictionary"
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/octet-stream", FOR_EVER)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("maps/other.json", "no map 'other' is served here"),
        (f"maps/sha256/{'0' * 64}.json", f"no map 'sha256:{'0' * 64}' is served here"),
        ("dicts/other.zstd", "no such dictionary is served here"),
        ("version-policy.json", "this gateway requires no minimum version"),
    ],
)
async def test_document_that_there_is_not_is_said_and_not_kept(
    client: httpx2.AsyncClient, path: str, words: str
) -> None:
    answer = await client.get(f"{KNOWN}/{path}")

    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith(words)
    assert (answer.headers["cache-control"], answer.headers["access-control-allow-origin"]) == ("no-store", "*")


async def test_minimum_version_is_published_where_there_is_one() -> None:
    async with client_of(WireConfig(minimum_version="0.4")) as client:
        answer = await client.get(f"{KNOWN}/version-policy.json")

    assert answer.json() == {"minimum_version": "0.4", "required_features": []}


@pytest.mark.parametrize("path", [f"{KNOWN}/index.json", f"{KNOWN}/maps/sha256/{DIGEST}.json", "/codec/schema"])
@pytest.mark.parametrize(
    ("known", "status"), [("{}", 304), ("W/{}", 304), ('"x", {}', 304), ("*", 304), ('"x"', 200), ("", 200)]
)
async def test_document_that_a_client_has_is_not_sent_again(
    client: httpx2.AsyncClient, path: str, known: str, status: int
) -> None:
    tag = (await client.get(path)).headers["etag"]
    answer = await client.get(path, headers={"if-none-match": known.format(tag)})

    assert (answer.status_code, bool(answer.content)) == (status, status == 200)
    assert answer.headers["etag"] == tag


async def test_map_that_a_client_has_is_not_read_again_and_one_whose_file_is_gone_is_said_to_be(
    tmp_path: Path,
) -> None:
    path = f"{KNOWN}/maps/sha256/{DIGEST}.json"
    async with client_of(file=tmp_path / "gone.json") as client:
        has, has_not = await client.get(path, headers={"if-none-match": f'"{DIGEST}"'}), await client.get(path)

    assert (has.status_code, has_not.status_code) == (304, 404)
    assert "its file can no longer be read" in has_not.json()["error"]["message"]


def test_interactive_streams_wait_as_long_as_the_settings_say_and_others_as_their_policy_does() -> None:
    offer = WireOffer.of(WireConfig(max_delay=0.5))

    assert offer.policy("interactive").max_delay == 0.5
    assert offer.policy("interactive").max_ids == INTERACTIVE.max_ids
    assert offer.policy("batch") == BATCH


def test_dictionaries_of_the_settings_are_for_their_formats_and_one_that_is_gone_is_named(tmp_path: Path) -> None:
    files: dict[str, Any] = {f"dictionary_{form}": tmp_path / form for form in ("msgpack", "protobuf")}
    for path in files.values():
        path.write_bytes(path.name.encode())
    offer = WireOffer.of(WireConfig(**files))

    assert {form: each.data for form, each in offer.dictionaries.items()} == {
        "msgpack": b"msgpack",
        "protobuf": b"protobuf",
    }
    with pytest.raises(ConfigError, match="a zstd dictionary can't be read"):
        WireOffer.of(WireConfig(dictionary_msgpack=tmp_path / "gone"))


def test_stream_names_the_dictionary_only_where_it_is_compressed_with_it() -> None:
    offer = WireOffer({"msgpack": DICTIONARY})

    def headers(form: Any, accept: str) -> dict[bytes, bytes]:
        wire = offer.wire(form, "batch", MAP.map_id, accept_encoding=accept, expected_ids=None)
        return dict(wire.headers(Visible((0, 5))))

    compressed = headers("msgpack", "zstd")
    assert compressed[b"content-encoding"] == b"zstd"
    assert compressed[b"codec-zstd-dict"].decode() == DICTIONARY.hash
    for plain in (headers("msgpack", "gzip"), headers("protobuf", "zstd")):
        assert b"codec-zstd-dict" not in plain
    assert b"content-encoding" not in headers("msgpack", "identity")
    assert headers("msgpack", "identity")[b"cache-control"] == b"no-cache, no-transform"


@each_of(
    ("value", "version"),
    [
        (None, (0, 2)),
        ("0.4", (0, 4)),
        (" v0.4.1", (0, 4)),
        ("1.0", (1, 0)),
        ("V2.3", (2, 3)),
        ("1234.5678", (1234, 5678)),
        ("12345.6789", (0, 2)),
        ("1", (0, 2)),
        ("new", (0, 2)),
        ("0.x", (0, 2)),
        ("", (0, 2)),
    ],
)
def test_version_is_read_leniently_as_two_numbers_of_eight_digits_in_all(
    value: str | None, version: tuple[int, int]
) -> None:
    assert read_version(value) == version


def test_client_that_is_too_old_is_told_which_version_it_needs() -> None:
    answer = too_old((0, 2), "0.4")

    assert answer.status_code == 426
    assert (answer.headers["codec-min-version"], answer.headers["upgrade"]) == ("0.4", "codec/0.4")
    assert answer.body == (
        b'{"error":"codec_version_required","minimum_version":"0.4","required_features":[],"client_version":"0.2"}'
    )


@each_of(
    ("header", "since"),
    [
        ("Codec-Tokenizer-Map", (0, 2)),
        ("Codec-Tokenizer-Map-Hash", (0, 2)),
        ("Codec-Zstd-Dict", (0, 2)),
        ("Codec-Latent-Map", (0, 3)),
        ("Codec-Map", (0, 3)),
        ("Codec-Safety-Policy", (0, 4)),
        ("Codec-Safety-Policy-Hash", (0, 4)),
        ("Content-Type", (0, 0)),
    ],
)
def test_header_is_sent_to_clients_from_the_version_on_that_has_it(header: str, since: tuple[int, int]) -> None:
    versions = [(0, minor) for minor in range(6)] + [(1, 0)]

    assert [version for version in versions if Visible(version)([header])] == [
        version for version in versions if version >= since
    ]
