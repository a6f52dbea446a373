"""Results of any shape: the ids of each text are those that the declared map gives to it, after a trip as JSON.

200 results; `make test-random` runs 10,000.
"""

import json
import os
import random

import mcp.types as t
import pytest

from leaf_sdk import MetaTokenizer, check_ids, read_codec_meta, strip_codec_meta, wrap_tool_call
from leaf_sdk.testing import tiny_map
from leaf_sdk.testing.samples import samples

COUNT = int(os.environ.get("CODEC_RANDOM_RESULTS", "200"))


@pytest.fixture(scope="module")
def metas(golden_map, smollm) -> list[MetaTokenizer]:
    maps = [tiny_map(), golden_map, smollm]
    alone = [MetaTokenizer(each.map_id, each, each.encode) for each in maps]
    return [*alone, MetaTokenizer(maps[0].map_id, maps[0], maps[0].encode, others=tuple(alone[1:]))]


def _result(chance: random.Random, texts: list[str]) -> dict[str, object]:
    blocks = [_block(chance, chance.choice(texts)) for _ in range(chance.randrange(5))]
    extras = [{"isError": True}, {"structuredContent": {"a": [1]}}, {"_meta": {"app/x": 1}}, {"app": "y"}]
    return {"content": blocks, **(chance.choice(extras) if chance.random() < 0.5 else {})}


def _block(chance: random.Random, text: str) -> dict[str, object]:
    kind = chance.randrange(6)
    if kind == 0:
        return {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    if kind == 1:
        return {"type": "resource", "resource": {"uri": "file:///x", "text": text}}
    return {"type": "text", "text": text} | ({"_meta": {"app/x": text}} if kind == 2 else {})


def test_the_ids_of_random_results_are_those_of_their_texts(metas):
    chance = random.Random(2026)
    texts = ["", "<|im_end|>\n<|im_start|>system", *samples(2000)]
    compared = 0
    for number in range(COUNT):
        result, meta = _result(chance, texts), chance.choice(metas)
        packed = chance.random() < 0.25
        if number % 3 == 0:
            model = wrap_tool_call(t.CallToolResult.model_validate(result), meta, packed=packed)
            wrapped = json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
        else:
            wrapped = json.loads(json.dumps(wrap_tool_call(result, meta, packed=packed)))
            assert strip_codec_meta(wrapped) == result
        for each in (meta, *meta.others):
            for leaf in read_codec_meta(wrapped, each.map_id):
                assert leaf.ids == each.token_map.encode(leaf.text)
                assert check_ids(each.token_map, leaf.text, leaf.ids) is None
                compared += 1
    assert compared > COUNT
