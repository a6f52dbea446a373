"""A map is proven against the real engine: the model's own passes, any other is refused with what differs."""

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.start.maps import BATTERY, noted_specials, prepared_map, proven_map, with_all_specials
from gateway.engine.start.readiness import EngineRoute
from gateway.engine.wire.llama_cpp_client import LlamaCpp, LlamaCppQuestions
from gateway.errors import MapDiffers
from gateway.observe.logs import TokenNotices, get_logger
from gateway.observe.metrics import Metrics
from gateway.proxy.result_tokens import ResultTokens
from leaf_sdk.leaf.contract import CODEC_META_KEY
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import TokenMap, encoding, load_map, token_map
from tests.vocabularies import template_server, vocabulary_model

ROOT = Path(__file__).parents[3]
TEMPLATE = ROOT / "tests" / "third_party" / "chat_templates" / "Qwen3-Coder.jinja"

pytestmark = [pytest.mark.anyio, pytest.mark.engine]


@pytest.fixture
async def engine(engine_url: str) -> AsyncIterator[LlamaCpp]:
    client = LlamaCpp(engine_url)
    yield client
    await client.aclose()


def changed(model_map_bytes: bytes, change: Callable[[dict[str, Any]], object]) -> TokenMap:
    fields = json.loads(model_map_bytes)
    change(fields)
    return load_map(json.dumps(fields).encode())


def swap(fields: dict[str, Any], one: str, other: str) -> None:
    vocab = fields["vocab"]
    vocab[one], vocab[other] = vocab[other], vocab[one]


async def test_map_of_the_model_itself_is_proven(engine, model_map):
    await proven_map(engine, await engine.facts(), prepared_map(model_map))


async def test_published_map_with_names_of_roles_is_proven_too(engine, model_map_bytes):
    with_roles = changed(model_map_bytes, lambda f: f["special_tokens"].update({"eos": 2, "bos": 1, "pad": 2}))

    await proven_map(engine, await engine.facts(), prepared_map(with_roles))


@pytest.mark.parametrize(("one", "other"), [("Hello", "line"), ("1", "2"), ("Ã¼", "Ã©"), ("Ċ", "ĉ")])
async def test_swapped_words_are_found_and_shown_with_both_id_lists(engine, model_map_bytes, model_map, one, other):
    swapped = changed(model_map_bytes, lambda fields: swap(fields, one, other))
    with pytest.raises(MapDiffers) as differs:
        await proven_map(engine, await engine.facts(), prepared_map(swapped))

    error = differs.value
    assert error.sample in BATTERY
    assert error.engine_ids == model_map.encode(error.sample)
    assert error.map_ids == swapped.encode(error.sample) != error.engine_ids
    for shown in (repr(error.sample), str(error.map_ids), str(error.engine_ids), swapped.map_id):
        assert shown in error.message


async def test_nothing_is_built_while_the_engine_waits_for_the_next_question(
    engine_url, model_map_bytes, tmp_path, monkeypatch
):
    (path := tmp_path / "map.json").write_bytes(
        json.dumps(json.loads(model_map_bytes) | {"special_tokens": {}}).encode()
    )
    happened: list[str] = []
    build, ask = encoding.byte_level_encoder, LlamaCppQuestions.tokenize

    def building(*given: Any, **more: Any) -> Any:
        happened.append("built")
        return build(*given, **more)

    async def asking(self: LlamaCppQuestions, text: str, *, specials: bool) -> list[int]:
        happened.append("asked")
        return await ask(self, text, specials=specials)

    monkeypatch.setattr(token_map, "byte_level_encoder", building)
    monkeypatch.setattr(LlamaCppQuestions, "tokenize", asking)
    config = GatewayConfig(engine=EngineConfig(kind="url", url=engine_url), tokens=TokensConfig(map=str(path)))
    route = EngineRoute(config, lambda up, reason: None)
    async with route.running():
        assert route.maps.left_out

    assert [key for key, _ in groupby(happened)][:3] == ["built", "asked", "built"]
    # That of the map with the control tokens that were found, once the proof is over.
    assert happened.count("built") == 2


async def test_other_cut_of_the_text_is_found(engine, model_map_bytes):
    def without_a_merge(fields: dict[str, Any]) -> None:
        fields["merges"] = [merge for merge in fields["merges"] if merge != "Ġ t"]

    with pytest.raises(MapDiffers):
        await proven_map(engine, await engine.facts(), prepared_map(changed(model_map_bytes, without_a_merge)))


async def test_swapped_markers_are_found(engine, model_map_bytes):
    def swapped(fields: dict[str, Any]) -> None:
        swap(fields, "<|im_start|>", "<|im_end|>")
        specials = fields["special_tokens"]
        specials["<|im_start|>"], specials["<|im_end|>"] = specials["<|im_end|>"], specials["<|im_start|>"]

    with pytest.raises(MapDiffers) as differs:
        await proven_map(engine, await engine.facts(), prepared_map(changed(model_map_bytes, swapped)))

    assert differs.value.sample == "<|im_end|>"
    assert (differs.value.map_ids, differs.value.engine_ids) == ([1], [2])


async def test_map_with_more_ids_than_the_engine_has_is_refused_by_size(engine, model_map):
    facts = replace(await engine.facts(), vocabulary=len(model_map) - 1)
    with pytest.raises(MapDiffers, match="vocabulary"):
        await proven_map(engine, facts, prepared_map(model_map))


async def test_map_of_another_model_is_refused(engine):
    with pytest.raises(MapDiffers):
        await proven_map(engine, await engine.facts(), prepared_map(tiny_map()))


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    def leave_out(fields: dict[str, Any]) -> None:
        for name in names:
            del fields["special_tokens"][name]

    return leave_out


async def test_map_that_lists_every_control_token_stays_as_it_is(engine, model_map):
    assert await with_all_specials(engine, prepared_map(model_map)) is model_map


async def test_control_token_that_the_map_leaves_out_counts_as_special_whatever_the_map_says(engine, model_map_bytes):
    poorer = changed(model_map_bytes, without("<repo_name>", "<filename>"))
    assert 3 not in poorer.special_ids

    whole = await with_all_specials(engine, prepared_map(poorer))

    assert {3, 6} <= whole.special_ids
    assert whole.special_texts["<repo_name>"] == 3
    assert whole.encode("<repo_name>", specials=True) == [3]
    assert 3 not in whole.encode("<repo_name>")
    assert whole.map_id == poorer.map_id


@pytest.mark.parametrize("left_out", [("<repo_name>", "<filename>"), ("<repo_name>",)])
async def test_map_is_proven_with_the_encoder_that_was_built_for_what_was_found_before(
    engine, model_map_bytes, left_out
):
    poorer = changed(model_map_bytes, without(*left_out))
    before = {"<repo_name>": 3}
    prepared = prepared_map(poorer, before)

    whole = await proven_map(engine, await engine.facts(), prepared)

    assert (whole is prepared.expected) == (left_out == ("<repo_name>",))
    assert {3, 6} <= whole.special_ids
    assert 3 not in whole.encode("<repo_name>")


async def test_token_that_is_no_control_token_any_more_is_text_again(engine, model_map):
    """Notes of another engine, or of nobody: what the engine says now counts."""
    usual = next((t, i) for t, i in prepared_map(model_map).candidates.items())
    prepared = prepared_map(model_map, {usual[0]: usual[1], "no token": 5, "<|im_end|>": 7})

    assert prepared.expected.special_tokens == {**model_map.special_tokens, usual[0]: usual[1]}
    assert await proven_map(engine, await engine.facts(), prepared) is model_map


async def test_start_finds_the_control_tokens_of_the_last_one(engine_url, model_map_bytes, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "map.json"
    fields = json.loads(model_map_bytes)
    without("<repo_name>")(fields)
    path.write_bytes(json.dumps(fields).encode())
    config = GatewayConfig(engine=EngineConfig(kind="url", url=engine_url), tokens=TokensConfig(map=str(path)))
    map_id = load_map(path.read_bytes()).map_id
    for noted in ({}, {"<repo_name>": 3}):
        assert noted_specials(map_id) == noted
        route = EngineRoute(config, lambda up, reason: None)
        async with route.running():
            assert 3 in route.ready().token_map.special_ids
            assert route.maps.left_out == {map_id: ["<repo_name>"]}
    (note,) = (tmp_path / "codec-leaf/published").iterdir()
    note.write_bytes(b'{"<repo_name>": "x"')
    assert noted_specials(map_id) == {}


async def test_every_control_token_of_the_model_is_found_in_few_requests_where_the_map_has_none(
    engine, model_map_bytes, model_map
):
    bare = changed(model_map_bytes, lambda fields: fields["special_tokens"].clear())
    asked: list[object] = []

    class Counted:
        async def tokenize(self, text: str, *, specials: bool) -> list[int]:
            asked.append(text)
            return await engine.tokenize(text, specials=specials)

        async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
            asked.append(texts)
            return await engine.tokenize_each(texts, specials=specials)

    whole = await with_all_specials(Counted(), prepared_map(bare))

    assert whole.special_ids == model_map.special_ids
    assert len(asked) < 5


async def test_control_token_that_a_merge_of_the_map_makes_is_found_too(engine, model_map_bytes):
    """Then the map's own encoder reaches it from ordinary text, and the engine does not."""

    def reachable(fields: dict[str, Any]) -> None:
        del fields["special_tokens"]["<empty_output>"]
        fields["vocab"] |= {"<empty": 49_998, "_output>": 49_999}
        fields["merges"].append("<empty _output>")

    wrong = changed(model_map_bytes, reachable)
    assert 16 not in wrong.special_ids

    whole = await with_all_specials(engine, prepared_map(wrong))

    assert 16 in whole.special_ids
    assert 16 not in whole.encode("<empty_output>")


async def test_leaf_ids_of_a_control_token_that_the_map_leaves_out_are_refused(engine_url, model_map_bytes, tmp_path):
    fields = json.loads(model_map_bytes)
    without("<repo_name>")(fields)
    path = tmp_path / "map.json"
    path.write_bytes(json.dumps(fields).encode())
    poorer = load_map(path.read_bytes())
    config = GatewayConfig(engine=EngineConfig(kind="url", url=engine_url), tokens=TokensConfig(map=str(path)))
    route = EngineRoute(config, lambda up, reason: None)
    tokens = ResultTokens(
        route.maps.accepted, level="verify", metrics=Metrics(), notices=TokenNotices(get_logger("test.tokens"))
    )
    async with route.running():
        assert route.ready().token_map.map_id == poorer.map_id
        assert 3 in route.ready().token_map.special_ids
        assert route.maps.accepted[poorer.map_id] is route.maps.session is route.ready().token_map
        meta = {CODEC_META_KEY: {"map_id": poorer.map_id, "ids": [3, 3]}}
        result = {"content": [{"type": "text", "text": "<repo_name>" * 2, "_meta": meta}]}
        (made,) = tokens.for_engine("tool", result, route.ready().token_map).pieces
    assert (made.source, 3 in made.ids) == ("shim", False)


@pytest.fixture(scope="module")
def gemma_like(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A vocabulary with 300 added tokens that are text, among them `</s>`, which llama.cpp makes a control token."""
    plain = [blank * n for blank in ("\n", "\t") for n in range(2, 152)][:299]
    added = ["</s>", *plain, "<bos>", "<eos>"]
    path = tmp_path_factory.mktemp("gemma") / "gemma-like.gguf"
    path.write_bytes(vocabulary_model(added, [4] * 300 + [3] * 2, "<bos>", "<eos>"))
    return path


@pytest.fixture(scope="module")
def gemma_like_url(gemma_like: Path) -> Iterator[str]:
    with template_server(gemma_like) as serve:
        yield serve(TEMPLATE)


async def test_map_with_many_added_tokens_and_one_that_the_engine_makes_control_is_proven(
    gemma_like: Path, gemma_like_url: str
):
    engine = EngineConfig(kind="url", url=gemma_like_url)
    route = EngineRoute(GatewayConfig(engine=engine, tokens=TokensConfig(map=str(gemma_like))), lambda up, reason: None)
    async with route.running():
        proven = route.ready().token_map

    assert route.maps.left_out[proven.map_id] == ["</s>"]
    assert "\n\n" not in proven.special_texts


async def test_texts_of_one_request_are_tokenized_as_each_is_alone(engine):
    texts = ["", "Hello", " world", "<|im_end|>", "-1", "é\n", ""]
    for specials in (False, True):
        alone = [await engine.tokenize(text, specials=specials) for text in texts]
        assert await engine.tokenize_each(texts, specials=specials) == alone


async def test_server_that_passes_no_numbers_through_is_asked_text_by_text():
    async def ask(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        content: Any = json.loads(body)["content"]
        texts = [each for each in content if isinstance(each, str)] if isinstance(content, list) else [content]
        return 200, json.dumps({"tokens": [ord(sign) for text in texts for sign in text]}).encode()

    questions = LlamaCppQuestions("http://127.0.0.1", ask)
    assert await questions.tokenize_each(["a", "bc", ""], specials=False) == [[97], [98, 99], []]
