"""A tool as its author writes it becomes a folder that is whole, or nothing; and opens only while both agree."""

from dataclasses import replace

import pytest

from leaf_sdk import ModelMap, ToolSource, build_tool, fill, load_cache, load_manifest, open_tools, write_build
from leaf_sdk.errors import BoltOnError, FragmentCacheInvalid, ManifestInvalid, SeamUnsafe
from leaf_sdk.leaf.bolt_on import Manifest, ModelBinding, precache, texts_of
from leaf_sdk.testing import tiny_map, tiny_map_bytes

TINY = tiny_map()
HASH = TINY.map_id.removeprefix("sha256:")


def _model(model_id="org/tiny", token_map=TINY) -> ModelMap:
    return ModelMap(model_id, token_map, token_map.map_id.removeprefix("sha256:"))


@pytest.fixture
def source(tmp_path) -> ToolSource:
    return ToolSource(
        name="greet",
        version="1.2.3",
        description="Greet somebody",
        arguments_schema={"type": "object"},
        texts={"greeting": "hello {name}."},
        function=lambda arguments: fill("greeting", name=arguments.get("name", "world")),
        folder=tmp_path / "greet",
    )


@pytest.fixture
def map_path(tmp_path):
    path = tmp_path / "map.json"
    path.write_bytes(tiny_map_bytes())
    return path


def _built(source, *models):
    build = build_tool(source.manifest(), source.texts, models or [_model()])
    write_build(build, source.folder)
    return build


def test_a_built_tool_opens_and_answers_in_the_ids_of_its_text(source, map_path):
    _built(source)
    (tool,) = open_tools([source], [map_path])
    assert tool.ids(tool.function({"name": "the world"}), tool.models["org/tiny"]) == TINY.encode("hello the world.")
    assert load_manifest(source.folder).version == "1.2.3"


def test_building_writes_nothing_by_itself(source):
    build = build_tool(source.manifest(), source.texts, [_model()])
    assert not source.folder.exists()
    assert list(build.caches) == ["caches/tiny.json"]


def test_a_tool_that_was_not_built_says_what_to_run(source, map_path):
    with pytest.raises(ManifestInvalid, match="codec-leaf precache"):
        open_tools([source], [map_path])


def test_a_tool_whose_texts_changed_since_does_not_open(source, map_path):
    _built(source)
    with pytest.raises(FragmentCacheInvalid, match="other texts"):
        open_tools([replace(source, texts={"greeting": "hello, {name}."})], [map_path])


def test_a_second_model_joins_the_first(source, golden_map):
    _built(source)
    build = _built(source, _model("org/golden", golden_map))
    assert [binding.model_id for binding in load_manifest(source.folder).models] == ["org/tiny", "org/golden"]
    assert build.dropped == ()
    manifest = load_manifest(source.folder)
    assert load_cache(manifest, manifest.models[0]) == precache(source.texts, TINY)


def test_a_model_whose_ids_are_of_other_texts_is_dropped_and_named(source, golden_map):
    _built(source)
    build = _built(replace(source, texts={"greeting": "hi {name}"}), _model("org/golden", golden_map))
    assert build.dropped == ("org/tiny",)
    assert [binding.model_id for binding in load_manifest(source.folder).models] == ["org/golden"]


def test_a_model_that_is_built_again_keeps_its_file(source):
    _built(source)
    manifest = source.manifest()
    (source.folder / "caches" / "tiny.json").rename(source.folder / "mine.json")
    renamed = replace(manifest, models=(ModelBinding("org/tiny", HASH, "mine.json"),))
    assert list(build_tool(renamed, source.texts, [_model()]).caches) == ["mine.json"]


def test_models_that_share_their_last_word_get_files_of_their_own(source, golden_map):
    build = _built(source, _model("a/chat"), _model("b/chat", golden_map))
    assert list(build.caches) == ["caches/chat.json", "caches/b-chat.json"]


@pytest.mark.parametrize("model_id", ["../../x", "/etc/passwd", "..", "a b\n", "日本"])
def test_a_models_name_never_leads_out_of_the_folder(source, model_id):
    build = _built(source, _model(model_id))
    (name,) = build.caches
    assert name.startswith("caches/")
    assert ".." not in name.split("/")
    assert load_cache(load_manifest(source.folder), load_manifest(source.folder).models[0])


def test_an_unsafe_seam_refuses_the_build_with_its_example(source):
    class Contrary:
        """A map whose whole texts have other ids than anything put together."""

        def __getattr__(self, name):
            return getattr(TINY, name)

        def encode(self, text):
            return [1, *TINY.encode(text)] if "hello" in text and text.endswith(".") else TINY.encode(text)

    with pytest.raises(SeamUnsafe) as raised:
        build_tool(source.manifest(), source.texts, [ModelMap("m", Contrary(), HASH)])
    assert raised.value.example.startswith("hello ")
    assert not source.folder.exists()


def test_texts_come_back_from_a_cache_of_ours(source):
    _built(source)
    assert texts_of(load_manifest(source.folder)) == source.texts


def test_texts_of_a_manifest_without_caches_are_asked_for():
    with pytest.raises(FragmentCacheInvalid, match="x_text"):
        texts_of(Manifest("greet", "1", "d", {}, (ModelBinding("m", HASH),)))


def test_a_folder_that_can_not_be_written_is_named(source, tmp_path):
    (tmp_path / "greet").write_text("in the way")
    with pytest.raises(BoltOnError, match="can't be written"):
        write_build(build_tool(Manifest("greet", "1", "d", {}, ()), source.texts, [_model()]), source.folder)
