"""A map that is named by its hash is fetched once, by one thread, and is then there without a network."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leaf_sdk import open_map
from leaf_sdk.errors import MapHashMismatch, MapUnreachable
from leaf_sdk.fetch import map_bytes
from leaf_sdk.fetch.cache import MapCache, cache_folder, default_cache
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.testing.gguf import gguf_model
from leaf_sdk.testing.loopback import send, serving
from leaf_sdk.vocab import map_digest
from leaf_sdk.vocab.byte_level import ALPHABET

DATA = tiny_map_bytes()
DIGEST = map_digest(DATA)


@pytest.fixture
def cache(tmp_path) -> MapCache:
    return MapCache(tmp_path / "cache")


def test_the_second_time_no_server_is_needed():
    with serving(lambda handler: send(handler, DATA)) as (url, asked):
        open_map(url, DIGEST)
    assert open_map(url, DIGEST).encode("hello") == tiny_map().encode("hello")
    assert asked == [""] or asked == ["/"]


def test_a_map_without_a_hash_is_asked_for_every_time():
    with serving(lambda handler: send(handler, DATA)) as (url, asked):
        open_map(url)
        open_map(url)
    assert len(asked) == 2


def test_a_file_without_a_hash_is_compiled_under_the_hash_that_it_has_now(cache, tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(DATA)
    assert open_map(path, cache=cache).map_id == DIGEST
    compiled = cache.folder / "maps" / f"{DIGEST.removeprefix('sha256:')}.compiled"
    assert compiled.is_file()
    again = open_map(path, cache=cache)
    assert (again.map_id, again.decode([0, 1]), again.encode("hello")) == (
        (DIGEST, tiny_map().decode([0, 1]), tiny_map().encode("hello"))
    )
    path.write_bytes(DATA + b"\n")
    assert open_map(path, cache=cache).map_id == map_digest(DATA + b"\n")


def test_eight_threads_fetch_once():
    begun = threading.Event()

    def answer(handler):
        begun.wait(10)
        send(handler, DATA)

    with serving(answer) as (url, asked), ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(open_map, url, DIGEST) for _ in range(8)]
        begun.set()
        assert {each.result().map_id for each in waiting} == {DIGEST}
    assert len(asked) == 1


def test_a_damaged_file_of_the_cache_is_fetched_anew(cache):
    cache.write(DATA)
    (file,) = (cache.folder / "maps").iterdir()
    file.write_bytes(DATA[:-1])
    assert cache.read(DIGEST) is None
    assert cache.fetched(DIGEST, lambda: DATA) == DATA
    assert cache.read(DIGEST) == DATA


def test_what_can_not_be_fetched_is_not_kept(cache):
    def fail() -> bytes:
        raise MapUnreachable("no", source="x")

    with pytest.raises(MapUnreachable):
        cache.fetched(DIGEST, fail)
    assert cache.read(DIGEST) is None
    assert cache.fetched(DIGEST, lambda: DATA) == DATA


def test_a_cache_that_can_not_be_written_is_an_empty_one(tmp_path):
    (tmp_path / "file").touch()
    cache = MapCache(tmp_path / "file" / "cache")
    cache.write(DATA)
    assert cache.read(DIGEST) is None
    assert cache.open(DIGEST, lambda: DATA).map_id == DIGEST


def test_the_folder_is_this_users_own(cache):
    cache.write(DATA)
    assert (cache.folder / "maps").stat().st_mode & 0o077 == 0
    assert not [path for path in (cache.folder / "maps").iterdir() if path.name.startswith(".")]


def test_the_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache().folder == tmp_path / "codec-leaf"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in cache_folder().parents


def test_a_compiled_map_decodes_without_its_map_and_encodes_with_it(cache):
    reads: list[int] = []

    def read() -> bytes:
        reads.append(1)
        return DATA

    first = cache.open(DIGEST, read)
    assert len(reads) == 1
    again = cache.open(DIGEST, read)
    assert again.decode(first.encode("hello <|im_end|>")) == "hello <|im_end|>"
    assert again.special_ids == first.special_ids
    assert len(reads) == 1
    assert again.encode("hello world") == first.encode("hello world")
    assert len(reads) == 2


def test_a_damaged_compiled_map_is_made_anew(cache):
    cache.open(DIGEST, lambda: DATA)
    (compiled,) = (cache.folder / "maps").glob("*.compiled")
    good = compiled.read_bytes()
    for damaged in (good[:-1], b"", good[:50] + b"x" + good[51:]):
        compiled.write_bytes(damaged)
        assert cache.open(DIGEST, lambda: DATA).decode([104, 105]) == "hi"
        assert compiled.read_bytes() == good


def test_a_file_is_opened_by_its_compiled_form_where_a_cache_is_given(cache, tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(DATA)
    assert open_map(path, DIGEST, cache=cache).decode([104]) == "h"
    path.unlink()
    assert open_map(path, DIGEST, cache=cache).encode("hello") == tiny_map().encode("hello")


def test_a_file_of_another_hash_is_not_kept(cache, tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(DATA + b" ")
    with pytest.raises(MapHashMismatch):
        open_map(path, DIGEST, cache=cache)
    assert cache.read(DIGEST) is None


def gguf(path: Path, *tokens: str) -> Path:
    """A model's file whose vocabulary is every byte, and these tokens."""
    pairs = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*ALPHABET, *tokens],
        "tokenizer.ggml.token_type": [1] * len(ALPHABET) + [3] * len(tokens),
        "tokenizer.ggml.merges": [],
    }
    path.write_bytes(gguf_model(pairs))
    return path


def no_building(*args: object, **kwargs: object) -> bytes:
    raise AssertionError("a map is built")


def test_map_of_a_model_is_built_once_wherever_its_file_lies(cache, tmp_path, monkeypatch):
    built = map_bytes(gguf(tmp_path / "a.gguf", "<s>"), cache=cache)
    assert built == map_bytes(tmp_path / "a.gguf")
    other = map_bytes(gguf(tmp_path / "b.gguf", "<t>"), cache=cache)
    assert other != built
    monkeypatch.setattr("leaf_sdk.fetch.build_map", no_building)

    assert map_bytes(gguf(tmp_path / "moved.gguf", "<s>"), cache=cache) == built
    # The file that is replaced has another tokenizer.
    assert map_bytes(gguf(tmp_path / "a.gguf", "<t>"), cache=cache) == other


@pytest.mark.parametrize("damage", [b"", b"\x00" * 71, b"sha256:" + b"0" * 64, None])
def test_damage_in_the_cache_has_the_map_built_anew(cache, tmp_path, damage):
    path = gguf(tmp_path / "a.gguf", "<s>")
    built = map_bytes(path, cache=cache)
    (name,) = (cache.folder / "built").iterdir()
    (data,) = (cache.folder / "maps").iterdir()
    if damage is None:
        data.write_bytes(data.read_bytes()[:-1] + b" ")
    else:
        name.write_bytes(damage)

    assert map_bytes(path, cache=cache) == built
    assert name.read_text() == map_digest(built)
    assert data.read_bytes() == built


def test_model_that_is_replaced_while_its_map_is_built_leaves_no_wrong_map(cache, tmp_path, monkeypatch):
    path, other = gguf(tmp_path / "a.gguf", "<s>"), gguf(tmp_path / "b.gguf", "<t>")
    first, others = path.read_bytes(), map_bytes(other)

    def replaced(path):
        path.write_bytes(other.read_bytes())
        return others

    with monkeypatch.context() as patch:
        patch.setattr("leaf_sdk.fetch.build_from", replaced)
        map_bytes(path, cache=cache)
    path.write_bytes(first)

    assert map_bytes(path, cache=cache) == map_bytes(path)


def test_other_code_builds_its_own_map(cache, tmp_path, monkeypatch):
    path = gguf(tmp_path / "a.gguf", "<s>")
    map_bytes(path, cache=cache)
    monkeypatch.setattr("leaf_sdk.fetch._builder", lambda: b"another version")
    map_bytes(path, cache=cache)

    assert len([*(cache.folder / "built").iterdir()]) == 2


def test_a_map_itself_is_not_kept(cache, tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    assert map_bytes(path, cache=cache) == tiny_map_bytes()
    assert not cache.folder.exists()
