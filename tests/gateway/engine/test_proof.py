"""A map is proven against a tokenizer that is scripted: by another map, or by answers that no map gives."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config import EngineConfig, GatewayConfig, TokensConfig
from gateway.engine.interface import Capabilities, EngineFacts
from gateway.engine.start.maps import (
    BATTERY,
    MapProofs,
    MapSet,
    has_no_model,
    map_file,
    note_specials,
    noted_specials,
    prepared_map,
    proven_map,
    resolve_maps,
    with_all_specials,
)
from gateway.errors import ConfigError, EngineUnavailable, MapDiffers
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.testing.gguf import gguf_model
from leaf_sdk.vocab import TokenMap, load_map

pytestmark = pytest.mark.anyio

TINY = tiny_map()
FACTS = EngineFacts("model", None, "", False, None, 4096, 2, ())


def changed(change: Callable[[dict[str, Any]], object]) -> bytes:
    fields = json.loads(tiny_map_bytes())
    change(fields)
    return json.dumps(fields).encode()


def with_tokens(*, special: Sequence[str] = (), plain: Sequence[str] = (), merges: Sequence[str] = ()) -> TokenMap:
    """The tiny map and more entries, numbered from 304 on in the order of their names."""

    def add(fields: dict[str, Any]) -> None:
        ids = {token: 304 + place for place, token in enumerate(sorted({*special, *plain}))}
        fields["vocab"] |= ids
        fields["special_tokens"] |= {token: ids[token] for token in special}
        fields["merges"] += merges

    return load_map(changed(add))


def swapped(one: str, other: str) -> TokenMap:
    def swap(fields: dict[str, Any]) -> None:
        vocab, specials = fields["vocab"], fields["special_tokens"]
        vocab[one], vocab[other] = vocab[other], vocab[one]
        specials |= {token: vocab[token] for token in (one, other) if token in specials}

    return load_map(changed(swap))


@dataclass
class Tokens:
    """Tokenizes as a map says; notes what it is asked."""

    token_map: TokenMap
    answers: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """By text: what it says otherwise."""
    reads_specials: bool = False
    """Whether it can't leave them off."""
    told: EngineFacts = FACTS
    asked: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])

    async def facts(self) -> EngineFacts:
        return self.told

    async def tokenize(self, text: str, *, specials: bool) -> list[int]:
        self.asked.append((text,))
        return self._ids(text, specials=specials)

    async def tokenize_each(self, texts: Sequence[str], *, specials: bool) -> list[list[int]]:
        self.asked.append(tuple(texts))
        return [self._ids(text, specials=specials) for text in texts]

    def _ids(self, text: str, *, specials: bool) -> list[int]:
        if text in self.answers:
            return self.answers[text]
        return self.token_map.encode(text, specials=specials or self.reads_specials)


async def test_map_of_the_same_tokenizer_is_proven_in_few_questions() -> None:
    engine = Tokens(TINY)

    assert await proven_map(engine, FACTS, prepared_map(TINY)) is TINY
    assert engine.asked == [("<|im_start|><|im_end|><tool_call></tool_call>",), engine.asked[1]]
    # A string that spells a marker says nothing: engines find it in any text.
    assert {*engine.asked[1]} == {sample for sample in BATTERY if "<tool_call>" not in sample}


@pytest.mark.parametrize(("one", "other"), [("1", "2"), ("h", "e")])
async def test_words_that_have_changed_places_are_shown_with_both_id_lists(one: str, other: str) -> None:
    ours = swapped(one, other)
    with pytest.raises(MapDiffers) as raised:
        await proven_map(Tokens(TINY), FACTS, prepared_map(ours))

    differs = raised.value
    assert differs.sample in BATTERY
    assert (differs.map_ids, differs.engine_ids) == (ours.encode(differs.sample), TINY.encode(differs.sample))
    for shown in ("'codec-test/tiny'", ours.map_id, "'model'", repr(differs.sample), str(differs.map_ids)):
        assert shown in differs.message


async def test_markers_that_have_changed_places_are_named() -> None:
    with pytest.raises(MapDiffers) as raised:
        await proven_map(Tokens(TINY), FACTS, prepared_map(swapped("<|im_start|>", "<|im_end|>")))

    assert (raised.value.sample, raised.value.map_ids, raised.value.engine_ids) == ("<|im_end|>", [300], [301])


@pytest.mark.parametrize(
    ("vocabulary", "fits"), [(None, True), (1000, True), (len(TINY), True), (len(TINY) - 1, False)]
)
async def test_engine_that_has_fewer_ids_than_the_map_is_another(vocabulary: int | None, *, fits: bool) -> None:
    facts = replace(FACTS, vocabulary=vocabulary)
    if fits:
        await proven_map(Tokens(TINY), facts, prepared_map(TINY))
        return
    with pytest.raises(MapDiffers, match="vocabulary of 272 ids") as raised:
        await proven_map(Tokens(TINY), facts, prepared_map(TINY))
    assert (raised.value.map_ids, raised.value.engine_ids) == ([272], [271])


@pytest.mark.parametrize("plain", [True, False])
async def test_control_token_that_the_map_leaves_out_is_found_and_text_is_not(*, plain: bool) -> None:
    ours, theirs = with_tokens(plain=["<a>", "<b>"]), with_tokens(special=["<a>"], plain=["<b>"])
    facts = replace(FACTS, can=Capabilities(plain_tokenize=plain))
    whole = await proven_map(Tokens(theirs, reads_specials=not plain), facts, prepared_map(ours))

    assert whole.special_tokens == {**TINY.special_tokens, "<a>": 304}
    assert (whole.map_id, whole.encode("<a>", specials=True)) == (ours.map_id, [304])


@pytest.mark.parametrize("plain", [True, False])
async def test_token_that_a_merge_makes_is_text_though_it_looks_like_a_marker(*, plain: bool) -> None:
    made = with_tokens(plain=["<~", "<~>"], merges=["< ~", "<~ >"])
    assert made.encode("<~>") == [305]
    engine = Tokens(made, reads_specials=not plain)

    assert await with_all_specials(engine, prepared_map(made), plain=plain) is made
    # Only what could be a marker is asked for.
    assert engine.asked[0] == ("<~>",)


async def test_token_that_a_merge_makes_and_the_engine_controls_is_found_by_its_neighbours() -> None:
    # Next to "<" the merges make another token of it, the engine that reads it as a marker does not.
    merges = ["< <", "< ~", "<~ >"]
    ours = with_tokens(plain=["<<", "<~", "<~>"], merges=merges)
    theirs = with_tokens(plain=["<<", "<~"], special=["<~>"], merges=merges)
    whole = await with_all_specials(Tokens(theirs, reads_specials=True), prepared_map(ours), plain=False)

    assert whole.special_texts["<~>"] == 306


async def test_candidates_that_disagree_together_are_asked_for_alone() -> None:
    ours = with_tokens(plain=["<a>", "<b>"])
    engine = Tokens(with_tokens(special=["<a>"], plain=["<b>"]), answers={"<a>\n<b>": [304, 305], "<a><b>": [304, 9]})
    whole = await with_all_specials(engine, prepared_map(ours))

    assert whole.special_tokens == {**TINY.special_tokens, "<a>": 304}
    assert ("<a>", "<b>") in engine.asked


async def test_engine_that_reaches_no_candidate_is_asked_once() -> None:
    ours = with_tokens(plain=["<a>"])
    engine = Tokens(ours)

    assert await with_all_specials(engine, prepared_map(ours)) is ours
    assert engine.asked == [("<a>",)]


async def test_expected_tokens_are_those_that_the_map_has_under_the_same_ids() -> None:
    ours = with_tokens(plain=["<a>", "<b>"])
    prepared = prepared_map(ours, {"<a>": 304, "<b>": 999, "none": 5})

    assert prepared.candidates == {"<a>": 304, "<b>": 305}
    assert prepared.expected.special_tokens == {**TINY.special_tokens, "<a>": 304}
    assert prepared_map(ours).expected is ours
    # The encoder that was built for it is used if the engine has the same tokens, and not otherwise.
    same, other = Tokens(with_tokens(special=["<a>"], plain=["<b>"])), Tokens(ours)
    assert await proven_map(same, FACTS, prepared) is prepared.expected
    assert await proven_map(other, FACTS, prepared) is ours


def test_entries_that_no_engine_controls_are_no_candidates() -> None:
    ours = with_tokens(plain=["<a>", "ab", "q", "<~", "<~>"], merges=["< ~", "<~ >"])

    assert {*prepared_map(ours).candidates} == {"<a>", "ab", "<~>"}


def proofs(path: Path | None, maps: MapSet, known: MapSet | None = None) -> MapProofs:
    source = TokensConfig(map="auto" if path is None else str(path))
    return MapProofs(maps, GatewayConfig(engine=EngineConfig(kind="url", url="http://e"), tokens=source), known)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


async def test_tokens_that_were_found_are_noted_and_expected_at_the_next_start(cache: Path, caplog) -> None:
    ours, engine = with_tokens(plain=["<a>", "<b>"]), Tokens(with_tokens(special=["<a>"], plain=["<b>"]))
    whole: list[TokenMap] = []
    for _ in range(2):
        maps = MapSet()
        maps.add(ours)
        proven = await proofs(None, maps).prove(engine)
        whole.append(proven.token_map)
        assert proven.facts is FACTS
        assert maps.session is maps.accepted[ours.map_id] is maps.by_hash[ours.map_id[7:]] is proven.token_map
        assert maps.left_out == {ours.map_id: ["<a>"]}
        assert noted_specials(ours.map_id) == {"<a>": 304}
    assert [each.special_tokens["<a>"] for each in whole] == [304, 304]
    assert "does not list some control tokens" in caplog.text


async def test_token_that_is_text_to_the_next_engine_is_noted_no_more(cache: Path) -> None:
    ours = with_tokens(plain=["<a>"])
    note_specials(ours.map_id, {"<a>": 304})
    maps = MapSet()
    maps.add(ours)

    assert (await proofs(None, maps).prove(Tokens(ours))).token_map is ours
    assert noted_specials(ours.map_id) == {}
    assert maps.left_out == {}


async def test_maps_are_prepared_once_and_anew_when_another_takes_the_place(cache: Path) -> None:
    maps = MapSet()
    maps.add(TINY)
    of_all = proofs(None, maps)
    (first,) = of_all.prepare()
    (again,) = of_all.prepare()
    assert again is first
    maps.replace(replace(TINY, special_tokens={**TINY.special_tokens, "hello": 258}))
    (other,) = of_all.prepare()
    assert other is not first
    maps.add(with_tokens(plain=["<a>"]))
    assert [each is other for each in of_all.prepare()] == [True, False]


async def test_map_is_opened_where_the_engine_names_its_model(cache: Path) -> None:
    path = cache / "tokenizer.json"
    path.write_bytes(tiny_map_bytes())
    maps = MapSet()
    proven = await proofs(None, maps).prove(Tokens(TINY, told=replace(FACTS, model_path=str(path))))

    assert proven.token_map is maps.session
    assert maps.files == {TINY.map_id: path}
    # One that is open already is taken.
    others = MapSet()
    assert (await proofs(None, others, maps).prove(Tokens(TINY, told=replace(FACTS, model_path=str(path))))) == proven
    assert others.session is maps.session


async def test_without_a_map_the_engine_can_not_be_used(cache: Path) -> None:
    config = GatewayConfig(engine=EngineConfig(kind="url", url="http://e"), tokens=TokensConfig(map=None))
    with pytest.raises(EngineUnavailable, match="the engine needs a token map"):
        await MapProofs(MapSet(), config, None).prove(Tokens(TINY))


def test_notes_that_are_no_notes_are_none(cache: Path) -> None:
    note_specials("sha256:0", {"<a>": 304})
    assert noted_specials("sha256:0") == {"<a>": 304}
    assert noted_specials("sha256:1") == {}
    (note,) = (path for path in (cache / "cache").rglob("*") if path.is_file())
    for broken in (b'{"<a>": "x"}', b"[]", b"{"):
        note.write_bytes(broken)
        assert noted_specials("sha256:0") == {}


def test_user_without_a_home_keeps_no_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError

    monkeypatch.setattr("gateway.engine.start.maps.default_cache", refuse)
    note_specials("sha256:0", {"<a>": 304})
    assert noted_specials("sha256:0") == {}


def test_first_map_is_the_session_s_and_each_is_known_by_its_hashes() -> None:
    maps, other = MapSet(), with_tokens(plain=["<a>"])
    maps.add(TINY, ["sha256:" + "1" * 64])
    maps.add(other)

    assert maps.session is TINY
    assert maps.by_hash == {TINY.map_id[7:]: TINY, "1" * 64: TINY, other.map_id[7:]: other}
    richer = replace(TINY, special_tokens={**TINY.special_tokens, "in": 265, "hell": 257})
    maps.replace(richer)
    assert maps.session is richer
    assert maps.accepted == {TINY.map_id: richer, other.map_id: other}
    assert maps.by_hash == {TINY.map_id[7:]: richer, "1" * 64: richer, other.map_id[7:]: other}
    assert maps.left_out == {TINY.map_id: ["hell", "in"]}
    maps.replace(replace(other, special_tokens={**other.special_tokens, "in": 265}))
    assert maps.session is richer


def test_set_takes_over_what_another_knows_and_nothing_that_knows_less(tmp_path: Path) -> None:
    richer = replace(TINY, special_tokens={**TINY.special_tokens, "in": 265})
    path = tmp_path / "map.json"
    more, less = MapSet(files={TINY.map_id: path}), MapSet()
    more.add(richer, ["1" * 64])
    less.add(TINY)
    assert more.of_file(path) is richer
    assert more.of_file(tmp_path) is less.of_file(path) is None

    more.update(less)
    assert more.accepted == {TINY.map_id: richer}
    less.update(more)
    assert less.accepted == {TINY.map_id: richer}
    assert less.session is richer
    assert less.by_hash == {TINY.map_id[7:]: richer, "1" * 64: richer}
    assert less.of_file(path) is richer
    # One that knows as much stays.
    other = MapSet()
    other.add(replace(TINY, special_tokens={**TINY.special_tokens, "in": 265}))
    less.update(other)
    assert less.session is richer


def test_bytes_of_an_accepted_map_are_read_again_and_only_if_they_are_the_same(cache: Path) -> None:
    path = cache / "map.json"
    path.write_bytes(tiny_map_bytes())
    maps = resolve_maps(GatewayConfig(tokens=TokensConfig(map=str(path))))
    assert map_file(maps, TINY.map_id) == tiny_map_bytes()

    path.write_bytes(changed(lambda fields: fields.update(published_at="2026")))
    with pytest.raises(ConfigError, match="its file now holds another map; restart the gateway"):
        map_file(maps, TINY.map_id)
    path.unlink()
    with pytest.raises(ConfigError, match=f"token map '{TINY.map_id}': its file can no longer be read"):
        map_file(maps, TINY.map_id)
    with pytest.raises(ConfigError, match="now holds another map"):
        map_file(maps, "sha256:0")


@pytest.mark.parametrize(
    ("tokens", "engine", "nothing"),
    [
        (TokensConfig(), EngineConfig(), True),
        (TokensConfig(map="m.json"), EngineConfig(), False),
        (TokensConfig(map=None), EngineConfig(), False),
        (TokensConfig(maps=(Path("m.json"),)), EngineConfig(), False),
        (TokensConfig(), EngineConfig(model=Path("m.gguf")), False),
        (TokensConfig(), EngineConfig(kind="embedded"), False),
    ],
)
def test_map_has_nowhere_to_come_from_without_an_engine_a_model_and_a_map(tokens, engine, *, nothing: bool) -> None:
    assert has_no_model(GatewayConfig(engine=engine, tokens=tokens)) is nothing


def test_files_that_are_too_large_are_not_known_by_their_hash(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = cache / "map.gguf"
    path.write_bytes(gguf_model({"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"]}))
    config, known = GatewayConfig(tokens=TokensConfig(map=str(path))), list[int]()
    size = path.stat().st_size
    for most in (size, size - 1):
        monkeypatch.setattr("gateway.engine.start.maps.MAX_BYTES", most)
        known.append(len(resolve_maps(config).by_hash))

    assert known == [2, 1]
