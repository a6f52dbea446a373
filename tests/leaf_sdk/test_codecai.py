"""What we write, codecai 0.4.1 reads: our maps, our leaf ids and the text that they stand for, our caches' ids.

It has no writer or reader of leaf blocks in Python, and no bolt-on; the published bytes of those are held by
`test_leaf` and `test_messages`.
"""

import json
import re
from functools import cache

import codecai
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from leaf_sdk import CODEC_META_KEY, precache, wrap_tool_call
from leaf_sdk.testing import texts, tiny_map, tiny_map_bytes, tiny_meta

TINY = tiny_map()
_MARKER = re.compile(r"<\|[A-Za-z0-9_-]+\|>|</?tool_call>")
_ANY_MARKER = re.compile(r"<[|a-z_]+>")


@cache
def _by_model(data: bytes) -> codecai.BPETokenizer:
    return codecai.BPETokenizer(codecai.TokenizerMap.from_json(data))


@pytest.fixture(scope="module")
def theirs() -> codecai.TokenizerMap:
    return codecai.TokenizerMap.from_json(tiny_map_bytes())


def test_it_loads_our_map_with_all_that_it_knows(theirs):
    assert (theirs.id, theirs.version, theirs.encoder) == ("codec-test/tiny", "2", "byte_level")
    assert theirs.vocab == dict(TINY.vocab)
    assert theirs.tool_calling.markers.start == "<tool_call>"


@given(texts())
def test_it_renders_our_leaf_ids_to_the_blocks_text(theirs, text):
    block = wrap_tool_call({"content": [{"type": "text", "text": text}]}, tiny_meta())["content"][0]
    ids = json.loads(json.dumps(block))["_meta"][CODEC_META_KEY]["ids"]
    assert codecai.Detokenizer(theirs).render(ids) == text


@given(texts())
def test_it_gives_the_same_ids_to_text_without_markers(theirs, text):
    # It reads markers out of any text and can't be told not to; ours stay ordinary text.
    assume(not _MARKER.search(text))
    assert codecai.BPETokenizer(theirs).encode(text) == TINY.encode(text)


@given(text=texts() | st.text(st.sampled_from("a 1'\n.é日½")))
def test_it_gives_the_same_ids_by_a_map_built_from_a_models_file(model_map_bytes, model_map, text):
    assume(not _ANY_MARKER.search(text))
    assert _by_model(model_map_bytes).encode(text) == model_map.encode(text)


def test_it_renders_the_published_part_of_our_caches(theirs):
    cache = json.loads(precache({"line": "hello {who} in the {place}!"}, TINY).to_json())
    parts = cache["fragments"]["line"]["parts"]
    said = [codecai.Detokenizer(theirs).render(part["ids"]) if "ids" in part else part["slot"] for part in parts]
    assert said == ["hello ", "who", " in the ", "place", "!"]
