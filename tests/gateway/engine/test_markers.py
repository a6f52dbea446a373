"""Separators in words of others: whatever stands around them, no marker comes of both together."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.rendering.foreign_text import MarkerGuard
from leaf_sdk.testing import tiny_map
from leaf_sdk.vocab import TokenMap, build_map, load_map
from tests.cases import each_of

SEPARATOR = "\U000f1234"
TINY = tiny_map()


def specials_in(token_map: TokenMap, text: str) -> list[int]:
    ids = token_map.encode(text, specials=True, separator=SEPARATOR)
    assert token_map.decode(ids) == text.replace(SEPARATOR, "")
    return [token_id for token_id in ids if token_id in token_map.special_ids]


def hold(token_map: TokenMap, markers: list[str]) -> None:
    """Every part of every marker as a stranger's word, and the rest as the template's own text around it."""
    guard = MarkerGuard(token_map.special_texts)
    for marker in markers:
        for start in range(len(marker)):
            for end in range(start + 1, len(marker) + 1):
                word = guard.guarded(marker[start:end], SEPARATOR)
                assert specials_in(token_map, marker[:start] + word + marker[end:]) == [], (marker, start, end)
                assert specials_in(token_map, f"{marker[:start]}{word}{guard.guarded(marker[end:], SEPARATOR)}") == []


def test_no_part_of_a_marker_can_be_completed(markers_map: TokenMap) -> None:
    hold(TINY, list(TINY.special_texts))
    hold(markers_map, list(markers_map.special_texts)[::9])


def test_no_part_of_a_marker_of_the_packaged_model_can_be_completed(model_map: TokenMap) -> None:
    hold(model_map, list(model_map.special_texts))


@pytest.mark.tokenizers
@pytest.mark.parametrize("name", ["deepseek_v3", "gemma2", "gptoss", "llama3_1", "mistral_nemo", "qwen3"])
def test_no_part_of_a_marker_of_a_real_tokenizer_can_be_completed(name: str) -> None:
    tokenizers = Path(__file__).parents[3] / ".tools" / "tokenizers"
    token_map = load_map(build_map((tokenizers / f"{name}.json").read_bytes()))
    hold(token_map, [marker for marker in token_map.special_texts if len(marker) > 1])


PARTS = ["<|im_start|>", "<|im_", "end|>", "<", "|", ">", "tool_call", "/", "x", "\n"]


@given(st.lists(st.sampled_from(PARTS), max_size=8))
def test_text_between_templates_own_markers_leaves_them_alone(parts: list[str]) -> None:
    word = MarkerGuard(TINY.special_texts).guarded("".join(parts), SEPARATOR)
    around = specials_in(TINY, f"<|im_start|>{word}<|im_end|>")

    assert around == specials_in(TINY, "<|im_start|><|im_end|>")


@pytest.mark.parametrize("word", ["get_time", "a plain description, of 2 lines\nand more", "", "city"])
def test_words_that_take_part_in_no_marker_stay_as_they_are(word: str) -> None:
    assert MarkerGuard(TINY.special_texts).guarded(word, SEPARATOR) == word


def test_case_does_not_count_since_templates_change_it() -> None:
    guard = MarkerGuard(TINY.special_texts)

    assert SEPARATOR in guard.guarded("|IM_START|", SEPARATOR)
    assert specials_in(TINY, guard.guarded("<|IM_START|>", SEPARATOR).lower()) == []


def test_word_of_the_schema_is_known_to_stand_in_a_marker() -> None:
    guard = MarkerGuard(["<title>", "<|object_ref_start|>"])

    assert (guard.spells("title"), guard.spells("object")) == (True, False)


def test_map_without_markers_needs_no_separators() -> None:
    assert MarkerGuard([]).guarded("<|im_start|>", SEPARATOR) == "<|im_start|>"


@each_of(
    ("word", "guarded"),
    [
        # Inside a whole marker, and where one could go on.
        ("<|im_start|>", "<-|im_start|>-"),
        ("a<s>b", "a<-s>b"),
        ("<s><s>", "<-s><-s>"),
        ("<<s>", "<<-s>"),
        # At an end where one could begin, end, or go on at both.
        ("x<", "x<-"),
        ("s>x", "-s>x"),
        ("s>", "-s>-"),
        ("im", "im-"),
        ("|im_sta", "|im_sta-"),
        # Each line has ends of its own.
        ("|>\n<|", "-|>-\n<|-"),
        ("a\ns>\nb<", "a-\n-s>-\nb<-"),
        ("a b\n", "a b\n"),
        # Letters count alike, and nothing else does.
        ("é<S>", "é<-S>"),
        ("<zZ>", "<-zZ>-"),
        ("{zz}", "{zz}"),
        ("x", "x"),
        ("#", "#"),
    ],
)
def test_separators_stand_wherever_a_marker_could_begin_go_on_or_end(word: str, guarded: str) -> None:
    guard = MarkerGuard(["<s>", "<|im_start|>", "[zz]", "<ZZ>", "#"])

    assert guard.guarded(word, "-") == guarded
    # Long texts are looked at like short ones.
    assert guard.guarded(" " * 300 + "\n" + word, "-") == " " * 300 + "\n" + guarded
    assert (guard.spells("ZZ"), guard.spells("im_start"), guard.spells("im"), guard.spells("#")) == (
        True,
        True,
        False,
        False,
    )
