"""A manifest is read in both dialects or refused with the first thing that is wrong, from bytes, files and folders."""

import json
import os
from importlib.resources import files
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from leaf_sdk import Manifest, ModelBinding, load_cache, load_manifest, load_manifests, precache
from leaf_sdk.errors import FragmentCacheInvalid, ManifestInvalid
from leaf_sdk.leaf.bolt_on import parse_manifest
from leaf_sdk.testing import tiny_map
from tests.cases import each_of

HASH = "ab" * 32
GOOD = {
    "schema": "1",
    "name": "get_time",
    "version": "1.0.0",
    "description": "Tell the time",
    "argumentsSchema": {"type": "object", "required": ["zone"]},
    "models": [{"modelId": "org/model", "tokenizerHash": HASH, "cacheFile": "caches/model.json"}],
    "homepage": "https://example.org",
}
ENGINE = {"name": "get_time", "endpoint": "http://127.0.0.1:8300/codec/tool/v1/call", "tokenizerHash": HASH}
SCHEMA = Draft202012Validator(
    json.loads(files("leaf_sdk.leaf.bolt_on").joinpath("manifest.schema.json").read_text(encoding="utf-8"))
)


def _bytes(fields):
    return json.dumps(fields).encode()


def _without(key):
    return {name: value for name, value in GOOD.items() if name != key}


def _model(**changed):
    return GOOD | {"models": [GOOD["models"][0] | changed]}


def test_the_tool_kits_dialect_is_read_and_written_back():
    manifest = load_manifest(_bytes(GOOD))
    assert manifest == Manifest(
        name="get_time",
        version="1.0.0",
        description="Tell the time",
        arguments_schema=GOOD["argumentsSchema"],
        models=(ModelBinding("org/model", HASH, "caches/model.json"),),
        homepage="https://example.org",
    )
    assert json.loads(manifest.to_json()) == GOOD


def test_the_engines_dialect_is_read():
    manifest = load_manifest(_bytes(ENGINE))
    assert manifest.endpoint == ENGINE["endpoint"]
    assert manifest.models == (ModelBinding("", HASH),)
    assert manifest.arguments_schema == {"type": "object"}


def test_a_manifest_with_an_endpoint_says_both_dialects():
    both = load_manifest(_bytes(GOOD | {"endpoint": "unix:/run/time.sock"}))
    fields = both.to_fields()
    assert (fields["tokenizerHash"], fields["endpoint"], fields["schema"]) == (HASH, "unix:/run/time.sock", "1")
    assert load_manifest(both.to_json().encode()) == both


@pytest.mark.parametrize("spelled", [HASH.upper(), f"sha256:{HASH}"])
def test_a_hash_is_read_in_any_spelling_and_written_in_one(spelled):
    manifest = load_manifest(_bytes(_model(tokenizerHash=spelled)))
    assert manifest.models[0].tokenizer_hash == HASH


def test_a_binding_is_found_by_exactly_its_model_or_by_any_spelling_of_its_hash():
    manifest = load_manifest(_bytes(GOOD))
    binding = manifest.models[0]
    assert manifest.binding_for_model("org/model") is binding
    assert manifest.binding_for_model("ORG/model") is None
    assert manifest.binding_for_hashes(["sha256:" + "0" * 64, f"sha256:{HASH.upper()}"]) is binding
    assert manifest.binding_for_hashes(["latest", "0" * 64]) is None


WRONG = {
    "schema": GOOD | {"schema": "2"},
    "schema missing": _without("schema"),
    "name": _without("name"),
    "name empty": GOOD | {"name": ""},
    "version": GOOD | {"version": 1},
    "description": _without("description"),
    "argumentsSchema": GOOD | {"argumentsSchema": []},
    "models": GOOD | {"models": []},
    "models missing": _without("models"),
    "models[0]": GOOD | {"models": ["x"]},
    "models[0].modelId": _model(modelId=""),
    "models[0].tokenizerHash": _model(tokenizerHash="xyz"),
    "models[0].tokenizerHash missing": _model(tokenizerHash=None),
    "models[0].cacheFile": _model(cacheFile=""),
    "homepage": GOOD | {"homepage": 1},
    "endpoint": GOOD | {"endpoint": 1},
    "tokenizerHash": {"name": "x", "endpoint": "http://x"},
}


@each_of("wrong", WRONG)
def test_the_first_wrong_field_is_named(wrong):
    with pytest.raises(ManifestInvalid) as raised:
        parse_manifest(_bytes(WRONG[wrong]), source="tool.json")
    assert wrong.split(" ")[0] in raised.value.message
    assert raised.value.source == "tool.json"


@pytest.mark.parametrize("fields", [GOOD, ENGINE, GOOD | {"endpoint": "x"}, _model(tokenizerHash=f"sha256:{HASH}")])
def test_the_json_schema_takes_what_is_read(fields):
    assert SCHEMA.is_valid(fields)


@each_of("wrong", WRONG)
def test_the_json_schema_refuses_what_is_refused(wrong):
    assert not SCHEMA.is_valid(WRONG[wrong])


def test_what_is_written_fits_the_json_schema():
    SCHEMA.validate(load_manifest(_bytes(GOOD | {"endpoint": "unix:/x"})).to_fields())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"7", b"[" * 100_000, b" " * (2**20 + 1)])
def test_what_is_no_manifest_is_refused(data):
    with pytest.raises(ManifestInvalid):
        load_manifest(data)


@given(
    st.recursive(
        st.none() | st.booleans() | st.text() | st.integers(), lambda x: st.lists(x) | st.dictionaries(st.text(), x)
    )
)
def test_any_json_is_a_manifest_or_our_error(value):
    fields = GOOD | value if isinstance(value, dict) else value
    try:
        load_manifest(_bytes(fields))
    except ManifestInvalid:
        assert not (isinstance(fields, dict) and SCHEMA.is_valid(fields))


@pytest.fixture
def folder(tmp_path):
    tool = tmp_path / "tools"
    (tool / "caches").mkdir(parents=True)
    cache = precache({"t": "hello {x}"}, tiny_map())
    (tool / "manifest.json").write_bytes(_bytes(_model(tokenizerHash=cache.tokenizer_hash)))
    (tool / "caches" / "model.json").write_text(cache.to_json())
    return tool


def test_a_manifest_is_found_in_its_folder_with_its_cache(folder):
    for source in (folder, str(folder), folder / "manifest.json"):
        manifest = load_manifest(source)
        assert manifest.folder == folder
        assert load_cache(manifest, manifest.models[0]) == precache({"t": "hello {x}"}, tiny_map())


@pytest.mark.parametrize(
    "cache_file", ["../secret.json", "/etc/passwd", "a/../../secret.json", "missing.json", "caches"]
)
def test_a_cache_outside_the_folder_or_missing_is_refused(folder, cache_file):
    (folder.parent / "secret.json").write_text("{}")
    (folder / "manifest.json").write_bytes(_bytes(_model(cacheFile=cache_file)))
    manifest = load_manifest(folder)
    with pytest.raises(FragmentCacheInvalid, match="cache"):
        load_cache(manifest, manifest.models[0])


def test_a_link_out_of_the_folder_is_not_followed(folder):
    secret = folder.parent / "secret.json"
    secret.write_bytes(_bytes(GOOD | {"description": "secret"}))
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to(secret)
    with pytest.raises(ManifestInvalid, match="outside its folder") as raised:
        load_manifest(folder)
    assert "Tell" not in raised.value.message


def test_a_cache_behind_a_link_out_of_the_folder_is_not_read(folder):
    outside = folder.parent / "outside"
    (folder / "caches").rename(outside)
    (folder / "caches").symlink_to(outside)
    manifest = load_manifest(folder)
    with pytest.raises(FragmentCacheInvalid, match="outside its folder"):
        load_cache(manifest, manifest.models[0])


def test_a_link_within_the_folder_is_followed(folder):
    (folder / "manifest.json").rename(folder / "real.json")
    (folder / "manifest.json").symlink_to("real.json")
    assert load_manifest(folder).name == "get_time"


def test_a_pipe_in_the_place_of_a_manifest_is_refused_and_not_waited_for(folder):
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    with pytest.raises(ManifestInvalid, match="not a regular file"):
        load_manifest(folder)


def test_a_cache_of_another_tokenizer_than_the_manifest_says_is_refused(folder):
    (folder / "manifest.json").write_bytes(_bytes(GOOD))
    manifest = load_manifest(folder)
    with pytest.raises(FragmentCacheInvalid, match=HASH):
        load_cache(manifest, manifest.models[0])


def test_a_manifest_from_bytes_has_no_caches():
    manifest = load_manifest(_bytes(GOOD))
    with pytest.raises(FragmentCacheInvalid, match="no cache file"):
        load_cache(manifest, manifest.models[0])


def test_a_folder_of_manifests_gives_the_good_ones_and_the_errors(tmp_path):
    (tmp_path / "b.json").write_bytes(_bytes(GOOD | {"name": "b"}))
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "cache.json").write_text(precache({"t": "x"}, tiny_map()).to_json())
    (tmp_path / "notes.txt").write_text("not looked at")
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "manifest.json").write_bytes(_bytes(GOOD | {"name": "a"}))
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    (outside / "manifest.json").write_bytes(_bytes(GOOD | {"name": "stranger"}))
    (tmp_path / "link").symlink_to(outside)
    manifests, errors = load_manifests(tmp_path)
    assert [manifest.name for manifest in manifests] == ["b", "a"]
    assert ["/".join(Path(error.source).parts[-2:]) for error in errors] == [
        f"{tmp_path.name}/bad.json",
        "link/manifest.json",
    ]


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(ManifestInvalid, match="can't be read"):
        load_manifests(tmp_path / "none")
    with pytest.raises(ManifestInvalid, match="can't be read"):
        load_manifest(tmp_path / "none.json")


@each_of(
    ("name", "properties", "expected"),
    [
        ("say", {}, True),
        ("say", {"arguments": {}}, True),
        ("up__say", {"text": {}}, True),
        ("up__say", {}, False),
        ("up__say", {"text": {}, "arguments": {}}, False),
        ("up__say", {"parameters": {}}, False),
        ("up__say", {"name": {}}, False),
        ("up__say", None, False),
        (7, {"text": {}}, False),
        (None, {"text": {}}, False),
    ],
)
def test_an_object_is_a_whole_call_under_any_name_that_the_arguments_can_not_have(name, properties, expected):
    schema = {"type": "object"} if properties is None else {"type": "object", "properties": properties}
    manifest = Manifest("say", "1", "", schema, (ModelBinding("org/m", "ab" * 32),))
    assert manifest.reads_as_call(name) is expected
