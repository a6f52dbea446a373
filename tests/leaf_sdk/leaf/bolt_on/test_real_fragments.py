"""Cached ids joined at proven cuts are the ids of the whole text under real models' vocabularies, too.

Needs what `make tokenizers` fetches; run by `make test-tokenizers`. Slots hold the sample texts of every kind (code,
scripts, blanks, emoji, control characters, random Unicode) and the ends at which tokenizers join.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from leaf_sdk import FragmentCache, Fragments, FragmentText, TokenMap, load_map, precache, verify_cache
from leaf_sdk.leaf.bolt_on.cache import Ids
from leaf_sdk.leaf.bolt_on.precaching import PROBES
from leaf_sdk.testing.samples import samples
from leaf_sdk.vocab import build_map
from leaf_sdk.vocab.tiktoken_file import CUTS
from tests.cases import each_of

pytestmark = [pytest.mark.tokenizers, pytest.mark.timeout(600)]

FOLDER = Path(__file__).parents[4] / ".tools" / "tokenizers"
BYTE_LEVEL = (
    *("deepseek_v3.json", "gpt4o.json", "gptoss.json", "llama3_1.json", "mistral_nemo.json"),
    *("qwen2_5.json", "qwen3.json", "qwen.tiktoken", "tekken_240718.json", "tekken_240911.json"),
)
# Metaspace, and NFKC, under which a character may join any other.
UNCUT = (
    *("claude.json", "gemini.json", "gemma2.json", "gemma3.json", "llama2.json", "tokenizer.model.v1"),
    "mistral_instruct_tokenizer_241114.model.v7",
)
TEMPLATES = {
    "sentence": "The time in {zone} is {time} on {day}, {date} (UTC{offset}).",
    "json": '{"city":"{city}","temperature":{t},"sky":"{sky}"}',
    "halves": "{a}orld hello {b}{c} th{d}e",
    "lines": "{head}\n\n- {one}\n- {two}\n",
    "code": "def {name}({args}):\n    return {value}  # {note}\n",
    "contractions": "it{a}'s {b}'ll and I{c}'M 12{d}34",
}
LENGTH = 200
"""Characters of a slot's text: the seams are what is tried, not the encoding."""


def values() -> Iterator[str]:
    yield from PROBES
    for text in samples(400):
        yield text[:LENGTH]


VALUES = list(values())


def map_of(name: str) -> TokenMap:
    data = (FOLDER / name).read_bytes()
    return load_map(build_map(data, cut=CUTS["qwen"]) if name.endswith(".tiktoken") else build_map(data))


def filled(source: FragmentText, at: int) -> dict[str, str]:
    """Texts for the slots: each slot of a filling another one, and each text in every slot over all fillings."""
    return {slot: VALUES[(at + 7 * n) % len(VALUES)] for n, slot in enumerate(source.slots)}


def hold_against_whole(token_map: TokenMap) -> FragmentCache:
    """Every template, filled with every value: its ids are those of the whole text. Gives the cache."""
    cache = precache(TEMPLATES, token_map)
    assert verify_cache(cache, token_map) == []
    fragments = Fragments(token_map, cache)
    for name, template in TEMPLATES.items():
        source = FragmentText(name, template)
        for at in range(len(VALUES)):
            slots = filled(source, at)
            ids = fragments[name].ids(slots)
            assert ids == token_map.encode(source.fill(slots)), (name, slots)
            assert token_map.special_ids.isdisjoint(ids), (name, slots)
    return cache


@each_of("name", BYTE_LEVEL)
def test_a_filled_template_has_the_ids_of_its_whole_text_and_most_literals_are_cached(name):
    cached = hold_against_whole(map_of(name)).fragments
    parted = [name for name, each in cached.items() if any(isinstance(piece, Ids) for piece in each.pieces)]
    assert len(parted) >= 4, parted


@pytest.mark.parametrize("name", UNCUT)
def test_where_no_cut_is_proven_the_whole_text_is_encoded_and_right(name):
    cached = hold_against_whole(map_of(name)).fragments
    assert not any(isinstance(piece, Ids) for each in cached.values() for piece in each.pieces)


@pytest.mark.parametrize("name", ["llama3_1.json", "qwen3.json"])
def test_the_ids_of_filled_templates_are_those_of_the_models_own_library(name):
    library = Tokenizer.from_file(str(FOLDER / name))
    token_map = map_of(name)
    fragments = Fragments(token_map, precache(TEMPLATES, token_map))
    added = set(library.get_added_tokens_decoder().values())
    markers = [each.content for each in added]
    compared = 0
    for fragment, template in TEMPLATES.items():
        source = FragmentText(fragment, template)
        for at in range(len(VALUES)):
            text = source.fill(slots := filled(source, at))
            if any(marker in text for marker in markers):
                continue  # the library takes these for control tokens, a map never does
            assert fragments[fragment].ids(slots) == library.encode(text, add_special_tokens=False).ids, slots
            compared += 1
    assert compared > 0.8 * len(VALUES) * len(TEMPLATES)
