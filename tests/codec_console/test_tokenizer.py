"""A text as the accepted maps cut it, on the page and as chips."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codec_console.cutting import cut_text, ends_of
from gateway.config.gateway_config import TokensConfig
from leaf_sdk.errors import CodecError
from leaf_sdk.testing import tiny_map, tiny_map_bytes
from leaf_sdk.vocab import TokenMap, load_map

pytestmark = pytest.mark.anyio
TINY = tiny_map()
WITHOUT_MERGES = load_map(json.dumps(json.loads(tiny_map_bytes()) | {"merges": []}).encode())
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202e\u2066\x00"


@pytest.fixture
def config(settings_of, map_path: Path, tmp_path: Path):
    """Two maps: the model's, and one that cuts otherwise."""
    other = tmp_path / "other.json"
    other.write_bytes(tiny_map_bytes())
    return settings_of(tokens=TokensConfig(map=str(map_path), maps=(other,)))


def chips_of(section) -> list[tuple[str, str]]:
    return [(chip.one("samp").text, chip.one("span", class_="id").text) for chip in section.all("li")]


async def test_text_is_cut_into_one_chip_an_id(run_console, config, page_of, model_map) -> None:
    async with run_console(config) as site:
        await site.browser.sign_in()
        page = page_of((await site.browser.send("/console/tokenizer", {"text": "The cat\r\nsat é"})).text)

    cut = page.one(id="cut")
    ids = model_map.encode("The cat\nsat é")
    assert [number for _, number in chips_of(cut)] == [str(each) for each in ids]
    assert "".join(text for text, _ in chips_of(cut)).replace("·", " ").replace("⏎", "\n") == "The cat\nsat é"
    assert "spells no special token" in cut.text
    assert page.one("textarea", name="text").text.strip() == "The cat\nsat é"


async def test_special_token_stands_as_text_and_as_control_token_side_by_side(
    run_console, config, page_of, model_map
) -> None:
    text = "<|im_start|>user"
    async with run_console(config) as site:
        await site.browser.sign_in()
        page = page_of((await site.browser.send("/console/tokenizer", {"text": text})).text)

    as_text, as_control = page.one(id="cut").one(class_="halves").all("ol")
    assert [number for _, number in chips_of(as_text)] == [str(each) for each in model_map.encode(text)]
    assert [number for _, number in chips_of(as_control)] == [str(i) for i in model_map.encode(text, specials=True)]
    assert as_text.all("li", class_="chip special") == []
    assert as_control.all("li", class_="chip special")[0].one("samp").text == "<|im_start|>"


async def test_two_maps_are_compared(run_console, config, page_of, model_map) -> None:
    async with run_console(config) as site:
        await site.browser.sign_in()
        form = {"text": "hello world", "first": model_map.map_id, "second": TINY.map_id}
        page = page_of((await site.browser.send("/console/tokenizer", form)).text)

    assert len(page.one(id="cut").all("section", class_="side")) == 2
    assert page.one("select", name="second").one("option", selected=None).attributes["value"] == TINY.map_id


async def test_hostile_text_is_text_and_the_textarea_has_it_again(run_console, config, page_of) -> None:
    async with run_console(config) as site:
        await site.browser.sign_in()
        answer = await site.browser.send("/console/tokenizer", {"text": f"</textarea>{HOSTILE}"})

    page = page_of(answer.text)
    cut = page.one(id="cut")
    assert [each.attributes["src"] for each in page.all("script")] == ["/console/static/tokenizer.js"]
    assert not any(character in cut.text for character in "\x1b\x00\u202e\u2066")
    assert page.one("textarea", name="text").text.startswith("\n</textarea><script>")


@pytest.mark.parametrize(
    ("form", "words"),
    [({"text": "x" * 4001}, "at most 4000"), ({"text": "x", "first": "nobody's"}, None), ({"text": ""}, None)],
)
async def test_text_is_bounded_and_unknown_maps_are_none(run_console, config, page_of, form, words) -> None:
    async with run_console(config) as site:
        await site.browser.sign_in()
        page = page_of((await site.browser.send("/console/tokenizer", form)).text)

    alerts = [each.text for each in page.all(role="alert")]
    assert alerts == [] if words is None else words in alerts[0]
    assert len(page.one(id="cut").all("section", class_="side")) == (form["text"] == "x")


async def test_without_a_map_that_is_said(browser) -> None:
    page = await browser.page("/console/tokenizer")

    assert "No map is loaded" in page.text
    assert page.all("textarea") == []


@given(text=st.text(max_size=60))
@pytest.mark.parametrize("token_map", [TINY, WITHOUT_MERGES], ids=["merges", "no merges"])
def test_chips_are_the_ids_whatever_the_text_is(token_map: TokenMap, text: str) -> None:
    other = WITHOUT_MERGES if token_map is TINY else TINY
    try:
        cut = cut_text(token_map, text, other, specials=True)
    except CodecError:
        return
    ids = token_map.encode(text, specials=True)
    assert [chip.token_id for chip in cut.chips] == ids
    assert all(chip.text.isprintable() for chip in cut.chips)
    mine, theirs = ends_of(token_map, ids), ends_of(other, other.encode(text, specials=True))
    if mine[-1:] == theirs[-1:]:
        assert [chip.differs for chip in cut.chips] == [end not in theirs for end in mine]


def test_bytes_that_are_no_character_are_shown_as_numbers(model_map) -> None:
    kinds = {chip.text: chip.kind for chip in cut_text(model_map, "\u2603\U0001f9ea").chips}

    assert "bytes" in kinds.values()
    assert all(set(text) <= set("0123456789ABCDEF ") for text, kind in kinds.items() if kind == "bytes")


def test_long_cut_is_shown_in_part_and_says_so(model_map) -> None:
    cut = cut_text(model_map, "\U0001f9ea" * 2500)

    assert len(cut.chips) == 2000
    assert cut.more == len(model_map.encode("\U0001f9ea" * 2500)) - 2000 > 0
