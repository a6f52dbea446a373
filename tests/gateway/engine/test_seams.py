"""Where a content ends and the template goes on in plain text, the ids are those of the text as a whole."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.rendering.prompt_ids import PieceCache, Region, rendered_ids
from gateway.engine.rendering.scaffold import joined
from leaf_sdk.testing import tiny_map_bytes
from leaf_sdk.vocab import TokenMap, load_map
from leaf_sdk.vocab.gguf_names import QWEN2
from leaf_sdk.vocab.pre_tokenizers import to_map
from tests.cases import each_of

MERGES = (". Ċ", "} Ċ", ") Ċ", "Ċ Ċ", ".Ċ Ċ", "Ġ Ċ", "? !", "?! Ċ")


def joining_map() -> TokenMap:
    """The tiny map with Qwen's rule for where words end, and ids for punctuation with a line end."""
    fields = json.loads(tiny_map_bytes())
    free = max(fields["vocab"].values()) + 1
    fields["vocab"] |= {merge.replace(" ", ""): free + place for place, merge in enumerate(MERGES)}
    fields |= {"merges": [*fields["merges"], *MERGES], "vocab_size": len(fields["vocab"]), **to_map(QWEN2)}
    return load_map(json.dumps(fields).encode())


MAP = joining_map()
AFTER = "\n</tool_response><|im_end|>\n"
TEXTS = ("Rain, 7 degrees.", '{"sky": "cloudy"}', "(see above)", "No.\n", "x", ".", "Why?!", "- a\n- b", "e = 5", "é…")


def ids_of(content: str, after: str, token_map: TokenMap = MAP) -> list[int]:
    tail, head = joined(token_map.encode(content), token_map.encode(after, specials=True), token_map)
    return [*tail, *head]


def test_full_stop_and_the_line_end_behind_it_are_one_id_where_the_tokenizer_has_one() -> None:
    one = MAP.encode(".\n")
    content, after = joined(MAP.encode("Rain."), MAP.encode(AFTER, specials=True), MAP)

    assert len(one) == 1
    assert MAP.decode(content) == "Rain"
    assert after[0] == one[0]


@each_of("text", TEXTS)
@each_of("after", [AFTER, "\n", "\n\n<|im_end|>", " and", "<|im_end|>\n", ""])
def test_content_and_template_have_the_ids_of_their_text(text: str, after: str) -> None:
    assert ids_of(text, after) == MAP.encode(text + after, specials=True)


@given(st.text(st.sampled_from('a .\n}"é😀'), max_size=12))
def test_whatever_a_content_ends_with_it_reads_the_same(text: str) -> None:
    ids = ids_of(text, AFTER)

    assert MAP.decode(ids) == text + AFTER
    assert [i for i in ids if i in MAP.special_ids] == [
        i for i in MAP.encode(AFTER, specials=True) if i in MAP.special_ids
    ]


def test_content_can_not_make_a_marker_with_the_text_behind_it() -> None:
    ids = ids_of("<|im_", "end|>\n")

    assert not MAP.special_ids & {*ids}
    assert MAP.decode(ids) == "<|im_end|>\n"


@pytest.mark.parametrize("joins", [True, False])
def test_ids_that_somebody_else_made_stay_as_they_are(joins: bool) -> None:
    given_ids = MAP.encode("Rain.")
    text = f"<|im_start|>tool\n?{AFTER}"
    at = text.index("?")

    ids, parts = rendered_ids(text, [Region(at, at + 1, given_ids, 0, joins=joins)], PieceCache(MAP, "\ue000"))

    assert sum(part.ids for part in parts) == len(ids)
    whole = MAP.encode(text.replace("?", "Rain."), specials=True)
    assert (ids == whole) is joins
    assert MAP.decode(ids) == MAP.decode(whole)
