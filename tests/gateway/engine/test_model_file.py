"""A file that llama.cpp can't load is named with what is wrong with it, from the file alone."""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import EngineConfig
from gateway.engine.embedded.model_file import ModelFile, examine_model, model_fault, model_stamp, show_bytes
from gateway.engine.embedded.packaged_model import packaged_model
from gateway.errors import ConfigError
from leaf_sdk.testing.gguf import gguf_head, gguf_model

WHOLE = gguf_model({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"]})


def written(folder: Path, data: bytes, name: str = "m.gguf") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def test_whole_model_has_no_fault(tmp_path: Path) -> None:
    assert model_fault(written(tmp_path, WHOLE)) is None
    assert model_fault(packaged_model()) is None


def test_model_that_lacks_its_last_byte_is_truncated(tmp_path: Path) -> None:
    fault = model_fault(written(tmp_path, WHOLE[:-1]))

    assert fault is not None
    assert "m.gguf' is truncated" in fault
    assert f"{len(WHOLE) - 1} of at least {len(WHOLE)} bytes" in fault


@pytest.mark.parametrize("length", [5, 23, 24, 30, 100, 400])
def test_model_that_ends_inside_its_head_is_truncated(tmp_path: Path, length: int) -> None:
    fault = model_fault(written(tmp_path, WHOLE[:length]))
    assert fault is not None
    assert "is truncated" in fault


def test_context_that_a_model_was_trained_on(tmp_path: Path) -> None:
    named = {"general.architecture": "llama", "llama.context_length": 2048, "gpt2.context_length": 9}

    assert examine_model(written(tmp_path, gguf_head(named))).trained_context == 2048
    assert examine_model(written(tmp_path, gguf_head({}))).trained_context is None
    assert examine_model(written(tmp_path, WHOLE[:30])).trained_context is None
    assert examine_model(packaged_model()).trained_context == 8192


def test_every_shorter_file_is_a_fault(tmp_path: Path) -> None:
    drawn = random.Random(1)
    for length in drawn.sample(range(len(WHOLE)), 60):
        assert model_fault(written(tmp_path, WHOLE[:length])), length


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>sign in</html>", "it is a web page"),
        (b"\n <html>", "it is a web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (struct.pack("<Q", 40) + b'{"a": {"dtype": "F16"}}', "it is a safetensors file"),
        (b"PK\x03\x04archive", "it is a PyTorch or ZIP file"),
        (b"\x80\x02pickled", "it is a PyTorch or ZIP file"),
        (b"tjgg\x03\0\0\0", "before August 2023"),
        (b'{"model": 1}', "it is JSON"),
        (b"\x1b[31mred", r"it starts with '\x1b[31', a GGUF file with 'GGUF'"),
        (gguf_head({}, version=1), "GGUF version 1 is not read"),
        (gguf_head({}, version=9), "GGUF version 9 is not read"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**40), "is damaged"),
    ],
)
def test_file_that_is_no_model_is_named_with_what_it_is(tmp_path: Path, data: bytes, words: str) -> None:
    fault = model_fault(written(tmp_path, data))
    assert fault is not None
    assert "m.gguf' " in fault
    assert words in fault
    assert "\x1b" not in fault


def test_head_that_says_less_gives_the_width_of_a_head_by_the_embedding(tmp_path: Path) -> None:
    told = {"embedding_length": 64, "block_count": 3, "attention.head_count": 4}

    def cache(**more: object) -> int:
        pairs = {
            "general.architecture": "llama",
            **{f"llama.{name}": value for name, value in {**told, **more}.items()},
        }
        return examine_model(written(tmp_path, gguf_head(pairs))).cache_per_token

    # Layers, heads, a key and a value of as many numbers each, of 2 bytes.
    assert cache() == 3 * 4 * (16 + 16) * 2
    assert cache(**{"attention.head_count_kv": 2, "attention.value_length": 8}) == 3 * 2 * (16 + 8) * 2
    # Layers that differ: the largest counts.
    assert cache(**{"attention.head_count_kv": [1, 3, 2]}) == 3 * 3 * (16 + 16) * 2
    assert cache(**{"attention.head_count_kv": []}) == cache()
    assert cache(**{"attention.head_count_kv": ["2"]}) == cache()
    assert cache(**{"attention.head_count": 0}) == cache(block_count=True) == 0
    assert examine_model(written(tmp_path, gguf_head({}))).cache_per_token == 0


def test_model_without_a_template_is_known_by_its_head(tmp_path: Path) -> None:
    assert not examine_model(written(tmp_path, WHOLE)).has_template
    assert not examine_model(written(tmp_path, gguf_head({"tokenizer.chat_template": 1}))).has_template
    assert examine_model(written(tmp_path, gguf_head({"tokenizer.chat_template": "{{ x }}"}))).has_template
    # Of a file that can't be read it is not said.
    assert examine_model(tmp_path / "missing.gguf").has_template


def test_only_a_number_above_zero_is_a_trained_context(tmp_path: Path) -> None:
    for told, known in ((0, None), (1, 1), (True, None), ([7, 9], 9)):
        pairs = {"general.architecture": "llama", "llama.context_length": told}
        assert examine_model(written(tmp_path, gguf_head(pairs))).trained_context == known


def test_path_without_a_file_is_named(tmp_path: Path) -> None:
    assert "does not exist" in (model_fault(tmp_path / "missing.gguf") or "")
    assert "is a directory" in (model_fault(tmp_path) or "")


def test_path_that_is_no_regular_file_is_named_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.gguf")
    assert "is not a regular file" in (model_fault(tmp_path / "m.gguf") or "")
    assert "is not a regular file" in (model_fault(Path("/dev/zero")) or "")
    assert "does not exist" in (model_fault(tmp_path / "a\0b.gguf") or "")
    assert model_stamp(tmp_path / "a\0b.gguf") == (None,)


def test_head_of_a_sparse_file_is_read_within_a_bound(tmp_path: Path) -> None:
    # An array of 2**36 numbers, in a file that has as many bytes, none of which is stored.
    pair = struct.pack("<QsIIQ", 1, b"a", 9, 0, 2**36)
    path = written(tmp_path, gguf_head({})[:16] + struct.pack("<Q", 1) + pair)
    with path.open("r+b") as file:
        file.truncate(2**37)

    assert "m.gguf' is damaged" in (model_fault(path) or "")
    assert examine_model(path).memory(4096) is None


def test_head_larger_than_the_first_read_is_read(tmp_path: Path) -> None:
    whole = gguf_model({"tokenizer.ggml.tokens": ["a" * (9 << 20)]})
    assert model_fault(written(tmp_path, whole)) is None
    assert "is truncated" in (model_fault(written(tmp_path, whole[: 9 << 20])) or "")


def test_model_that_is_emptied_meanwhile_needs_no_known_memory(tmp_path: Path) -> None:
    assert examine_model(written(tmp_path, b"")).memory(4096) is None


def test_stamp_of_a_split_model_ends_with_the_first_part_that_is_missing(tmp_path: Path) -> None:
    first = written(tmp_path, WHOLE, "m-00001-of-99999.gguf")
    assert len(model_stamp(first)) == 2


def test_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    # A path through a file fails for everybody; permissions do not bind root.
    assert "m.gguf" in (model_fault(written(tmp_path, b"x") / "m.gguf") or "")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            PermissionError(13, "Permission denied"),
            "can't be read: Permission denied; check its path and its permissions",
        ),
        (ValueError("embedded null byte"), "can't be read: it changed meanwhile, or no file can have this name"),
    ],
)
def test_file_that_the_system_does_not_open_is_named(tmp_path: Path, monkeypatch, error: Exception, words: str) -> None:
    def refuse(*_: object) -> None:
        raise error

    path = written(tmp_path, WHOLE)
    monkeypatch.setattr(Path, "open", refuse)
    assert f"model 'm.gguf' {words}" in (model_fault(path) or "")


def test_split_model_needs_all_its_parts(tmp_path: Path) -> None:
    first = written(tmp_path, WHOLE, "m-00001-of-00002.gguf")
    before = model_stamp(first)
    fault = model_fault(first)
    assert fault is not None
    assert "m-00002-of-00002.gguf' does not exist: get all parts" in fault

    second = written(tmp_path, WHOLE[:-1], "m-00002-of-00002.gguf")
    assert "m-00002-of-00002.gguf' is truncated" in (model_fault(first) or "")
    assert model_stamp(first) != before

    second.write_bytes(WHOLE)
    assert model_fault(first) is None
    assert examine_model(first).weights == 2 * len(WHOLE)
    assert len(model_stamp(second)) == 2


@pytest.mark.parametrize(
    "name", ["m-00003-of-00002.gguf", "m-00000-of-00002.gguf", "m-1-of-2.gguf", "m-00001-of-00002"]
)
def test_name_that_only_looks_like_a_part_is_one_file(tmp_path: Path, name: str) -> None:
    assert model_fault(written(tmp_path, WHOLE, name)) is None


def test_split_model_is_named_by_its_first_part(tmp_path: Path) -> None:
    whole = gguf_model({"split.no": 1, "tokenizer.ggml.tokens": ["a"]})
    for number in (1, 2):
        written(tmp_path, whole, f"m-0000{number}-of-00002.gguf")
    assert "is part 2 of a split model" in (model_fault(tmp_path / "m-00002-of-00002.gguf") or "")


def test_stamp_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    missing = model_stamp(path)
    written(tmp_path, WHOLE[:-1])
    short = model_stamp(path)
    assert short != missing
    assert short == model_stamp(path)
    written(tmp_path, WHOLE)
    assert model_stamp(path) != short


def test_memory_is_the_weights_and_the_cache_of_the_context() -> None:
    path = packaged_model()
    # 30 layers, 3 heads of keys and values, of 64 numbers each, of 2 bytes.
    assert examine_model(path).memory(4096) == path.stat().st_size + 4096 * 30 * 3 * 128 * 2
    assert examine_model(path.with_name("missing.gguf")).memory(4096) is None


def test_bytes_are_shown_in_the_unit_that_fits() -> None:
    shown = [show_bytes(n) for n in (98_362_432, 999_000_000, 1_000_000_000, 4_100_000_000)]

    assert shown == ["98.4 MB", "999 MB", "1.0 GB", "4.1 GB"]


def looks(monkeypatch: pytest.MonkeyPatch, *does: Callable[[], object]) -> list[float]:
    """Has each look at the file come at once, behind what happens before it; gives the seconds of the pauses."""
    pauses: list[float] = []
    steps = iter(does)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        next(steps)()

    monkeypatch.setattr("gateway.engine.embedded.model_file.anyio.sleep", sleep)
    return pauses


@pytest.mark.anyio
async def test_file_has_changed_once_it_is_another_and_at_rest(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "m.gguf"
    file = ModelFile(EngineConfig(kind="embedded", model=path))
    before = await file.stamp()
    assert before == (None,)

    def grow() -> None:
        with path.open("ab") as data:
            data.write(WHOLE[:100])

    pauses = looks(monkeypatch, bool, grow, grow, bool)
    await file.until_changed(before)
    assert pauses == [1.0] * 4
    # What has come and gone again is as it was.
    now = await file.stamp()
    pauses = looks(monkeypatch, path.unlink, bool)
    await file.until_changed(now)
    assert len(pauses) == 2
    assert await file.stamp() == before


@pytest.mark.anyio
async def test_file_that_is_watched_is_the_configured_one_or_the_packaged(tmp_path: Path, monkeypatch) -> None:
    own = written(tmp_path, b"x")
    file = ModelFile(EngineConfig(kind="embedded", model=own))
    assert await file.stamp() == model_stamp(own)
    assert file.fault() == model_fault(own)

    packaged = ModelFile(EngineConfig(kind="embedded"))
    assert await packaged.stamp() == model_stamp(packaged_model())
    assert packaged.fault() is None
    elsewhere = ModelFile(EngineConfig(kind="url", url="http://127.0.0.1:9", model=own))
    assert (await elsewhere.stamp(), elsewhere.fault()) == ((), None)

    def none() -> Path:
        raise ConfigError("there is no model")

    monkeypatch.setattr("gateway.engine.embedded.model_file.packaged_model", none)
    assert (await packaged.stamp(), packaged.fault()) == ((), None)
