"""The page beside the reference says what the committed measurements say, and what it claims in words holds in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.mcp import answers
from bench.reference.__main__ import results as read_results
from bench.reference.page import page, scenes
from bench.reference.row import Row, Scene
from bench.wire import lengths
from gateway.engine.embedded.packaged_model import packaged_model
from leaf_sdk import TokenMap, open_map

PAGE = Path(__file__).parents[1] / "docs" / "reference-figures.md"
SCENES = {
    *(
        "Wire formats",
        "Shapes of frames",
        "Compressed synthetic streams",
        "A long answer, the best against JSON events",
    ),
    *(
        "Bytes a token of random ids",
        "Compression by the length of a random stream",
        "Ratios of each coding",
        "Dictionaries by the size of a stream",
    ),
    *("Where one coding overtakes another", "Timed runs", "Handing 1,024 tokens to another agent"),
    *(
        "A tool call in one turn",
        "An agent's loop of two turns",
        "The watcher of tool calls",
        "A list of tools over MCP",
    ),
    *("Small MCP calls", "A leaf against tokenizing", "Tokenizing", "Translator between vocabularies"),
}


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    return read_results()


@pytest.fixture(scope="module")
def found(results: dict[str, Any]) -> dict[str, Scene]:
    return {scene.title: scene for scene in scenes(results)}


@pytest.fixture(scope="module")
def token_map() -> TokenMap:
    return open_map(packaged_model())


def rows_of(scene: Scene) -> dict[str, Row]:
    return {row.what: row for row in scene.rows}


def test_page_is_that_of_the_committed_results(results: dict[str, Any]) -> None:
    assert PAGE.read_text(encoding="utf-8") == page(results), "write it anew: python -m bench.reference"


def test_every_scene_has_rows_a_definition_a_source_and_a_reason(found: dict[str, Scene]) -> None:
    assert set(found) == SCENES
    for scene in found.values():
        assert scene.definition
        assert scene.stated.count("`") >= 2
        assert scene.why
        assert any(row.theirs is not None for row in scene.rows), scene.title
        # What one side lacks says so; a row without any words would hide it.
        for row in scene.rows:
            assert row.theirs is not None or row.stated, row.what
            assert row.ours is not None or row.words, row.what


def test_ours_come_from_the_results_and_never_from_the_page(results: dict[str, Any]) -> None:
    # Whole numbers and others change by factors of their own, so that rates of both change too.
    changed = json.loads(
        json.dumps(results), parse_int=lambda text: int(text) * 3, parse_float=lambda text: float(text) * 2
    )
    before, after = ([row for scene in scenes(each) for row in scene.rows] for each in (results, changed))

    for row, other in zip(before, after, strict=True):
        if row.unit not in ("times", "of plain", "%"):
            assert row.ours is None or row.ours != other.ours, row.what
            assert row.theirs == other.theirs


@pytest.mark.parametrize(
    ("theirs", "ours", "unit", "line"),
    [
        (100, 50.0, "B", "| it | 100 B | 50 B | better, 2.00× |"),
        (50.25, 100.0, "ms", "| it | 50.25 ms | 100 ms | worse, 1.99× |"),
        (2.0, 5.0, "times", "| it | 2.0× | 5.00× | better, 2.50× |"),
        (5.0, 2.0, "million/s", "| it | 5.0 million/s | 2.00 million/s | worse, 2.50× |"),
        (100, 104.0, "B", "| it | 100 B | 104 B | alike |"),
        (None, 1234567.0, "B", "| it | – | 1,234,567 B |  |"),
        (0.5, None, "µs", "| it | 0.5 µs | – |  |"),
    ],
)
def test_a_row_says_whether_ours_is_better(theirs: Any, ours: Any, unit: Any, line: str) -> None:
    assert Row("it", theirs, ours, unit).line() == line


def test_reading_ids_of_30_characters_costs_more_than_tokenizing_and_of_300_less(found: dict[str, Scene]) -> None:
    rows = rows_of(found["A leaf against tokenizing"])

    for how in ("trust", "verify"):
        assert (rows["30 characters: tokenize the text"].ours or 0) < (
            rows[f"30 characters: read ids and {how} them"].ours or 0
        )
        for more in ("300", "3,000"):
            read, tokenize = (
                rows[f"{more} characters: read ids and {how} them"],
                rows[f"{more} characters: tokenize the text"],
            )
            assert (read.ours or 0) < (tokenize.ours or 0)
    for characters in ("30", "300", "3,000"):
        leaf, plain = (
            rows[f"{characters} characters: answer with ids"],
            rows[f"{characters} characters: answer without ids"],
        )
        assert (leaf.ours or 0) > (plain.ours or 0)


def test_codings_overtake_each_other_where_the_page_says(results: dict[str, Any]) -> None:
    def size(count: int, coding: str, policy: str) -> int:
        return results["lengths"]["rows"][f"greedy | {count}"][f"msgpack | {coding} | {policy}"]["bytes"]

    assert all(size(count, "zstd", "never") < size(count, "gzip", "never") for count in lengths.LENGTHS)
    assert all(size(count, "zstd", "40 ms") > size(count, "gzip", "40 ms") for count in lengths.LENGTHS if count >= 64)


def test_codings_and_dictionaries_differ_as_the_page_says(results: dict[str, Any]) -> None:
    def size(scene: str, variant: str) -> int:
        return results["lengths"]["rows"][scene][variant]["bytes"]

    for form in ("msgpack", "protobuf"):
        gzip, *others = (size("greedy | 2048", f"{form} | {coding} | 40 ms") for coding in ("gzip", "br", "zstd"))
        assert all(gzip < other for other in others)
        for coding in ("gzip", "br", "zstd"):
            batch, flushed = (size("greedy | 2048", f"{form} | {coding} | {policy}") for policy in ("batch", "40 ms"))
            assert batch < flushed
            texts = results["wire"]["rows"]["uniform | 1024 | 100"][f"json-sse | {coding} | never"]["bytes"]
            assert size("random | 1024", f"{form} | {coding} | never") < texts
        for name in ("greedy", "prose"):
            short, long = (
                1 - size(scene, f"{form} | zstd+dict | never") / size(scene, f"{form} | zstd | never")
                for scene in (f"{name} | 16", f"{name} | 1024")
            )
            assert short > long


def test_a_stream_that_is_never_flushed_has_its_first_token_at_the_end(results: dict[str, Any]) -> None:
    for name, row in results["lengths"]["rows"]["greedy | 2048"].items():
        wanted = 2048 / lengths.RATE * 1e3 if name.endswith("never") else 1e3 / lengths.RATE
        assert row["first_ms"] == pytest.approx(wanted, rel=0.02), name


def test_replaying_again_gives_the_committed_bytes(results: dict[str, Any], token_map: TokenMap) -> None:
    # Compressors of other versions may differ a little.
    for name, count in (
        ("greedy", 64),
        ("prose", 256),
        ("uniform", 2048),
        ("ten in a circle", 2048),
        ("random", 256),
        ("one word", 256),
    ):
        rows = results["lengths"]["rows"][f"{name} | {count}"]
        every = list(lengths.variants(name))
        assert list(rows) == [each.name for each in every]
        for variant in (each for each in every if each.coding in ("identity", "gzip")):
            assert lengths.one(name, count, variant, token_map)["bytes"] == pytest.approx(
                rows[variant.name]["bytes"], rel=0.03
            )
    assert results["lengths"]["call"] == lengths.one_call(token_map)
    for form, shapes in results["lengths"]["bytes_a_token_by_ids_a_frame"].items():
        assert shapes == {str(ids): lengths.bytes_in_frames(form, ids) for ids in lengths.SHAPES}


def test_answers_of_mcp_have_the_committed_bytes(results: dict[str, Any]) -> None:
    committed = {name: results["mcp_answers"][name] for name in answers.measure()}
    assert committed == answers.measure(), "write them anew: python -m bench.mcp.answers"


def test_the_short_form_replays_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lengths, "write", lambda *_: pytest.fail("it wrote results"))
    lengths.main(short=True)
    assert "greedy | 16" in json.loads(capsys.readouterr().out)["rows"]
